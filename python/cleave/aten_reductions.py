"""Rows of the table in aten.py: reductions, norms, products, attention, convolution and pooling."""

from __future__ import annotations

import math

import torch

from .aten import TABLE, refuse, row

# -- reductions -------------------------------------------------------------------------------------------------------

def _axes(e, x, axes) -> dict:
    if axes is None or (isinstance(axes, (list, tuple)) and not axes) or e.rank(x) == 0:
        return {}
    return {"axes": [e.axis(a, e.rank(x)) for a in (axes if isinstance(axes, (list, tuple)) else [axes])]}


def _reduction(op):
    def emit(e, x, axes=None, keepdim=False, **_):
        if e.rank(x) == 0:
            return e.value(x, e.dtype())
        return e.add(op, e.value(x, e.dtype()), keepdims=bool(keepdim), **_axes(e, x, axes))

    return emit


for _name, _op in {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin"}.items():
    TABLE[f"aten.{_name}"] = _reduction(_op)


@row("aten.prod")
def _prod(e, x, axis=None, keepdim=False, **_):
    return _reduction("prod")(e, x, axis, keepdim)


@row("aten.any", "aten.all")
def _any_all(e, x, axes=None, keepdim=False):
    return e.add(e.node.target._overloadpacket.__name__, e.value(x, "bool"), keepdims=bool(keepdim), **_axes(e, x, axes))


@row("aten.max", "aten.min")
def _max_min(e, x, *args):
    name = e.node.target._overloadpacket.__name__
    if not args:
        return e.add(f"a{name}", e.value(x))
    if isinstance(args[0], torch.fx.Node) and e.values.get(args[0]) is not None:
        return e.add(name, e.value(x, e.dtype()), e.value(args[0], e.dtype()))
    v = e.value(x)
    if e.rank(x) == 0:
        return v, e.literal(0, "i64")
    axis, keep = e.axis(args[0], e.rank(x)), bool(args[1]) if len(args) > 1 else False
    return (e.add(f"a{name}", v, axes=[axis], keepdims=keep), e.add(f"arg{name}", v, axis=axis, keepdims=keep))


@row("aten.argmax", "aten.argmin")
def _arg(e, x, axis=None, keepdim=False):
    name = e.node.target._overloadpacket.__name__
    if e.rank(x) == 0:
        return e.literal(0, "i64")
    if axis is None:
        total = e.reshape(e.value(x), [math.prod(e.shape(x))]) if all(isinstance(n, int) for n in e.shape(x)) else None
        if total is None or keepdim:
            raise refuse(f"aten.{name} over everything")
        return e.add(name, total, axis=0)
    return e.add(name, e.value(x), axis=e.axis(axis, e.rank(x)), keepdims=bool(keepdim))


@row("aten.topk")
def _topk(e, x, k, axis=-1, largest=True, is_sorted=True):
    if e.rank(x) == 0:
        both = e.add("topk", e.reshape(e.value(x), [1]), k=e.number(k), axis=0, largest=bool(largest))
        return tuple(e.reshape(v, e.shape()) for v in both)
    return e.add("topk", e.value(x), k=e.number(k), axis=e.axis(axis, e.rank(x)), largest=bool(largest))


@row("aten.var", "aten.var_mean", "aten.std")
def _var(e, x, axes=None, *rest, correction=None, keepdim=False, unbiased=None):
    overload = e.node.target._overloadname
    if overload != "correction":
        if isinstance(axes, bool):
            axes, unbiased = None, axes
        elif rest:
            unbiased, keepdim = rest[0], rest[1] if len(rest) > 1 else keepdim
        correction = 1 if unbiased is None or unbiased else 0
    elif correction is None:
        correction = 1
    v, named = e.value(x), _axes(e, x, axes)
    mean, variance = e.add("moments", v, keepdims=bool(keepdim), **named)
    if correction:
        shape = e.shape(x)
        axes = named.get("axes", list(range(len(shape))))
        count = "1"
        for a in axes:
            count = f"{count} * ({shape[a]})"
        dtype = e.builder.dtype(variance)
        n = e.add("extent", of=[count], dtype=dtype)
        left = e.add("max", e.add("sub", n, e.literal(correction, dtype)), e.literal(0, dtype))
        variance = e.add("mul", variance, e.add("div", n, left))
    name = e.node.target._overloadpacket.__name__
    if name == "std":
        return e.add("sqrt", variance)
    return (variance, mean) if name == "var_mean" else variance


@row("aten.cumsum", "aten.cumprod")
def _cumulative(e, x, axis, dtype=None):
    if e.rank(x) == 0:
        return e.value(x, e.dtype())
    return e.add(e.node.target._overloadpacket.__name__, e.value(x, e.dtype()), axis=e.axis(axis, e.rank(x)))


@row("aten.logsumexp")
def _logsumexp(e, x, axes, keepdim=False):
    if e.rank(x) == 0:
        return e.value(x, e.dtype())
    return e.add("logsumexp", e.value(x, e.dtype()), keepdims=bool(keepdim), **_axes(e, x, axes))


@row("aten.linalg_vector_norm")
def _vector_norm(e, x, order=2, axes=None, keepdim=False, *, dtype=None):
    result = e.dtype()
    wide = "f32" if result in ("f16", "bf16") else result  # powers of 16-bit numbers leave their range
    v = e.add("abs", e.value(x, wide))
    if e.rank(x) == 0 and order != 0:
        return e.cast(v, result)
    total = lambda op, y: y if e.rank(x) == 0 else e.add(op, y, keepdims=bool(keepdim), **_axes(e, x, axes))
    if order in (math.inf, -math.inf):
        v = total("amax" if order > 0 else "amin", v)
    elif order == 0:
        v = total("sum", e.cast(e.add("ne", v, e.literal(0, wide)), wide))
    elif order == 1:
        v = total("sum", v)
    elif order == 2:
        v = e.add("sqrt", total("sum", e.add("square", v)))
    else:
        v = e.add("pow", total("sum", e.add("pow", v, e.literal(order, wide))), e.literal(1 / order, wide))
    return e.cast(v, result)


@row("aten.softmax", "aten._softmax", "aten._safe_softmax")
def _softmax(e, x, axis, *_, **__):
    named = {"empty": "zero"} if e.node.target._overloadpacket.__name__ == "_safe_softmax" else {}
    if e.rank(x) == 0:
        return e.reshape(e.add("softmax", e.reshape(e.value(x, e.dtype()), [1]), axis=0, **named), [])
    return e.add("softmax", e.value(x, e.dtype()), axis=e.axis(axis, e.rank(x)), **named)


@row("aten.log_softmax", "aten._log_softmax")
def _log_softmax(e, x, axis, *_, **__):
    if e.rank(x) == 0:
        return e.reshape(e.add("log_softmax", e.reshape(e.value(x, e.dtype()), [1]), axis=0), [])
    return e.add("log_softmax", e.value(x, e.dtype()), axis=e.axis(axis, e.rank(x)))


# -- norms ------------------------------------------------------------------------------------------------------------

def _norm(e, op, x, normalized, weight, bias, eps):
    rank = e.rank(x)
    axes = list(range(rank - len(normalized), rank))
    v = e.add(op, e.value(x), axes=axes, eps=float(eps))
    if weight is not None:
        v = e.add("mul", v, e.value(weight, e.dtype()))
    return e.add("add", v, e.value(bias, e.dtype())) if bias is not None else v


@row("aten.layer_norm", "aten.native_layer_norm")
def _layer_norm(e, x, normalized, weight=None, bias=None, eps=1e-5, *_):
    v = _norm(e, "layer_norm", x, normalized, weight, bias, eps)
    return v if e.node.target._overloadpacket.__name__ == "layer_norm" else (v, None, None)


@row("aten.rms_norm")
def _rms_norm(e, x, normalized, weight=None, eps=None):
    if eps is None:
        eps = torch.finfo(e.result().dtype).eps
    return _norm(e, "rms_norm", x, normalized, weight, None, eps)


@row("aten.group_norm", "aten.native_group_norm")
def _group_norm(e, x, *args):
    if e.node.target._overloadpacket.__name__ == "group_norm":
        groups, weight, bias, eps = (list(args) + [None] * 4)[:4]
        eps = 1e-5 if eps is None else eps
    else:
        weight, bias, _, _, _, groups, eps = args
    v = e.add("group_norm", e.value(x), groups=groups, eps=float(eps))
    shape = [-1 if i == 1 else 1 for i in range(e.rank(x))]
    for op, p in (("mul", weight), ("add", bias)):
        if p is not None:
            v = e.add(op, v, e.reshape(e.value(p, e.dtype()), [e.shape(p)[0] if n == -1 else n for n in shape]))
    return v if e.node.target._overloadpacket.__name__ == "group_norm" else (v, None, None)


@row("aten.batch_norm", "aten._native_batch_norm_legit_no_training", "aten.cudnn_batch_norm", "aten._batch_norm_no_update",
     "aten.native_batch_norm", "aten._native_batch_norm_legit")
def _batch_norm(e, x, weight, bias, *rest):
    name, dtype, rank = e.node.target._overloadpacket.__name__, e.dtype(), e.rank(x)
    mean, variance = (None, None) if e.node.target._overloadname == "no_stats" else rest[:2]
    rest = rest if e.node.target._overloadname == "no_stats" else rest[2:]
    named = "no_training" in name or "no_update" in name  # these do not say whether they train
    training, eps = (False, rest[1]) if named else (rest[0], rest[2])
    if mean is not None and training:
        raise refuse(f"aten.{name} in training")
    by_channel = lambda p: e.reshape(e.value(p, dtype), [e.shape(p)[0] if i == 1 else 1 for i in range(rank)])
    v = e.value(x, dtype)
    if mean is None:  # statistics of the batch
        centre, spread = e.add("moments", v, axes=[i for i in range(rank) if i != 1], keepdims=True)
    else:
        centre, spread = by_channel(mean), by_channel(variance)
    v = e.add("mul", e.add("sub", v, centre), e.add("rsqrt", e.add("add", spread, e.literal(eps, dtype))))
    if weight is not None:
        v = e.add("mul", v, by_channel(weight))
    if bias is not None:
        v = e.add("add", v, by_channel(bias))
    return v if name == "batch_norm" else (v, None, None)


# -- contractions -----------------------------------------------------------------------------------------------------

def _product(e, x, y, a_rank, b_rank, dtype):
    """torch.matmul's rules."""
    lead = [f"b{i}" for i in range(max(a_rank, b_rank) - 2)]
    a = (lead[len(lead) - (a_rank - 2):] + ["i", "k"]) if a_rank >= 2 else ["k"]
    b = (lead[len(lead) - (b_rank - 2):] + ["k", "j"]) if b_rank >= 2 else ["k"]
    out = lead + (["i"] if a_rank >= 2 else []) + (["j"] if b_rank >= 2 else [])
    return e.add("contract", e.cast(x, dtype), e.cast(y, dtype), spec=f"{' '.join(a)}, {' '.join(b)} -> {' '.join(out)}")


@row("aten.mm", "aten.bmm", "aten.matmul", "aten.mv", "aten.dot")
def _matmul(e, x, y):
    return _product(e, e.value(x), e.value(y), e.rank(x), e.rank(y), e.dtype())


@row("aten.linear")
def _linear(e, x, weight, bias=None):
    lead = [f"b{i}" for i in range(e.rank(x) - 1)]
    out = ["j"] if e.rank(weight) == 2 else []
    v = e.add("contract", e.value(x), e.value(weight, e.dtype()),
              spec=f"{' '.join(lead + ['k'])}, {' '.join(out + ['k'])} -> {' '.join(lead + out)}")
    return e.add("add", v, e.value(bias, e.dtype())) if bias is not None else v


@row("aten.addmm", "aten.baddbmm", "aten.addmv")
def _addmm(e, c, x, y, beta=1, alpha=1):
    dtype = e.dtype()
    v = _product(e, e.value(x), e.value(y), e.rank(x), e.rank(y), dtype)
    if alpha != 1:
        v = e.add("mul", v, e.literal(alpha, dtype))
    if beta == 0:
        return v
    c = e.value(c, dtype)
    return e.add("add", v, c if beta == 1 else e.add("mul", c, e.literal(beta, dtype)))


@row("aten.addcmul")
def _addcmul(e, x, a, b, value=1):
    dtype = e.dtype()
    p = e.add("mul", e.value(a, dtype), e.value(b, dtype))
    return e.add("add", e.value(x, dtype), e.add("mul", p, e.literal(value, dtype)) if value != 1 else p)


@row("aten.lerp")
def _lerp(e, x, y, weight):
    dtype = e.dtype()
    a = e.value(x, dtype)
    return e.add("add", a, e.add("mul", e.value(weight, dtype), e.add("sub", e.value(y, dtype), a)))


@row("aten.scaled_dot_product_attention", "aten._scaled_dot_product_flash_attention_for_cpu")
def _sdpa(e, q, k, v, *rest, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    name = e.node.target._overloadpacket.__name__
    if name == "scaled_dot_product_attention":
        names = ["attn_mask", "dropout_p", "is_causal"]
    else:
        names = ["dropout_p", "is_causal"]
    given = dict(zip(names, rest))
    attn_mask, dropout_p = given.get("attn_mask", attn_mask), given.get("dropout_p", dropout_p)
    is_causal = given.get("is_causal", is_causal)
    if dropout_p:
        raise refuse(f"aten.{name} with dropout")
    operands = [e.value(q), e.value(k), e.value(v)]
    rank = e.rank(q)
    if rank == 3:  # no axis of heads
        operands = [e.add("unsqueeze", x, axes=[0]) for x in operands]
    attributes = {"empty": "zero"}
    if is_causal:
        attributes["causal"] = "start"
    if scale is not None:
        attributes["scale"] = float(scale)
    if attn_mask is not None:
        mask = e.value(attn_mask) if e.dtype(attn_mask) == "bool" else e.value(attn_mask, e.dtype(q))
        operands.append(mask)
    out = e.add("sdpa", *operands, **attributes)
    if rank == 3:
        out = e.add("squeeze", out, axes=[0])
    return out if name == "scaled_dot_product_attention" else (out, None)


def _per_axis(values, n, default):
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    return [default] * n if not values else values * n if len(values) == 1 else values


@row("aten.convolution", "aten.conv1d", "aten.conv2d", "aten.conv3d", "aten._convolution")
def _convolution(e, x, weight, bias=None, stride=1, padding=0, dilation=1, *rest):
    """A contraction over sliding windows."""
    name = e.node.target._overloadpacket.__name__
    if name in ("convolution", "_convolution"):
        transposed, _, groups = rest[0], rest[1], rest[2]
    else:
        transposed, groups = False, rest[0] if rest else 1
    if transposed:
        raise refuse("aten.convolution, transposed")
    n = e.rank(weight) - 2
    if e.rank(x) != n + 2:
        raise refuse(f"aten.{name} without a batch axis")
    kernel = e.shape(weight)[2:]
    stride, dilation = _per_axis(stride, n, 1), _per_axis(dilation, n, 1)
    if isinstance(padding, str):
        if padding == "valid":
            low = high = [0] * n
        else:
            total = [d * (k - 1) for d, k in zip(dilation, kernel)]
            low, high = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        low = high = _per_axis(padding, n, 0)
    v = e.add("window", e.value(x), axes=list(range(2, n + 2)), sizes=kernel, strides=stride, dilations=dilation, low=low,
              high=high)
    places, taps = [f"p{i}" for i in range(n)], [f"t{i}" for i in range(n)]
    w, dtype = e.value(weight, e.dtype()), e.dtype()
    shape = e.shape()
    if groups == 1:
        out = e.add("contract", v, w, spec=f"b c {' '.join(places + taps)}, o c {' '.join(taps)} -> b o {' '.join(places)}")
    else:
        channels, outs = e.shape(x)[1], e.shape(weight)[0]
        full = list(e.builder.shape(v))
        v = e.reshape(v, [full[0], groups, channels // groups] + full[2:])
        w = e.reshape(w, [groups, outs // groups] + e.shape(weight)[1:])
        out = e.add("contract", v, w,
                    spec=f"b g c {' '.join(places + taps)}, g o c {' '.join(taps)} -> b g o {' '.join(places)}")
        out = e.reshape(out, shape)
    if bias is not None:
        out = e.add("add", out, e.reshape(e.value(bias, dtype), [e.shape(bias)[0]] + [1] * n))
    return out


def _pool_window(e, x, n, kernel, stride, padding, dilation, ceil, value):
    kernel = _per_axis(kernel, n, 1)
    stride = _per_axis(stride, n, 1) if stride else kernel
    low = _per_axis(padding, n, 0)
    rank = e.rank(x)
    axes = list(range(rank - n, rank))
    v = e.add("window", x if isinstance(x, int) else e.value(x), axes=axes, sizes=kernel, strides=stride,
              dilations=_per_axis(dilation, n, 1), low=low, high=low, ceil=bool(ceil), value=value)
    return v, list(range(rank, rank + n)), kernel, stride, low


@row("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d", "aten.max_pool2d_with_indices")
def _max_pool(e, x, kernel, stride=(), padding=0, dilation=1, ceil=False):
    name = e.node.target._overloadpacket.__name__
    n = int(name[8])
    v, taps, *_ = _pool_window(e, x, n, kernel, stride, padding, dilation, ceil, -math.inf)
    out = e.add("amax", v, axes=taps)
    return (out, None) if name.endswith("indices") else out


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
    spatial = e.shape(x)[e.rank(x) - n:]
    ones = e.broadcast(e.literal(1, dtype), spatial)
    if include_pad and any(low):
        ones = e.add("pad", ones, low=low, high=low, value=1.0)
        low = [0] * n
    counted = e.add("window", ones, axes=list(range(n)), sizes=kernel, strides=stride, dilations=[1] * n, low=low, high=low,
                    ceil=bool(ceil), value=0.0)
    return e.add("div", total, e.add("sum", counted, axes=list(range(n, 2 * n))))


@row("aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten._adaptive_avg_pool2d", "aten.adaptive_avg_pool3d")
def _adaptive_avg_pool(e, x, sizes):
    sizes = e.ints(sizes)
    n, rank = len(sizes), e.rank(x)
    spatial = e.shape(x)[rank - n:]
    axes = list(range(rank - n, rank))
    if sizes == [1] * n:
        return e.add("mean", e.value(x), axes=axes, keepdims=True)
    if any(isinstance(s, str) or s % t for s, t in zip(spatial, sizes)):
        raise refuse("aten.adaptive_avg_pool with sizes that do not divide the input's")
    kernel = [s // t for s, t in zip(spatial, sizes)]
    v, taps, *_ = _pool_window(e, x, n, kernel, kernel, 0, 1, False, 0.0)
    return e.add("mean", v, axes=taps)
