"""Rows of the table in aten.py: reductions, norms, products, attention."""

from __future__ import annotations

import math

import torch

from .aten import NOT_MADE, TABLE, extent, refuse, row

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
    v = e.add(e.node.target._overloadpacket.__name__, e.value(x, "bool"), keepdims=bool(keepdim), **_axes(e, x, axes))
    return e.cast(v, e.dtype())


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


@row("aten.cummax", "aten.cummin")
def _running_extremum(e, x, axis):
    if e.rank(x) == 0:
        return e.value(x), e.literal(0, "i64")
    axis = e.axis(axis, e.rank(x))
    kind, largest = e.dtype(x), e.node.target._overloadpacket.__name__ == "cummax"
    real = kind[0] in "fb" and kind != "bool"
    turned = lambda t: t if largest else e.add("neg", t) if real else e.fn("sub", e.add("neg", t), 1.0)  # -1 - x, in range for all integers
    v = turned(e.cast(e.value(x), "u8" if kind == "bool" else kind))
    top = e.add("cummax", v, axis=axis)
    out = e.cast(turned(top), kind)
    if not e.wanted(1):
        return out, NOT_MADE
    # The last place so far that held the extremum of its time, or NaN.
    record = e.add("logical_or", e.add("ge", v, top), e.add("isnan", v)) if real else e.add("ge", v, top)
    places = e.add("iota", shape=list(e.builder.shape(v)), axis=axis, dtype="i64")
    return out, e.add("cummax", e.fn("where", record, places, 0.0), axis=axis)


@row("aten.logsumexp")
def _logsumexp(e, x, axes, keepdim=False):
    if e.rank(x) == 0:
        return e.value(x, e.dtype())
    return e.add("logsumexp", e.value(x, e.dtype()), keepdims=bool(keepdim), **_axes(e, x, axes))


def norm(e, v, order, axes, keepdim, dtype):
    """The `order` norm over axes, in `dtype`; powers of 16-bit numbers leave their range."""
    wide = "f32" if dtype in ("f16", "bf16") else dtype
    v = e.add("abs", e.cast(v, wide))
    if not e.builder.shape(v):
        return e.cast(e.fn("ne", v, 0.0) if order == 0 else v, dtype)
    total = lambda op, y: e.add(op, y, axes=axes, keepdims=bool(keepdim))
    if order in (math.inf, -math.inf):
        v = total("amax" if order > 0 else "amin", v)
    elif order == 0:
        v = total("sum", e.cast(e.fn("ne", v, 0.0), wide))
    elif order == 1:
        v = total("sum", v)
    elif order == 2:
        v = e.add("sqrt", total("sum", e.add("square", v)))
    else:
        v = e.fn("pow", total("sum", e.fn("pow", v, float(order))), 1 / order)
    return e.cast(v, dtype)


@row("aten.linalg_vector_norm")
def _vector_norm(e, x, order=2, axes=None, keepdim=False, *, dtype=None):
    return norm(e, e.value(x, e.dtype()), order, _axes(e, x, axes).get("axes", list(range(e.rank(x)))), keepdim, e.dtype())


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
    if e.node.target._overloadpacket.__name__ == "layer_norm":
        return v
    rank = e.rank(x)
    return (v, *_statistics(e, e.value(x), list(range(rank - len(normalized), rank)), eps))


def _statistics(e, v, axes, eps) -> tuple:
    """The mean and the reciprocal of the deviation, which a norm divides by; axes keep an extent of 1."""
    if not any(e.wanted(i) for i in (1, 2)):
        return NOT_MADE, NOT_MADE
    own = e.dtype_name(e.result(1).dtype)
    v = e.cast(v, "f32" if e.builder.dtype(v) in ("f16", "bf16") else e.builder.dtype(v))
    mean, variance = e.add("moments", v, axes=axes, keepdims=True)
    shape = [extent(n) for n in e.result(1).shape]
    return tuple(e.cast(e.reshape(t, shape), own) for t in (mean, e.add("rsqrt", e.fn("add", variance, float(eps)))))


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
    if e.node.target._overloadpacket.__name__ == "group_norm":
        return v
    grouped = e.reshape(e.value(x), [e.shape(x)[0], groups, f"({e.shape(x)[1]}) // {groups}"] + e.shape(x)[2:])
    return (v, *_statistics(e, grouped, list(range(2, e.rank(x) + 1)), eps))


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
    return v if name == "batch_norm" else (v, NOT_MADE, NOT_MADE)


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


@row("aten.addmm", "aten.baddbmm", "aten.addmv", "aten.addbmm")
def _addmm(e, c, x, y, beta=1, alpha=1):
    dtype = e.dtype()
    v = _product(e, e.value(x), e.value(y), e.rank(x), e.rank(y), dtype)
    if e.node.target._overloadpacket.__name__ == "addbmm":
        v = e.add("sum", v, axes=[0])
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
    return out if name == "scaled_dot_product_attention" else (out, NOT_MADE)
