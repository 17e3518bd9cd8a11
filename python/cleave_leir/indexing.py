"""The handlers of operators that move elements by computed places: gathers, windows as axes, transposed convolutions."""

from .nn import guarded, per_axis
from .ops import elementwise, handles, is_value, rank_axis, result, with_bias
from .text import Ix, literal


@handles("gather.default")
def gather(t, meta, x, axis, index, **named):
    dtype, shape = result(meta)
    axis = rank_axis(axis, len(x.shape))
    return t.map(dtype, shape, lambda ix: x.at(ix[:axis] + [index.at(ix)] + ix[axis + 1 :]))


@handles("index.Tensor")
def index(t, meta, x, indices):
    from .translate import Unsupported

    dtype, shape = result(meta)
    taken = {a: i for a, i in enumerate(indices) if i is not None}
    if any(i.dtype in ("bool", "u8") for i in taken.values()):
        raise Unsupported({"aten.index.Tensor with a mask, whose result has no fixed extents"})
    rank = max(len(i.shape) for i in taken.values())
    first = min(taken)
    # Index tensors next to each other give their axes there, others in front.
    start = first if list(taken) == list(range(first, first + len(taken))) else 0

    def element(ix):
        own, rest = ix[start : start + rank], iter(ix[:start] + ix[start + rank :])
        at = []
        for a in range(len(x.shape)):
            if a not in taken:
                at.append(next(rest))
                continue
            i = taken[a]
            places = own[rank - len(i.shape) :]
            at.append(i.at([Ix.number(0) if n == 1 else p for n, p in zip(i.shape, places)]))
        return x.at(at)

    return t.map(dtype, shape, element)


@handles("unfold.default")
def unfold(t, meta, x, axis, size, step):
    axis = rank_axis(axis, len(x.shape))
    return x.view(list(meta.shape), lambda ix: ix[:axis] + [ix[axis] * step + ix[-1]] + ix[axis + 1 : -1])


@handles("remainder.Scalar", "remainder.Tensor")
def remainder(t, meta, x, y):
    whole = result(meta)[0][0] in "iu"
    return elementwise(t, meta, [x, y], lambda a, b: f"{a}%{b}" if whole else f"{a}-floor({a}/{b})*{b}")


@handles("fmod.Scalar", "fmod.Tensor")
def fmod(t, meta, x, y):
    if is_value(y) or result(meta)[0][0] not in "iu":
        from .translate import Unsupported

        raise Unsupported({"aten.fmod of reals"})
    n = abs(y)
    return elementwise(t, meta, [x], lambda a: f"if_then_else({a}<0,-(-{a}%{n}),{a}%{n})")


def running(kind, least):
    """The running extremum and, when it is wanted, the last place that has it."""

    def run(t, meta, x, axis):
        from .translate import Unsupported

        def places():
            raise Unsupported({f"the indices of aten.cum{kind}"})

        axis = rank_axis(axis, len(x.shape)) if x.shape else 0
        if not x.shape:
            return [x, places]
        out = t.new(x.dtype, x.shape)
        loops, ix, r = t.w.loops(x.shape[:axis] + x.shape[axis + 1 :], [x.shape[axis]])
        at = ix[:axis] + r + ix[axis:]
        before = ix[:axis] + [r[0] - 1] + ix[axis:]
        t.w.nest(loops, f"{out.at(at)}={kind}(if_then_else({r[0]}<1,{least},{out.at(before)}),{x.at(at)})")
        return [out, places]

    handles(f"cum{kind}.default")(run)


running("max", literal(float("-inf")))
running("min", literal(float("inf")))


@handles("convolution.default")
def convolution(t, meta, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    from .nn import convolution as forward

    if not transposed:
        return forward(t, meta, x, weight, bias, stride, padding, dilation, groups)
    dtype, shape = result(meta)
    spatial = len(weight.shape) - 2
    lead = shape[: len(shape) - spatial - 1]
    stride, padding, dilation = (per_axis(v, spatial) for v in (stride, padding, dilation))
    inside, kernel = weight.shape[0] // groups, weight.shape[2:]
    each = weight.shape[1]
    out = t.new(t.accumulator(dtype), shape)
    channels = [each] if groups == 1 else [groups, each]
    loops, ix, r = t.w.loops(lead + channels + shape[len(lead) + 1 :], [inside, *kernel])
    batch, rest = ix[: len(lead)], ix[len(lead) :]
    group, within, place = (Ix.number(0), rest[0], rest[1:]) if groups == 1 else (rest[0], rest[1], rest[2:])
    # The element that tap k carries to place y is x[(y + padding - k * dilation) / stride], where that is whole.
    up = [y + p - k * d for y, p, k, d in zip(place, padding, r[1:], dilation)]
    whole = [f"({u})%{s}==0" for u, s in zip(up, stride) if s > 1]
    extents = x.shape[len(lead) + 1 :]
    at = [u if s == 1 else Ix({f"({u})//{s}": 1}, 0, {f"({u})//{s}": max(u.bounds()[1], 0) // s}) for u, s in zip(up, stride)]
    term = f"{x.at([*batch, group * inside + r[0], *at])}*{weight.at([group * inside + r[0], within, *r[1:]])}"
    limits = [(u, (n - 1) * s + 1) for u, n, s in zip(up, extents, stride)]
    value = guarded(limits, term, 0)
    if whole:
        value = f"if_then_else({'&'.join(whole)},{value},0)"
    target = out.at([*batch, group * each + within, *place])
    t.w.nest(loops, f"{target}={target}+{value}")
    return with_bias(t, out, dtype, bias, len(lead))


