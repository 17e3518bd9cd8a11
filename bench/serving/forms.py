"""Attention of a batch of requests of different lengths as PyTorch users write it, in three forms. Each gives the output and
the base-2 log-sum of every row.

A batch is (q [rows, heads, d], keys [slots, groups, d], values [slots, groups, e], slots of each request, rows of each
request): the last row of a request sees its last key."""

import math

import torch
import torch.nn.functional as F

LOG2E = 1.0 / math.log(2.0)


def visible(rows, length):
    """None where every row sees every key."""
    if rows == 1:
        return None
    return torch.ones(rows, length, dtype=torch.bool).tril(length - rows)


def by_definition(q, k, v, mask, scale):
    """[b, h, s, d], [b, h, l, d], [b, h, l, e] -> output, natural log-sum."""
    scores = q @ k.transpose(-1, -2) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    lse = torch.logsumexp(scores, -1)
    return torch.exp(scores - lse.unsqueeze(-1)) @ v, lse


def attend(q, k, v, mask, scale):
    """The same by PyTorch's fused kernel where the widths of keys and values allow it."""
    if q.shape[-1] != v.shape[-1]:
        return by_definition(q, k, v, mask, scale)
    bias = None if mask is None else torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -math.inf)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, False, attn_mask=bias, scale=scale)


def grouped(q, groups):
    """[.., s, heads, d] -> [.., groups, heads / groups * s, d]: the heads that share keys become rows."""
    *lead, s, h, d = q.shape
    return q.reshape(*lead, s, groups, h // groups, d).transpose(-4, -3).reshape(*lead, groups, s * (h // groups), d)


def ungrouped(x, s, heads):
    """The way back: [b, groups, s * heads / groups, ..] -> [b, s, heads, ..]."""
    b, groups = x.shape[:2]
    return x.reshape(b, groups, s, heads // groups, *x.shape[3:]).transpose(1, 2).reshape(b, s, heads, *x.shape[3:])


def per_request(batch, scale, attend=attend):
    """Gathers the keys of one request after the other; grouped heads as rows of one attention."""
    q, keys, values, slots, rows = batch
    outs, sums, start, heads = [], [], 0, q.shape[1]
    for at, s in zip(slots, rows):
        k, v = keys[at].transpose(0, 1)[None], values[at].transpose(0, 1)[None]
        mask = visible(s, len(at))
        if mask is not None:
            mask = mask.repeat_interleave(heads // k.shape[1], 0)
        out, lse = attend(grouped(q[start:start + s], k.shape[1])[None], k, v, mask, scale)
        outs.append(ungrouped(out, s, heads)[0]), sums.append(ungrouped(lse, s, heads)[0])
        start += s
    return torch.cat(outs), torch.cat(sums) * LOG2E


class Padded:
    """All requests at once, padded to the longest, with a mask. Indices and mask are made ahead, as a server keeps them."""

    def __init__(self, batch):
        q, keys, values, slots, rows = batch
        length, most = max(map(len, slots)), max(rows)
        self.slots = torch.stack([F.pad(at, (0, length - len(at))) for at in slots])
        starts = torch.tensor([0, *rows]).cumsum(0)[:-1]
        self.rows = torch.stack([torch.clamp(torch.arange(most), max=s - 1) for s in rows]) + starts[:, None]
        mask = torch.zeros(len(rows), most, length, dtype=torch.bool)
        for b, (at, s) in enumerate(zip(slots, rows)):
            seen = visible(s, len(at))
            mask[b, :s, :len(at)] = True if seen is None else seen
            mask[b, s:, :1] = True
        self.mask = mask.repeat_interleave(q.shape[1] // keys.shape[1], 1)[:, None]
        self.packed = torch.cat([b * most + torch.arange(s) for b, s in enumerate(rows)])

    def __call__(self, batch, scale):
        q, keys, values, _, _ = batch
        k, v, heads = keys[self.slots].transpose(1, 2), values[self.slots].transpose(1, 2), q.shape[1]
        mask = self.mask.expand(-1, k.shape[1], -1, -1)
        out, lse = attend(grouped(q[self.rows], k.shape[1]), k, v, mask, scale)
        most = self.rows.shape[1]
        out, lse = ungrouped(out, most, heads), ungrouped(lse, most, heads)
        return out.flatten(0, 1)[self.packed], lse.flatten(0, 1)[self.packed] * LOG2E


def nested(batch, scale):
    """Nested tensors: one product, one softmax and one product over all requests; the log-sums from the scores."""
    q, keys, values, slots, rows = batch
    heads, groups, starts = q.shape[1], keys.shape[1], [0]
    for s in rows:
        starts.append(starts[-1] + s)
    make = torch.nested.nested_tensor
    queries = make([grouped(q[a:b], groups) * scale for a, b in zip(starts, starts[1:])])
    k, v = make([keys[at].transpose(0, 1) for at in slots]), make([values[at].transpose(0, 1) for at in slots])
    scores = torch.matmul(queries, k.transpose(-1, -2))
    masks = [visible(s, len(at)) for at, s in zip(slots, rows)]
    if any(m is not None for m in masks):
        scores = make([x if m is None else x.masked_fill(~m.repeat_interleave(heads // groups, 0), -math.inf)
                       for x, m in zip(scores.unbind(), masks)])
    out = torch.matmul(torch.softmax(scores, -1), v)
    outs = [ungrouped(x[None], s, heads)[0] for x, s in zip(out.unbind(), rows)]
    sums = [ungrouped(torch.logsumexp(x, -1)[None], s, heads)[0] for x, s in zip(scores.unbind(), rows)]
    return torch.cat(outs), torch.cat(sums) * LOG2E


# name -> (batch) -> (batch, scale) -> results
FORMS = {"per request": lambda batch: per_request, "padded": Padded, "nested": lambda batch: nested}
