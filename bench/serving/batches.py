"""Batches of serving requests: lengths like those of public serving traces, drawn from a seed so that the longest request is
several times the median."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Operator:
    name: str
    graph: str  # examples/dynamic/GRAPH.graph
    heads: int
    groups: int
    d: int  # of keys
    e: int  # of values
    latent: bool = False  # values are the first part of the keys, the rest of those is rotary
    batches: tuple = ()  # (name, rows of each request or 1, requests, keys in all)


DECODE, PREFILL = 1, 0
OPERATORS = (
    Operator("gqa decode, 8 key heads", "gqa_paged_decode", 32, 8, 128, 128, batches=(
        (DECODE, 1, 2708), (DECODE, 16, 2681), (DECODE, 16, 7040), (DECODE, 64, 14000))),
    Operator("gqa decode, 4 key heads", "gqa_paged_decode", 32, 4, 128, 128, batches=(
        (DECODE, 1, 4096), (DECODE, 16, 15441), (DECODE, 64, 28815))),
    Operator("mla decode", "mla_paged_decode", 16, 1, 576, 512, True, batches=(
        (DECODE, 1, 608), (DECODE, 1, 2708), (DECODE, 16, 2780), (DECODE, 16, 7000))),
    Operator("gqa ragged prefill", "gqa_ragged_prefill", 32, 8, 128, 128, batches=(
        (PREFILL, 1, 71), (PREFILL, 2, 81), (PREFILL, 5, 140))),
    Operator("gqa paged prefill", "gqa_paged_prefill", 32, 8, 128, 128, batches=(
        (PREFILL, 1, 71), (PREFILL, 3, 150), (12, 17, 2560))),
    Operator("mla paged prefill", "mla_paged_prefill", 16, 1, 576, 512, True, batches=(
        (PREFILL, 1, 34), (PREFILL, 3, 120), (PREFILL, 1, 98), (3, 22, 3000))),
    Operator("mla ragged prefill", "mla_ragged_prefill", 16, 16, 192, 128, batches=(
        (PREFILL, 1, 71), (PREFILL, 3, 200))),
)


def lengths(requests, total, generator):
    """`requests` positive lengths whose sum is `total`."""
    share = torch.exp(torch.randn(requests, generator=generator))
    out = torch.clamp((share / share.sum() * (total - requests)).long(), min=0) + 1
    out[0] += total - int(out.sum())
    return out.tolist()


@dataclass
class Batch:
    """Packed or paged tensors of one batch, and what the graph of the operator wants of them."""

    operator: Operator
    rows: list
    keys: list

    def __post_init__(self):
        o, generator = self.operator, torch.Generator().manual_seed(sum(self.keys) + len(self.keys))
        self.paged = "paged" in o.graph
        total = sum(self.keys)
        slots = total + total // 10 + 1 if self.paged else total
        order = torch.randperm(slots, generator=generator)[:total] if self.paged else torch.arange(total)
        self.slots = [part.clone() for part in order.split(self.keys)]
        self.order = order
        self.scale = o.d**-0.5 if not o.latent else (128 + o.d - o.e) ** -0.5
        draw = lambda *shape: torch.randn(shape, generator=generator)
        self.q, self.k = draw(sum(self.rows), o.heads, o.d), draw(slots, o.groups, o.d)
        self.v = self.k[..., :o.e].contiguous() if o.latent else draw(slots, o.groups, o.e)

    @property
    def torch_side(self):
        return self.q, self.k, self.v, self.slots, self.rows

    @property
    def flops(self):
        pairs = sum(s * n - s * (s - 1) // 2 for s, n in zip(self.rows, self.keys))
        return 2 * pairs * self.operator.heads * (self.operator.d + self.operator.e)

    def inputs(self):
        """Name -> tensor, as the graph's inputs are called."""
        o = self.operator
        starts = lambda parts: torch.tensor([0, *parts]).cumsum(0).int()
        page = lambda x: x.unsqueeze(1).contiguous()
        if o.latent:
            out = {"q_nope": self.q[..., :o.e].contiguous(), "q_pe": self.q[..., o.e:].contiguous(),
                   "ckv_cache": self.k[..., :o.e].contiguous(), "kpe_cache": self.k[..., o.e:].contiguous()}
        elif self.paged:
            out = {"q": self.q, "k_cache": page(self.k), "v_cache": page(self.v)}
        else:
            out = {"q": self.q, "k": self.k, "v": self.v}
        return {**out, "qo_indptr": starts(self.rows), "kv_indptr": starts(self.keys), "kv_indices": self.order.int()}

    def dims(self):
        return {"B": len(self.rows), "TQ": sum(self.rows), "TK": sum(self.keys), "PAGES": len(self.k), "N": sum(self.keys),
                "S": max(self.rows), "L": max(self.keys)}


def fixed(o):
    """The dimensions that an operator's code is made for."""
    if o.latent:
        return {"H": o.heads, "C": o.e, "E": o.d - o.e}
    if o.graph.startswith("mla"):
        return {"H": o.heads, "D": o.d, "E": o.e}
    return {"KV": o.groups, "R": o.heads // o.groups, "D": o.d}


def batches(o):
    out = []
    for kind, requests, total in o.batches:
        generator = torch.Generator().manual_seed(requests * 100003 + total)
        keys = lengths(requests, total, generator)
        rows = [1] * requests if kind == DECODE else list(keys) if kind == PREFILL else [min(kind, n) for n in keys]
        out.append(Batch(o, rows, keys))
    return out
