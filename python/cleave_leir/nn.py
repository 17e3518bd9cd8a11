"""The handlers of neural-network operators: convolutions, pools, norms, losses."""

import math

from .ops import count, element, elementwise, finish, handles, rank_axis, reduce_axes, result, stored_dtype, with_bias
from .text import Ix, literal


def per_axis(value, n):
    value = [value] if isinstance(value, int) else list(value)
    return value * n if len(value) == 1 else value


def inside(forms):
    """The condition that each index (form, extent) lies in its tensor; empty when that is certain."""
    out = []
    for form, extent in forms:
        low, high = form.bounds()
        if low < 0:
            out.append(f"0<={form}<{extent}" if high >= extent else f"0<={form}")
        elif high >= extent:
            out.append(f"{form}<{extent}")
    return "&".join(out)


def guarded(forms, value, otherwise):
    condition = inside(forms)
    return f"if_then_else({condition},{value},{otherwise})" if condition else value


# -- convolutions ---------------------------------------------------------------------------------------------------


def convolution(t, meta, x, weight, bias, stride, padding, dilation, groups):
    dtype, shape = result(meta)
    spatial = len(weight.shape) - 2
    batched = len(x.shape) == spatial + 2
    stride, dilation = per_axis(stride, spatial), per_axis(dilation, spatial)
    before = per_axis(padding, spatial)
    channels, kernel = weight.shape[1], weight.shape[2:]
    out_channels = weight.shape[0] // groups
    work = t.accumulator(dtype)
    out = t.new(work, shape)
    # Output channels of several groups are two loops, so that all subscripts are affine.
    lead = shape[: 1 if batched else 0]
    channel_loops = [weight.shape[0]] if groups == 1 else ([groups] if out_channels == 1 else [groups, out_channels])
    inner = ([channels] if channels > 1 or groups == 1 else []) + kernel
    loops, ix, r = t.w.loops(lead + channel_loops + shape[len(lead) + 1 :], inner)
    batch, rest = ix[: len(lead)], ix[len(lead) :]
    if groups == 1:
        co, place = rest[0], rest[1:]
        ci = r[0]
    elif out_channels == 1:
        co, place = rest[0], rest[1:]
        ci = rest[0] * channels + (r[0] if channels > 1 else 0)
    else:
        co, place = rest[0] * out_channels + rest[1], rest[2:]
        ci = rest[0] * channels + (r[0] if channels > 1 else 0)
    within = r[0] if channels > 1 or groups == 1 else Ix.number(0)
    taps = r[len(inner) - spatial :]
    at = [p * s + k * d - b for p, s, k, d, b in zip(place, stride, taps, dilation, before)]
    term = f"{x.at(batch + [ci] + at)}*{weight.at([co, within] + taps)}"
    target = out.at(batch + [co] + place)
    extents = x.shape[len(lead) + 1 :]
    t.w.nest(loops, f"{target}={target}+{guarded(list(zip(at, extents)), term, 0)}")
    return with_bias(t, out, dtype, bias, len(lead))


def same_padding(weight, dilation, spatial):
    dilation = per_axis(dilation, spatial)
    return [d * (k - 1) // 2 for k, d in zip(weight.shape[2:], dilation)]


@handles("conv1d.default", "conv2d.default", "conv3d.default", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def conv(t, meta, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    spatial = len(weight.shape) - 2
    if isinstance(padding, str):
        padding = 0 if padding == "valid" else same_padding(weight, dilation, spatial)
    return convolution(t, meta, x, weight, bias, stride, padding, dilation, groups)


# -- pools ----------------------------------------------------------------------------------------------------------


def pooled(t, meta, x, kernel, stride, padding, dilation, kind, identity):
    dtype, shape = result(meta)
    n = len(kernel)
    work = x.dtype if kind == "max" else t.accumulator(dtype)

    def term(ix, r):
        at = [p * s + k * d - b for p, s, k, d, b in zip(ix[-n:], stride, r, dilation, padding)]
        return guarded(list(zip(at, x.shape[-n:])), x.at(ix[:-n] + at), identity)

    return t.reduce(work, shape, kernel, term, kind)


@handles("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
def max_pool(t, meta, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    n = len(kernel) if not isinstance(kernel, int) else max(1, len(x.shape) - 2)
    kernel = per_axis(kernel, n)
    stride = per_axis(stride, n) if stride else kernel
    return pooled(t, meta, x, kernel, stride, per_axis(padding, n), per_axis(dilation, n), "max", "-inf")


@handles("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(t, meta, x, kernel, stride=(), padding=0, ceil_mode=False, include=True, divisor=None):
    dtype, shape = result(meta)
    n = len(kernel)
    kernel = per_axis(kernel, n)
    stride = per_axis(stride, n) if stride else kernel
    padding = per_axis(padding, n)
    total = pooled(t, meta, x, kernel, stride, padding, [1] * n, "+", "0")
    if divisor is not None:
        return finish(t, total, dtype, lambda a: f"{a}/{divisor}")

    def taps(ix):
        """How many taps count, axis by axis: a number where it is one everywhere."""
        numbers, forms = 1, []
        for i, k, s, p, length in zip(ix[-n:], kernel, stride, padding, x.shape[-n:]):
            start = i * s - p
            low, high = start.bounds()
            end = length + p if include else length
            first = low if include else max(low, 0)
            if high + k <= end and (include or low >= 0):
                numbers *= k
                continue
            del first
            begin = f"{start}" if include or low >= 0 else f"max({start},0)"
            stop = f"{start + k}" if high + k <= end else f"min({start + k},{end})"
            forms.append(f"({stop}-({begin}))")
        return "*".join(([str(numbers)] if numbers != 1 or not forms else []) + forms)

    def form(ix):
        text = taps(ix)
        return f"{total.at(ix)}/{text}" if text.isdigit() else f"{total.at(ix)}/({text})"

    return t.map(dtype, shape, form)


@handles("adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default")
def adaptive_avg_pool(t, meta, x, size):
    dtype, shape = result(meta)
    n = len(shape) if isinstance(size, int) else len(size)
    if any(length % out for length, out in zip(x.shape[-n:], shape[-n:])):
        from .translate import Unsupported

        raise Unsupported({"adaptive pooling with windows of unequal length"})
    kernel = [length // out for length, out in zip(x.shape[-n:], shape[-n:])]
    total = pooled(t, meta, x, kernel, kernel, [0] * n, [1] * n, "+", "0")
    return finish(t, total, dtype, lambda a: f"{a}/{math.prod(kernel)}")


# -- norms ----------------------------------------------------------------------------------------------------------


def normalise(t, dtype, x, axes, eps, scale):
    """(x - mean) / sqrt(variance + eps) over axes, then scale(text, ix)."""
    n, work = count(x, axes), t.accumulator(dtype)
    total = reduce_axes(t, x, axes, True, "+", work)
    middle = t.map(work, total.shape, lambda ix: f"{total.at(ix)}/{n}")
    squares = reduce_axes(t, x, axes, True, "+", work, lambda a, ix: f"({a}-{element(middle, ix)})**2")
    spread = t.map(work, squares.shape, lambda ix: f"sqrt({squares.at(ix)}/{n}+{literal(eps)})")
    return t.map(
        dtype, x.shape, lambda ix: scale(f"({x.at(ix)}-{element(middle, ix)})/{element(spread, ix)}", ix)
    )


def affine(weight, bias, at):
    def scale(text, ix):
        if weight is not None:
            text = f"{text}*{weight.at(at(ix))}"
        return text if bias is None else f"{text}+{bias.at(at(ix))}"

    return scale


@handles("layer_norm.default")
def layer_norm(t, meta, x, shape, weight=None, bias=None, eps=1e-5, *rest):
    n = len(shape)
    axes = list(range(len(x.shape) - n, len(x.shape)))
    return normalise(t, result(meta)[0], x, axes, eps, affine(weight, bias, lambda ix: ix[-n:]))


@handles("rms_norm.default")
def rms_norm(t, meta, x, shape, weight=None, eps=None):
    dtype = result(meta)[0]
    eps = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[stored_dtype(meta)] if eps is None else eps
    n = len(shape)
    axes = list(range(len(x.shape) - n, len(x.shape)))
    total = reduce_axes(t, x, axes, True, "+", t.accumulator(dtype), lambda a, ix: f"{a}*{a}")
    size = count(x, axes)
    scale = affine(weight, None, lambda ix: ix[-n:])
    return t.map(
        dtype, x.shape, lambda ix: scale(f"{x.at(ix)}/sqrt({element(total, ix)}/{size}+{literal(eps)})", ix)
    )


@handles("batch_norm.default")
def batch_norm(t, meta, x, weight, bias, mean, variance, training, momentum, eps, *rest):
    dtype = result(meta)[0]
    scale = affine(weight, bias, lambda ix: [ix[1]])
    if training or mean is None:
        return normalise(t, dtype, x, [a for a in range(len(x.shape)) if a != 1], eps, scale)
    return t.map(
        dtype,
        x.shape,
        lambda ix: scale(f"({x.at(ix)}-{mean.at([ix[1]])})/sqrt({variance.at([ix[1]])}+{literal(eps)})", ix),
    )


@handles("instance_norm.default")
def instance_norm(t, meta, x, weight, bias, mean, variance, use_input_stats, momentum, eps, *rest):
    return normalise(
        t, result(meta)[0], x, list(range(2, len(x.shape))), eps, affine(weight, bias, lambda ix: [ix[1]])
    )


@handles("group_norm.default")
def group_norm(t, meta, x, groups, weight=None, bias=None, eps=1e-5, *rest):
    dtype, shape = result(meta)
    channels = shape[1] // groups
    grouped = x.view(
        [shape[0], groups, channels, *shape[2:]], lambda ix: [ix[0], ix[1] * channels + ix[2], *ix[3:]]
    )
    n, work = channels * math.prod(shape[2:]), t.accumulator(dtype)
    axes = list(range(2, len(grouped.shape)))
    total = reduce_axes(t, grouped, axes, False, "+", work)
    middle = t.map(work, total.shape, lambda ix: f"{total.at(ix)}/{n}")
    squares = reduce_axes(t, grouped, axes, False, "+", work, lambda a, ix: f"({a}-{middle.at(ix[:2])})**2")
    spread = t.map(work, squares.shape, lambda ix: f"sqrt({squares.at(ix)}/{n}+{literal(eps)})")
    scale = affine(weight, bias, lambda ix: [ix[1]])
    out = t.new(dtype, shape)
    loops, ix, _ = t.w.loops(grouped.shape)
    plain = [ix[0], ix[1] * channels + ix[2], *ix[3:]]
    text = scale(f"({x.at(plain)}-{middle.at(ix[:2])})/{spread.at(ix[:2])}", plain)
    t.w.nest(loops, f"{out.at(plain)}={text}")
    return out


# -- losses ---------------------------------------------------------------------------------------------------------


def reduced(t, meta, shape, dtype, term, reduction):
    """The loss term(ix) over `shape`, with PyTorch's reduction: 0 none, 1 mean, 2 sum."""
    if reduction == 0:
        return t.map(dtype, shape, term)
    out = t.reduce(t.accumulator(dtype), [], shape, lambda ix, r: term(r))
    n = math.prod(shape)
    return finish(t, out, dtype, (lambda a: f"{a}/{n}") if reduction == 1 else None)


@handles("mse_loss.default")
def mse_loss(t, meta, x, y, reduction=1):
    return reduced(t, meta, x.shape, result(meta)[0], lambda ix: f"({x.at(ix)}-{y.at(ix)})**2", reduction)


@handles("l1_loss.default")
def l1_loss(t, meta, x, y, reduction=1):
    return reduced(t, meta, x.shape, result(meta)[0], lambda ix: f"abs({x.at(ix)}-{y.at(ix)})", reduction)


@handles("smooth_l1_loss.default")
def smooth_l1(t, meta, x, y, reduction=1, beta=1.0):
    def term(ix):
        d = f"abs({x.at(ix)}-{y.at(ix)})"
        if beta == 0:
            return d
        b = literal(beta)
        square = f"0.5*{d}*{d}" if beta == 1 else f"0.5*{d}*{d}/{b}"
        return f"if_then_else({d}<{b},{square},{d}-{literal(0.5 * beta)})"

    return reduced(t, meta, x.shape, result(meta)[0], term, reduction)


@handles("huber_loss.default")
def huber(t, meta, x, y, reduction=1, delta=1.0):
    def term(ix):
        d = f"abs({x.at(ix)}-{y.at(ix)})"
        return f"if_then_else({d}<={literal(delta)},0.5*{d}*{d},{literal(delta)}*({d}-{literal(0.5 * delta)}))"

    return reduced(t, meta, x.shape, result(meta)[0], term, reduction)


@handles("kl_div.default")
def kl_div(t, meta, x, y, reduction=1, log_target=False):
    def term(ix):
        a, b = x.at(ix), y.at(ix)
        if log_target:
            return f"exp({b})*({b}-{a})"
        return f"if_then_else({b}==0,0,{b}*(log({b})-{a}))"

    return reduced(t, meta, x.shape, result(meta)[0], term, reduction)


def class_loss(t, meta, logs, target, weight, reduction, ignore):
    """-w[y] logs[n, y, ...]; classes equal to `ignore` count nothing."""
    dtype = result(meta)[0]
    work = t.accumulator(dtype)
    classes = logs.shape[1] if len(logs.shape) > 1 else logs.shape[0]
    places = target.shape
    can_ignore = 0 <= ignore < classes

    def at(ix):
        y = target.at(ix)
        return logs.at([y] if len(logs.shape) == 1 else [ix[0], y, *ix[1:]])

    def factor(ix):
        return None if weight is None else weight.at([target.at(ix)])

    def term(ix):
        text = f"{at(ix)}" if weight is None else f"{factor(ix)}*{at(ix)}"
        return f"if_then_else({target.at(ix)}!={literal(ignore)},-{text},0)"

    if reduction == 0:
        return t.map(dtype, places, term)
    total = t.reduce(work, [], places, lambda ix, r: term(r))
    if reduction == 2:
        return finish(t, total, dtype)
    del can_ignore
    one = lambda ix: "1" if weight is None else factor(ix)  # noqa: E731
    kept = t.reduce(work, [], places, lambda ix, r: f"if_then_else({target.at(r)}!={literal(ignore)},{one(r)},0)")
    return t.map(dtype, [], lambda ix: f"{total.at(ix)}/{kept.at(ix)}")


@handles("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
def nll_loss(t, meta, x, target, weight=None, reduction=1, ignore_index=-100):
    return class_loss(t, meta, x, target, weight, reduction, ignore_index)


@handles("cross_entropy_loss.default")
def cross_entropy(t, meta, x, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    from .translate import Unsupported

    if label_smoothing or target.dtype[0] != "i":
        raise Unsupported({"cross entropy with label smoothing or class probabilities"})
    axes = [1 if len(x.shape) > 1 else 0]
    work = t.accumulator(x.dtype)
    top = reduce_axes(t, x, axes, True, "max", x.dtype)
    total = reduce_axes(t, x, axes, True, "+", work, lambda a, ix: f"exp({a}-{element(top, ix)})")
    logs = t.map(work, x.shape, lambda ix: f"{x.at(ix)}-{element(top, ix)}-log({element(total, ix)})")
    return class_loss(t, meta, logs, target, weight, reduction, ignore_index)


@handles("cosine_similarity.default")
def cosine_similarity(t, meta, x, y, axis=1, eps=1e-8):
    dtype = result(meta)[0]
    axis = rank_axis(axis, len(x.shape))
    work = t.accumulator(dtype)
    dot = reduce_axes(t, x, [axis], False, "+", work, lambda a, ix: f"{a}*{y.at(ix)}")
    left = reduce_axes(t, x, [axis], False, "+", work, lambda a, ix: f"{a}*{a}")
    right = reduce_axes(t, y, [axis], False, "+", work, lambda a, ix: f"{a}*{a}")
    e = literal(eps)
    return t.map(
        dtype,
        dot.shape,
        lambda ix: f"{dot.at(ix)}/(max(sqrt({left.at(ix)}),{e})*max(sqrt({right.at(ix)}),{e}))",
    )


def distance(t, dtype, x, y, p, eps, keep=False):
    """The p-norm of x - y + eps over the last axis."""
    work, axes = t.accumulator(dtype), [len(x.shape) - 1]
    shift = f"+{literal(eps)}" if eps else ""
    if p == 2:
        total = reduce_axes(t, x, axes, keep, "+", work, lambda a, ix: f"({a}-{y.at(ix)}{shift})**2")
        return t.map(work, total.shape, lambda ix: f"sqrt({total.at(ix)})")
    total = reduce_axes(t, x, axes, keep, "+", work, lambda a, ix: f"abs({a}-{y.at(ix)}{shift})**{literal(p)}")
    return t.map(work, total.shape, lambda ix: f"{total.at(ix)}**(1/{literal(p)})")


@handles("pairwise_distance.default")
def pairwise_distance(t, meta, x, y, p=2.0, eps=1e-6, keep=False):
    dtype = result(meta)[0]
    return finish(t, distance(t, dtype, x, y, p, eps, keep), dtype)


@handles("triplet_margin_loss.default")
def triplet_margin_loss(t, meta, anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction=1):
    dtype = result(meta)[0]
    near = distance(t, dtype, anchor, positive, p, eps)
    far = distance(t, dtype, anchor, negative, p, eps)
    if swap:
        other = distance(t, dtype, positive, negative, p, eps)
        far = t.map(far.dtype, far.shape, lambda ix, far=far: f"min({far.at(ix)},{other.at(ix)})")
    return reduced(
        t, meta, near.shape, dtype, lambda ix: f"max({near.at(ix)}-{far.at(ix)}+{literal(margin)},0)", reduction
    )


@handles("glu.default")
def glu(t, meta, x, axis=-1):
    axis = rank_axis(axis, len(x.shape))
    half = x.shape[axis] // 2
    gate = x.view(x.shape[:axis] + [half] + x.shape[axis + 1 :], lambda ix: ix[:axis] + [ix[axis] + half] + ix[axis + 1 :])
    value = x.view(gate.shape, lambda ix: ix)
    return elementwise(t, meta, [value, gate], lambda a, g: f"{a}/(1+exp(-{g}))")


# -- attention, tables ----------------------------------------------------------------------------------------------


@handles("scaled_dot_product_attention.default")
def attention(t, meta, q, k, v, mask=None, dropout=0.0, causal=False, scale=None, enable_gqa=False):
    dtype, shape = result(meta)
    work = t.accumulator(dtype)
    if enable_gqa:  # query heads share key heads
        k, v = (share(x, q.shape[-3]) for x in (k, v))
    width, keys = q.shape[-1], k.shape[-2]
    factor = literal(1 / math.sqrt(width) if scale is None else scale)
    lead = shape[:-2]

    def batch(x, ix):
        own = ix[len(lead) - len(x.shape) + 2 : len(lead)]
        return [Ix.number(0) if n == 1 else i for n, i in zip(x.shape, own)]

    rows = [*lead, q.shape[-2], keys]
    scores = t.reduce(
        work, rows, [width], lambda ix, r: f"{q.at(batch(q, ix) + [ix[-2], r[0]])}*{k.at(batch(k, ix) + [ix[-1], r[0]])}"
    )

    def masked(ix):
        text = f"{scores.at(ix)}*{factor}"
        if causal:
            return f"if_then_else({ix[-1]}<={ix[-2]},{text},(-inf))"
        if mask is None:
            return text
        at = element(mask, ix)
        return f"if_then_else({at},{text},(-inf))" if mask.dtype == "bool" else f"{text}+{at}"

    weights = t.map(work, rows, masked)
    axis = [len(rows) - 1]
    top = reduce_axes(t, weights, axis, True, "max", work)
    total = reduce_axes(t, weights, axis, True, "+", work, lambda a, ix: f"exp({a}-{element(top, ix)})")
    shares = t.map(work, rows, lambda ix: f"exp({weights.at(ix)}-{element(top, ix)})/{element(total, ix)}")
    out = t.reduce(
        work, shape, [keys], lambda ix, r: f"{shares.at(ix[:-1] + [r[0]])}*{v.at(batch(v, ix) + [r[0], ix[-1]])}"
    )
    return finish(t, out, dtype)


def share(x, heads):
    each = heads // x.shape[-3]
    shape = [*x.shape[:-3], heads, *x.shape[-2:]]
    return x.view(shape, lambda ix: [*ix[:-3], ix[-3].quotient(each), *ix[-2:]])


@handles("embedding.default")
def embedding(t, meta, table, index, *rest):
    dtype, shape = result(meta)
    n = len(index.shape)
    return t.map(dtype, shape, lambda ix: table.at([index.at(ix[:n]), ix[n]]))


@handles("index_select.default")
def index_select(t, meta, x, axis, index):
    dtype, shape = result(meta)
    axis = rank_axis(axis, len(x.shape))
    return t.map(dtype, shape, lambda ix: x.at(ix[:axis] + [index.at([ix[axis]])] + ix[axis + 1 :]))


@handles("prelu.default", "_prelu_kernel.default")
def prelu(t, meta, x, weight):
    dtype, shape = result(meta)

    def form(ix):
        w = weight.at([Ix.number(0) if weight.shape[0] == 1 else ix[1]]) if len(weight.shape) == 1 else element(weight, ix)
        return f"if_then_else({x.at(ix)}>=0,{x.at(ix)},{w}*{x.at(ix)})"

    return t.map(dtype, shape, form)


@handles("repeat.default")
def repeat(t, meta, x, counts):
    dtype, shape = result(meta)
    lead = len(shape) - len(x.shape)
    return t.map(dtype, shape, lambda ix: x.at([i.remainder(n) for i, n in zip(ix[lead:], x.shape)]))
