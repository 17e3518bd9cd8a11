"""Rows of the table in aten.py: convolution and pooling, which are reductions of sliding windows."""

from __future__ import annotations

import math

from .aten import NOT_MADE, lowest as _lowest, refuse, row


def _per_axis(values, n, default):
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    return [default] * n if not values else values * n if len(values) == 1 else values


def _stretched(e, v, axis, stride):
    """v with stride - 1 zeros behind each element of an axis, the last one too: less of them, and an axis of no elements would be
    shorter than 0."""
    shape = list(e.builder.shape(v))
    if stride == 1:
        return v
    low = [0] * (len(shape) + 1)
    v = e.add("pad", e.add("unsqueeze", v, axes=[axis + 1]), low=low, high=low[:axis + 1] + [stride - 1] + low[axis + 2:])
    return e.reshape(v, shape[:axis] + [f"({shape[axis]}) * {stride}"] + shape[axis + 1:])


@row("aten.convolution", "aten.conv1d", "aten.conv2d", "aten.conv3d", "aten._convolution")
def _convolution(e, x, weight, bias=None, stride=1, padding=0, dilation=1, *rest):
    """A contraction over sliding windows; a transposed one is that of a stretched operand with turned weights."""
    name = e.node.target._overloadpacket.__name__
    transposed, extra, groups = False, 0, rest[0] if rest else 1
    if name in ("convolution", "_convolution"):
        transposed, extra, groups = rest[0], rest[1], rest[2]
    n, dtype, shape = e.rank(weight) - 2, e.dtype(), e.shape()
    v, w = e.value(x), e.value(weight)
    if e.rank(x) == n + 1:  # no batch axis
        v, shape = e.add("unsqueeze", v, axes=[0]), [1] + shape
    kernel, spatial = e.shape(weight)[2:], list(range(2, n + 2))
    stride, dilation = _per_axis(stride, n, 1), _per_axis(dilation, n, 1)
    if isinstance(padding, str):
        total = [0] * n if padding == "valid" else [d * (k - 1) for d, k in zip(dilation, kernel)]
        low, high = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        low = high = _per_axis(padding, n, 0)
    if transposed:
        reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
        high = [r - h + o - (s - 1) for r, h, o, s in zip(reach, high, _per_axis(extra, n, 0), stride)]
        low = [r - l for r, l in zip(reach, low)]
        for axis, step in zip(spatial, stride):
            v = _stretched(e, v, axis, step)
        if min(low + high) < 0:  # elements are taken away
            v = e.add("pad", v, low=[0, 0] + low, high=[0, 0] + high)
            low = high = [0] * n
        stride = [1] * n
        # [groups * ins, outs, ..] -> [groups * outs, ins, ..]
        ins, outs = e.shape(weight)[0] // groups, e.shape(weight)[1]
        w = e.add("flip", w, axes=spatial)
        w = e.reshape(w, [groups, ins, outs] + kernel)
        w = e.add("transpose", w, perm=[0, 2, 1] + [a + 1 for a in spatial])
        w = e.reshape(w, [groups * outs, ins] + kernel)
    v = e.add("window", v, axes=spatial, sizes=kernel, strides=stride, dilations=dilation, low=low, high=high)
    places, taps = [f"p{i}" for i in range(n)], [f"t{i}" for i in range(n)]
    if groups == 1:
        out = e.add("contract", v, w,
                    spec=f"b c {' '.join(places + taps)}, o c {' '.join(taps)} -> b o {' '.join(places)}")
    else:
        channels, outs = e.builder.shape(v)[1], e.builder.shape(w)[0]
        full = list(e.builder.shape(v))
        v = e.reshape(v, [full[0], groups, channels // groups] + full[2:])
        w = e.reshape(w, [groups, outs // groups] + list(e.builder.shape(w))[1:])
        out = e.add("contract", v, w,
                    spec=f"b g c {' '.join(places + taps)}, g o c {' '.join(taps)} -> b g o {' '.join(places)}")
        out = e.reshape(out, shape)
    if bias is not None:
        out = e.add("add", out, e.reshape(e.value(bias, dtype), [e.shape(bias)[0]] + [1] * n))
    return e.reshape(out, e.shape()) if e.rank(x) == n + 1 else out


def _pool_window(e, x, n, kernel, stride, padding, dilation, ceil, value):
    kernel = _per_axis(kernel, n, 1)
    stride = _per_axis(stride, n, 1) if stride else kernel
    low = _per_axis(padding, n, 0)
    rank = e.rank(x)
    axes = list(range(rank - n, rank))
    v = e.add("window", x if isinstance(x, int) else e.value(x), axes=axes, sizes=kernel, strides=stride,
              dilations=_per_axis(dilation, n, 1), low=low, high=low, ceil=bool(ceil), value=value)
    return v, list(range(rank, rank + n)), kernel, stride, low


def _line(e, n, axis, rank):
    """0, 1, .. along one of `rank` axes."""
    return e.add("iota", shape=[1] * axis + [n] + [1] * (rank - 1 - axis), axis=axis, dtype="i64")


def _inside(e, coordinates, extents):
    """Whether a tap lies in the operand, and its position there among all elements of the spatial axes."""
    valid = at = None
    for c, n in zip(coordinates, extents):
        size = e.add("extent", of=[n], dtype="i64")
        ok = e.add("logical_and", e.fn("ge", c, 0.0), e.add("lt", c, size))
        valid = ok if valid is None else e.add("logical_and", valid, ok)
        at = c if at is None else e.add("add", e.add("mul", at, size), c)
    return valid, at


def _place_of_largest(e, v, best, valid, at, taps):
    """The position of a maximum over the taps: the first one, of NaNs the last one, as eager's."""
    best = e.reshape(best, list(e.builder.shape(best)) + [1] * len(taps))
    if e.builder.dtype(v)[0] not in "fb":
        hit = e.add("logical_and", valid, e.add("eq", v, best))
        return e.add("amin", e.fn("where", hit, at, 2.0**62), axes=taps)
    first = e.add("amin", e.fn("where", e.add("logical_and", valid, e.add("eq", v, best)), at, 2.0**62), axes=taps)
    last = e.add("amax", e.fn("where", e.add("logical_and", valid, e.add("isnan", v)), at, -1.0), axes=taps)
    return e.add("where", e.fn("ge", last, 0.0), last, first)


@row("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d", "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
def _max_pool(e, x, kernel, stride=(), padding=0, dilation=1, ceil=False):
    name = e.node.target._overloadpacket.__name__
    n, rank = int(name[8]), e.rank(x)
    lowest = _lowest(e.dtype(x))
    v, taps, kernel, stride, low = _pool_window(e, x, n, kernel, stride, padding, dilation, ceil, lowest)
    out = e.add("amax", v, axes=taps)
    if not name.endswith("indices"):
        return out
    if not e.wanted(1):
        return out, NOT_MADE
    shape, coordinates = list(e.builder.shape(v)), []
    for i, (step, far, pad) in enumerate(zip(stride, _per_axis(dilation, n, 1), low)):
        where, tap = (_line(e, shape[a], a, len(shape)) for a in (rank - n + i, rank + i))
        c = e.add("add", e.fn("mul", where, float(step)), e.fn("mul", tap, float(far)))
        coordinates.append(e.fn("add", c, float(-pad)))
    return out, _place_of_largest(e, v, out, *_inside(e, coordinates, e.shape(x)[rank - n:]), taps)


@row("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def _avg_pool(e, x, kernel, stride=(), padding=0, ceil=False, include_pad=True, divisor=None):
    name = e.node.target._overloadpacket.__name__
    n = int(name[8])
    v, taps, kernel, stride, low = _pool_window(e, x, n, kernel, stride, padding, 1, ceil, 0.0)
    total, dtype = e.add("sum", v, axes=taps), e.dtype()
    if divisor:
        return e.add("div", total, e.literal(divisor, dtype))
    if not any(low) and not ceil:
        return e.add("div", total, e.literal(math.prod(kernel), dtype))
    # How many elements each window holds: of the input, or of the input with its padding.
    count, rank = None, e.rank(x)
    for i in range(n):
        axis = rank - n + i
        size = e.value(e.meta(x).shape[axis], "i64")
        first = e.add("iota", shape=[e.builder.shape(total)[axis]] + [1] * (n - 1 - i), axis=0, dtype="i64")
        first = e.fn("add", e.fn("mul", first, float(stride[i])), float(-low[i]))
        behind = e.fn("add", first, float(kernel[i]))
        if include_pad:
            behind = e.add("min", behind, e.fn("add", size, float(low[i])))
        else:
            first, behind = e.fn("max", first, 0.0), e.add("min", behind, size)
        held = e.add("sub", behind, first)
        count = held if count is None else e.add("mul", count, held)
    return e.add("div", total, e.cast(count, dtype))


def _adaptive_taps(e, x, sizes):
    """Windows of differing lengths: x [.., n, ..] as [.., results, .., taps, ..], which taps count, and their positions."""
    rank, v = e.rank(x), e.value(x)
    first, coordinates, ends = rank - len(sizes), [], []
    spatial = e.shape(x)[first:]
    if any(isinstance(n, str) for n in spatial):
        raise refuse(f"{e.node.target} of open extents")
    for i, (n, t) in enumerate(zip(spatial, sizes)):
        taps = max(-(-(p + 1) * n // t) - p * n // t for p in range(t)) if t else 1
        place = e.add("iota", shape=[t, 1], axis=0, dtype="i64")
        start = e.fn("floordiv", e.fn("mul", place, float(n)), float(t))
        end = e.fn("floordiv", e.fn("add", e.fn("mul", place, float(n)), float(n + t - 1)), float(t))
        at = e.add("add", start, e.add("iota", shape=[1, taps], axis=1, dtype="i64"))
        v = e.add("gather", v, at, axis=first + i)
        wide = len(e.builder.shape(v))
        v = e.add("transpose", v, perm=[a for a in range(wide) if a != first + i + 1] + [first + i + 1])
        shape = [1] * (2 * len(sizes))
        shape[i], shape[len(sizes) + i] = t, taps
        coordinates.append(e.reshape(at, shape))
        ends.append(e.reshape(end, shape[:len(sizes)] + [1] * len(sizes)))
    valid, at = _inside(e, coordinates, spatial)
    for c, end in zip(coordinates, ends):
        valid = e.add("logical_and", valid, e.add("lt", c, end))
    return v, valid, at, list(range(rank, rank + len(sizes)))


@row("aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten._adaptive_avg_pool2d", "aten.adaptive_avg_pool3d",
     "aten._adaptive_avg_pool3d")
def _adaptive_avg_pool(e, x, sizes):
    n, rank, dtype = len(sizes), e.rank(x), e.dtype()
    spatial = e.shape(x)[rank - n:]
    sizes = e.shape()[rank - n:]
    axes = list(range(rank - n, rank))
    if sizes == [1] * n:
        return e.add("mean", e.value(x), axes=axes, keepdims=True)
    if all(isinstance(s, int) and t and s % t == 0 for s, t in zip(spatial, sizes)):
        kernel = [s // t for s, t in zip(spatial, sizes)]
        v, taps, *_ = _pool_window(e, x, n, kernel, kernel, 0, 1, False, 0.0)
        return e.add("mean", v, axes=taps)
    v, valid, _, taps = _adaptive_taps(e, x, sizes)
    wide = "f32" if dtype in ("f16", "bf16") else dtype
    total = e.add("sum", e.fn("where", valid, e.cast(v, wide), 0.0), axes=taps)
    count = e.add("sum", e.cast(valid, wide), axes=list(range(n, 2 * n)))
    return e.cast(e.add("div", total, count), dtype)


@row("aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def _adaptive_max_pool(e, x, sizes):
    v, valid, at, taps = _adaptive_taps(e, x, e.shape()[e.rank(x) - len(sizes):])
    out = e.add("amax", e.fn("where", valid, v, _lowest(e.dtype(x))), axes=taps)
    return out, _place_of_largest(e, v, out, valid, at, taps) if e.wanted(1) else NOT_MADE
