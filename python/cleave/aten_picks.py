"""Rows of the table in aten.py: what picks elements by position, puts them there, or sorts them.

What puts elements somewhere is written from the side of the result: each element asks which updates are meant for it, so the
cost is the number of results times the number of updates along the axes that are written."""

from __future__ import annotations

import math

import torch

from .aten import bounds, highest, lowest, plus, refuse, row


def product(extents):
    """The product of extents, as a number or a text."""
    if all(isinstance(n, int) for n in extents):
        return math.prod(extents)
    return " * ".join(f"({n})" for n in extents)


def _size(e, extent):
    return e.add("extent", of=[extent], dtype="i64")


def _iota(e, shape, axis):
    return e.add("iota", shape=list(shape), axis=axis, dtype="i64")


def _positions(e, index, extent):
    """Indices in i64, with those below zero counted from the end."""
    at = e.value(index, "i64")
    return e.fn("where", e.fn("lt", at, 0.0), e.fn("add", at, _size(e, extent)), at)


def _joint(e, indices, extents):
    """Index tensors of several axes as one position among all their elements."""
    flat = None
    for index, extent in zip(indices, extents):
        at = _positions(e, index, extent)
        flat = at if flat is None else e.add("add", e.add("mul", flat, _size(e, extent)), at)
    return flat


def _permuted(e, v, perm):
    return v if list(perm) == sorted(perm) else e.add("transpose", v, perm=list(perm))


def _cut(e, v, axis, start, stop):
    return e.add("slice", v, axes=[axis], starts=[start], stops=[stop])


# -- picks ------------------------------------------------------------------------------------------------------------

@row("aten.embedding")
def _embedding(e, weight, indices, *_, **__):
    e.checks.index(indices, weight, 0)
    return e.add("gather", e.value(weight), e.value(indices, "i64"), axis=0)


@row("aten.index_select")
def _index_select(e, x, axis, indices):
    e.checks.index(indices, x, axis)
    if e.rank(x) == 0:
        return e.reshape(e.add("gather", e.reshape(e.value(x), [1]), e.reshape(e.value(indices, "i64"), [1]), axis=0), e.shape())
    v = e.add("gather", e.value(x), e.value(indices, "i64"), axis=e.axis(axis, e.rank(x)))
    return e.reshape(v, e.shape()) if e.rank(indices) == 0 else v


def _along(e, v, axis, at):
    """The elements of v at the positions `at` along one axis, which are in its range; the other axes go from 0."""
    shape, out = list(e.builder.shape(v)), list(e.builder.shape(at))
    flat = None
    for a, extent in enumerate(shape):
        place = at if a == axis else _iota(e, out, a)
        flat = place if flat is None else e.add("add", e.add("mul", flat, _size(e, extent)), place)
    return e.add("gather", e.reshape(v, [product(shape)]), flat, axis=0)


@row("aten.gather")
def _gather(e, x, axis, index, **_):
    e.checks.index(index, x, axis)
    if e.rank(x) == 0:
        return e.broadcast(e.value(x), e.shape())
    at = e.value(index, "i64")
    return _along(e, e.value(x), e.axis(axis, e.rank(x)), at if e.rank(index) else e.reshape(at, [1] * e.rank(x)))


def _check(e, x, indices):
    """Indices of several axes, unless they are known to be right."""
    if "unsafe" not in e.node.target._overloadpacket.__name__:
        for axis, index in enumerate(indices):
            e.checks.index(index, x, axis, wraps=True)


@row("aten.index", "aten._unsafe_index")
def _index(e, x, indices):
    """Index tensors with a common shape: their axes are brought together and folded into one."""
    places = [i for i, t in enumerate(indices) if t is not None]
    if any(e.dtype(indices[i]) in ("bool", "u8") for i in places):
        raise refuse("aten.index by a mask")
    _check(e, x, indices)
    shape, v = e.shape(x), e.value(x)
    if places != list(range(places[0], places[-1] + 1)):
        order = places + [i for i in range(len(shape)) if i not in places]
        v, shape, picked = _permuted(e, v, order), [shape[i] for i in order], list(range(len(places)))
    else:
        picked = places
    first, last = picked[0], picked[-1]
    at = _joint(e, [indices[i] for i in places], [shape[i] for i in picked])
    if len(places) > 1:
        v = e.reshape(v, shape[:first] + [product(shape[first:last + 1])] + shape[last + 1:])
    return e.add("gather", v, at, axis=first)


@row("aten._unsafe_masked_index")
def _masked_index(e, x, mask, indices, fill):
    return e.fn("where", e.value(mask, "bool"), _index(e, x, indices), e.value(fill, e.dtype()))


@row("aten.diagonal", "aten.diagonal_copy")
def _diagonal(e, x, offset=0, a=0, b=1):
    rank = e.rank(x)
    a, b = e.axis(a, rank), e.axis(b, rank)
    v = _permuted(e, e.value(x), [i for i in range(rank) if i not in (a, b)] + [a, b])
    lead, (n, m), out = list(e.builder.shape(v))[:-2], [e.shape(x)[i] for i in (a, b)], e.shape()
    start = e.number(offset) if offset >= 0 else product([-offset, m])
    v = e.reshape(v, lead + [product([n, m])])
    if isinstance(m, int) and isinstance(start, int) and isinstance(out[-1], int):
        stop = start + (out[-1] - 1) * (m + 1) + 1 if out[-1] else start
        return e.add("slice", v, axes=[rank - 2], starts=[start], stops=[stop], steps=[m + 1])
    at = e.add("mul", _iota(e, out[-1:], 0), _size(e, plus(m, 1)))
    return e.add("gather", v, e.add("add", at, _size(e, start)), axis=rank - 2)


@row("aten.unfold", "aten.unfold_copy")
def _unfold(e, x, axis, size, step):
    if e.rank(x) == 0:
        return e.reshape(e.value(x), e.shape())
    return e.add("window", e.value(x), axes=[e.axis(axis, e.rank(x))], sizes=[e.number(size)], strides=[e.number(step)])


# -- puts -------------------------------------------------------------------------------------------------------------

@row("aten.slice_scatter")
def _slice_scatter(e, x, source, axis=0, start=None, stop=None, step=1):
    dtype, axis, shape = e.dtype(), e.axis(axis, e.rank(x)), e.shape()
    v, part, length = e.value(x), e.value(source, dtype), e.shape(source)[axis]
    start, stop = bounds(e, x, axis, start, stop)
    if step == 1:
        parts = [] if start == 0 else [_cut(e, v, axis, 0, start)]
        parts.append(part)
        stop = plus(start, length)
        if stop != shape[axis]:
            parts.append(_cut(e, v, axis, stop, shape[axis]))
        return parts[0] if len(parts) == 1 else e.add("concat", *parts, axis=axis)
    line = [shape[axis]] + [1] * (len(shape) - 1 - axis)
    at = e.add("sub", _iota(e, line, 0), _size(e, start))
    at, rest = e.fn("floordiv", at, float(step)), e.fn("mod", at, float(step))
    hit = e.add("logical_and", e.fn("ge", at, 0.0), e.add("logical_and", e.add("lt", at, _size(e, length)), e.fn("eq", rest, 0.0)))
    picked = e.add("gather", part, e.reshape(at, [shape[axis]]), axis=axis)  # clamped where nothing is meant
    return e.add("where", hit, picked, v)


@row("aten.select_scatter")
def _select_scatter(e, x, source, axis, index):
    axis, size, index = e.axis(axis, e.rank(x)), e.shape()[e.axis(axis, e.rank(x))], e.number(index)
    line = [size] + [1] * (e.rank(x) - 1 - axis)
    at = _size(e, index if isinstance(index, str) or index >= 0 else plus(size, index))
    return e.add("where", e.add("eq", _iota(e, line, 0), at), e.add("unsqueeze", e.value(source, e.dtype()), axes=[axis]), e.value(x))


@row("aten.diagonal_scatter")
def _diagonal_scatter(e, x, source, offset=0, a=0, b=1):
    rank = e.rank(x)
    a, b = e.axis(a, rank), e.axis(b, rank)
    order = [i for i in range(rank) if i not in (a, b)] + [a, b]
    v = _permuted(e, e.value(x), order)
    n, m = list(e.builder.shape(v))[-2:]
    on = e.add("eq", e.fn("add", _iota(e, [n, m], 0), float(offset)), _iota(e, [n, m], 1))
    at = _iota(e, [n, 1] if offset >= 0 else [1, m], 0 if offset >= 0 else 1)  # the place on the diagonal
    picked = e.add("gather", e.value(source, e.dtype()), at, axis=rank - 2)
    return _permuted(e, e.add("where", on, picked, v), [order.index(i) for i in range(rank)])


# How updates of one element join: the reduction, what it starts with, and the function of two.
_JOINS = {"sum": ("sum", 0.0, "add"), "add": ("sum", 0.0, "add"), "mean": ("sum", 0.0, "add"), "prod": ("prod", 1.0, "mul"),
          "multiply": ("prod", 1.0, "mul"), "amax": ("amax", -math.inf, "max"), "amin": ("amin", math.inf, "min")}


def _affordable(e, *shapes):
    """Refuses what would take seconds: eager goes through the updates, not through all pairs."""
    pairs = max((n for n in map(product, shapes) if isinstance(n, int)), default=0)
    if pairs > 2**28:
        raise refuse(f"{e.node.target} of {pairs} pairs of a place and an update")


def _last(e, hit, axis):
    """Whether anything is meant for an element, and the last update that is; `hit` [.., updates at axis, ..]."""
    _affordable(e, e.builder.shape(hit))
    updates = e.add("iota", shape=[e.builder.shape(hit)[axis]] + [1] * (len(e.builder.shape(hit)) - 1 - axis), axis=0, dtype="i64")
    return e.add("any", hit, axes=[axis]), e.add("amax", e.fn("where", hit, updates, 0.0), axes=[axis])


def _joined(e, v, hit, updates, axis, join, include_self=True):
    """v with the updates [.., theirs at axis, places, ..] joined to it where `hit` holds, which has their shape."""
    dtype = e.builder.dtype(v)
    _affordable(e, [max(a, b) if isinstance(a, int) and isinstance(b, int) else a
                    for a, b in zip(e.builder.shape(hit), e.builder.shape(updates))])
    if dtype == "bool":
        raise refuse(f"{e.node.target} of bools")
    reduce, start, fn = _JOINS[join]
    wide = "f32" if dtype in ("f16", "bf16") else dtype
    start = start if math.isfinite(start) else lowest(wide) if start < 0 else highest(wide)
    mine = e.fn("where", hit, e.cast(updates, wide), start)
    result = e.add(reduce, mine, axes=[axis])
    own = e.cast(v, wide)
    if include_self:
        result = e.add(fn, own, result)
    if join == "mean":
        count = e.add("sum", e.cast(hit, wide), axes=[axis])
        count = e.fn("add", count, 1.0) if include_self else e.fn("max", count, 1.0)
        result = e.add("floordiv" if wide[0] in "iu" else "div", result, count)
    return e.add("where", e.add("any", hit, axes=[axis]), e.cast(result, dtype), v)


def _scattered(e, x, axis, index, source, join=None, include_self=True):
    dtype, rank = e.dtype(), e.rank(x)
    e.checks.index(index, x, e.number(axis))
    v, at = e.value(x, dtype), e.value(index, "i64")
    source = e.value(source, dtype)
    if rank == 0:  # as lists of one
        v, at, source = (e.reshape(t, [1]) for t in (v, at, source))
    full, part = list(e.builder.shape(v)), list(e.builder.shape(at))
    if not part and full:
        at, part = e.reshape(at, [1] * len(full)), [1] * len(full)
    axis = e.axis(axis, len(full))
    if 0 in part:
        return e.value(x, dtype)
    source_shape = list(e.builder.shape(source))
    if not source_shape:
        source = e.broadcast(source, part)
    else:
        for i, (have, want) in enumerate(zip(source_shape, part)):
            source = source if have == want else _cut(e, source, i, 0, want)
    window = v  # what the indices cover of the other axes
    for i in range(len(full)):
        if i != axis and full[i] != part[i]:
            window = _cut(e, window, i, 0, part[i])
    grid = part[:axis + 1] + [full[axis]] + part[axis + 1:]
    hit = e.add("eq", e.add("unsqueeze", at, axes=[axis + 1]), _iota(e, [full[axis]] + [1] * (len(grid) - 2 - axis), 0))
    if join is None:
        found, last = _last(e, hit, axis)
        result = e.add("where", found, _along(e, source, axis, last), window)
    else:
        result = _joined(e, window, hit, e.add("unsqueeze", source, axes=[axis + 1]), axis, join, include_self)
    for i in reversed(range(len(full))):  # what lies outside comes back, from the last axis that was cut
        if i != axis and full[i] != part[i]:
            rest = _cut(e, v, i, part[i], full[i])
            for j in range(i):
                if j != axis and full[j] != part[j]:
                    rest = _cut(e, rest, j, 0, part[j])
            result = e.add("concat", result, rest, axis=i)
    return e.reshape(result, []) if rank == 0 else result


@row("aten.scatter")
def _scatter(e, x, axis, index, source, *, reduce=None):
    return _scattered(e, x, axis, index, source, reduce)


@row("aten.scatter_add")
def _scatter_add(e, x, axis, index, source):
    return _scattered(e, x, axis, index, source, "sum")


@row("aten.scatter_reduce")
def _scatter_reduce(e, x, axis, index, source, reduce, *, include_self=True):
    return _scattered(e, x, axis, index, source, reduce, include_self)


def _counted(e, mask):
    """How many places before each one a mask holds at."""
    shape = list(e.builder.shape(mask))
    flat = e.add("cumsum", e.cast(e.reshape(mask, [product(shape)]), "i64"), axis=0, exclusive=True)
    return e.reshape(flat, shape)


@row("aten.masked_scatter")
def _masked_scatter(e, x, mask, source):
    shape = e.shape()
    mask, source = e.broadcast(e.value(mask, "bool"), shape), e.reshape(e.value(source), [product(e.shape(source))])
    return e.add("where", mask, e.add("gather", source, _counted(e, mask), axis=0), e.broadcast(e.value(x), shape))


@row("aten.put")
def _put(e, x, index, source, accumulate=False):
    shape, count = e.shape(), product(e.shape(index))
    if count == 0:
        return e.value(x)
    e.checks.index(index, x, wraps=True)
    table, values = e.reshape(e.value(x), [product(shape)]), e.reshape(e.value(source), [count])
    at = e.reshape(_positions(e, index, product(shape)), [count])
    return e.reshape(_written(e, table, at, values, accumulate), shape)


@row("aten.index_reduce")
def _index_reduce(e, x, axis, index, source, reduce, *, include_self=True):
    if e.rank(x) == 0 or e.shape(index) == [0]:
        return e.value(x) if e.shape(index) == [0] else _scattered(e, x, axis, index, source, reduce, include_self)
    e.checks.index(index, x, axis)
    axis, v, values = e.axis(axis, e.rank(x)), e.value(x), e.value(source, e.dtype())
    front = [axis] + [i for i in range(e.rank(x)) if i != axis]
    v, values = _permuted(e, v, front), e.add("unsqueeze", _permuted(e, values, front), axes=[1])
    hit = e.add("eq", e.reshape(e.value(index, "i64"), [product(e.shape(index)), 1]), _iota(e, e.shape()[axis:axis + 1], 0))
    hit = e.reshape(hit, list(e.builder.shape(hit)) + [1] * (e.rank(x) - 1))
    return _permuted(e, _joined(e, v, hit, values, 0, reduce, include_self), [front.index(i) for i in range(e.rank(x))])


@row("aten.index_put", "aten._unsafe_index_put")
def _index_put(e, x, indices, values, accumulate=False, unsafe=False):
    dtype, rank, shape = e.dtype(), e.rank(x), e.shape(x)
    places = [i for i, t in enumerate(indices) if t is not None]
    v, values = e.value(x), e.value(values, dtype)
    if len(places) == 1 and e.dtype(indices[places[0]]) in ("bool", "u8"):
        mask, kind = e.value(indices[places[0]], "bool"), e.rank(indices[places[0]])
        if places[0] != 0:
            raise refuse("aten.index_put by a mask behind other axes")
        if any(n != 1 for n in e.builder.shape(values)):  # the values in order, one for each place where the mask holds
            rest, have = shape[kind:], list(e.builder.shape(values))
            values = e.broadcast(values, [have[0] if len(have) > len(rest) else 1, *rest])
            picked = e.add("gather", values, _counted(e, mask), axis=0)
            mask = e.reshape(mask, shape[:kind] + [1] * len(rest))
            return e.add("where", mask, e.add("add", v, picked) if accumulate else picked, v)
        mask = e.reshape(mask, list(e.builder.shape(mask)) + [1] * (rank - len(e.builder.shape(mask))))
        values = e.reshape(values, [])
        return e.add("where", mask, e.add("add", v, values) if accumulate else values, v)
    if any(e.dtype(indices[i]) in ("bool", "u8") for i in places):
        raise refuse("aten.index_put by a mask among indices")
    _check(e, x, indices)
    at = _joint(e, [indices[i] for i in places], [shape[i] for i in places])
    span = list(e.builder.shape(at))
    if 0 in span:
        return v
    order = places + [i for i in range(rank) if i not in places]
    rest = [shape[i] for i in range(rank) if i not in places]
    rows, count = product([shape[i] for i in places]), product(span)
    # The values in the shape that reading would have, its index axes brought to the front.
    first = places[0] if places == list(range(places[0], places[-1] + 1)) else 0
    values = e.broadcast(values, rest[:first] + span + rest[first:])
    values = _permuted(e, values, [*range(first, first + len(span)), *range(first), *range(first + len(span), len(span) + len(rest))])
    values, table = e.reshape(values, [count] + rest), e.reshape(_permuted(e, v, order), [rows] + rest)
    result = e.reshape(_written(e, table, e.reshape(at, [count]), values, accumulate), [shape[i] for i in order])
    return _permuted(e, result, [order.index(i) for i in range(rank)])


def _written(e, table, at, values, accumulate):
    """A table [rows, ..] with values [count, ..] put, or added, at the rows `at` [count]."""
    (count, *rest), rows = e.builder.shape(values), e.builder.shape(table)[0]
    ones = [1] * len(rest)
    hit = e.add("eq", e.reshape(at, [count, 1]), _iota(e, [rows], 0))
    if accumulate:
        return _joined(e, table, e.reshape(hit, [count, rows] + ones), e.add("unsqueeze", values, axes=[1]), 0, "sum")
    found, last = _last(e, hit, 0)
    return e.add("where", e.reshape(found, [rows] + ones), e.add("gather", values, last, axis=0), table)


def _strided(e, x, sizes, strides, offset):
    """Where in x, as one row, the elements lie that have these strides in memory."""
    val = e.meta(x)
    dense = val.is_contiguous() and val.storage_offset() == 0 and val.untyped_storage().nbytes() == val.numel() * val.element_size()
    numbers = [e.number(n) for n in (*sizes, *strides, offset or 0)]
    if not dense or any(isinstance(n, str) for n in numbers):
        raise refuse(f"{e.node.target} of memory that the tensor does not fill, or by open extents")
    at = e.literal(offset or 0, "i64")
    for axis, (n, stride) in enumerate(zip(sizes, strides)):
        line = e.add("iota", shape=[n] + [1] * (len(sizes) - 1 - axis), axis=0, dtype="i64")
        at = e.add("add", at, e.fn("mul", line, float(stride)))
    return e.broadcast(at, list(sizes))


@row("aten.as_strided", "aten.as_strided_copy")
def _as_strided(e, x, sizes, strides, offset=None):
    at = _strided(e, x, sizes, strides, offset)
    return e.add("gather", e.reshape(e.value(x), [product(e.shape(x))]), at, axis=0)


@row("aten.as_strided_scatter")
def _as_strided_scatter(e, x, source, sizes, strides, offset=None):
    at, count = _strided(e, x, sizes, strides, offset), product(e.shape(source))
    if count == 0:
        return e.value(x)
    table, values = e.reshape(e.value(x), [product(e.shape(x))]), e.reshape(e.value(source, e.dtype()), [count])
    return e.reshape(_written(e, table, e.reshape(at, [count]), values, False), e.shape())


# -- order ------------------------------------------------------------------------------------------------------------

def _ordered(e, x, axis, k, largest):
    """The first k of a sorted axis, and where they were; both have the operand's rank."""
    v, kind = e.value(x), e.dtype(x)
    v = e.cast(v, "u8") if kind == "bool" else v
    values, at = e.add("topk", v, k=k, axis=axis, largest=largest)
    return e.cast(values, kind), at


@row("aten.topk")
def _topk(e, x, k, axis=-1, largest=True, is_sorted=True):
    if e.rank(x) == 0:
        both = e.add("topk", e.reshape(e.value(x), [1]), k=e.number(k), axis=0, largest=bool(largest))
        return tuple(e.reshape(v, e.shape()) for v in both)
    return e.add("topk", e.value(x), k=e.number(k), axis=e.axis(axis, e.rank(x)), largest=bool(largest))


@row("aten.sort")
def _sort(e, x, axis=-1, descending=False, *, stable=None, dim=None):
    if e.rank(x) == 0:
        return e.value(x), e.literal(0, "i64")
    axis = e.axis(axis if dim is None else dim, e.rank(x))
    k = e.shape(x)[axis]
    if not isinstance(k, int):
        raise refuse("aten.sort of an open axis")
    return _ordered(e, x, axis, k, bool(descending))


@row("aten.kthvalue", "aten.median")
def _rank(e, x, *args, **named):
    """The k-th smallest element and its place; the median is the lower one of two, and NaN where there is one."""
    median, whole = e.node.target._overloadpacket.__name__ == "median", not args and "dim" not in named
    names = ["dim", "keepdim"] if median else ["k", "dim", "keepdim"]
    given = {"dim": -1, "keepdim": False} | named | dict(zip(names, args))
    if e.rank(x) == 0:
        return e.value(x) if whole else (e.value(x), e.literal(0, "i64"))
    v, shape, axis = e.value(x), e.shape(x), e.axis(given["dim"], e.rank(x))
    if median and whole:
        v, shape, axis = e.reshape(v, [product(shape)]), [product(shape)], 0
    if not isinstance(shape[axis], int):
        raise refuse(f"{e.node.target} of an open axis")
    k = (shape[axis] - 1) // 2 + 1 if median else e.number(given["k"])
    if shape[axis] == 0:
        raise refuse(f"{e.node.target} of an empty axis")
    both = e.add("topk", v, k=k, axis=axis, largest=False)
    value, at = (_cut(e, t, axis, k - 1, k) for t in both)
    if median and e.builder.dtype(v)[0] in "fb":
        bad = e.add("any", e.add("isnan", v), axes=[axis], keepdims=True)
        value = e.fn("where", bad, math.nan, value)
        at = e.add("where", bad, e.add("argmax", v, axis=axis, keepdims=True), at)
    if not given["keepdim"] or whole:
        value, at = (e.add("squeeze", t, axes=[axis]) for t in (value, at))
    return value if whole else (value, at)


@row("aten.searchsorted", "aten.bucketize")
def _searchsorted(e, *args, right=False, side=None, sorter=None, out_int32=False):
    """How many of the sorted numbers are below (or at most) each one."""
    bucket = e.node.target._overloadpacket.__name__ == "bucketize"
    x, line = args if bucket else reversed(args)
    kind = e.dtype_name(torch.result_type(e.meta(x), e.meta(line)))
    v, edges = e.value(x, kind), e.value(line, kind)
    if sorter is not None:
        edges = _along(e, edges, e.rank(line) - 1, e.value(sorter))
    v = e.add("unsqueeze", v, axes=[len(e.shape())])
    if e.rank(line) > 1:
        edges = e.add("unsqueeze", edges, axes=[e.rank(line) - 1])
    below = e.add("le" if right or side == "right" else "lt", edges, v)
    if kind[0] in "fb":  # NaN is behind everything
        below = e.add("logical_or", below, e.add("isnan", v))
    return e.add("sum", e.cast(below, e.dtype()), axes=[len(e.shape())])
