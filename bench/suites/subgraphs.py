"""The rows of the subgraphs suite: what is computed, as a graph of ours and as PyTorch users write it.

A row has one PyTorch module (weights are buffers, the rest are inputs) and one graph text with the same arguments in the
same order. Both have the layouts that are usual: [batch, heads, rows, width] for attention, [outputs, inputs] for weights.
"""

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass
class Row:
    name: str
    point: dict
    graph: str  # with {t} for the element type
    module: object  # (weights: dict of tensors) -> torch.nn.Module
    inputs: dict  # name -> shape
    constants: dict = field(default_factory=dict)  # name -> (shape, scale, mean)
    flops: float = 0  # of the products, useful ones only
    elements: float = 0  # read and written once
    attention: bool = False
    cold: bool = False  # weights or caches come from memory: they are evicted before each run
    folder: object = None  # of an artefact that exists
    entry = "command"

    @property
    def title(self):
        return self.name + " " + " ".join(f"{k}{v}" for k, v in self.point.items())

    def build(self, dtype):
        generator = torch.Generator().manual_seed(1)
        return self.module({n: (torch.randn(shape, generator=generator) * scale + mean).to(DTYPES[dtype])
                            for n, (shape, scale, mean) in self.constants.items()})

    def data(self, dtype):
        generator = torch.Generator().manual_seed(2)
        return [torch.randn(shape, generator=generator).to(DTYPES[dtype]) for shape in self.inputs.values()]


class Fn(torch.nn.Module):
    """A function of inputs and constant weights."""

    def __init__(self, function, weights):
        super().__init__()
        self.function = function
        for name, tensor in weights.items():
            self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))

    def forward(self, *inputs):
        return self.function(self, *inputs)


def module(function):
    return lambda weights: Fn(function, weights).eval()


def graph(name, inputs, constants, body):
    lines = [f"graph {name} {{"]
    lines += [f"  input {n}: {{t}}[{', '.join(map(str, s))}]" for n, s in inputs.items()]
    lines += [f"  const {n}: {{t}}[{', '.join(map(str, c[0]))}] = file(\"{n}.npy\")" for n, c in constants.items()]
    return "\n".join(lines + ["  " + b for b in body] + ["}", ""])


def attention(name, b, h, g, s, l, d, causal=False, qknorm=False, decode=False):
    inputs = {"Q": (b, h, s, d), "K": (b, g, l, d), "V": (b, g, l, d)}
    constants = {"gq": ((d,), 0.1, 1), "gk": ((d,), 0.1, 1)} if qknorm else {}
    kv = 2 * b * g * l * d
    share = (s + 1) / (2 * s) if causal else 1
    if qknorm:
        body = ["Qn = rms_norm(Q, gq, axes=[3], eps=0.000001)", "Kn = rms_norm(K, gk, axes=[3], eps=0.000001)",
                "output O = sdpa(Qn, Kn, V)"]
    elif causal:
        body = ['output O = sdpa(Q, K, V, causal="end")']
    else:
        body = ["output O = sdpa(Q, K, V)"]

    def run(m, q, k, v):
        if qknorm:
            q, k = F.rms_norm(q, (d,), m.gq, 1e-6), F.rms_norm(k, (d,), m.gk, 1e-6)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=g != h)

    point = {"b": b, "h": h, "g": g, "s": s, "L": l, "d": d}
    return Row(name, point, graph(name, inputs, constants, body), module(run), inputs, constants,
               4 * b * h * s * l * d * share, 2 * b * h * s * d + kv, True, decode)


def mla_prefill(b, h, s, l, d, e, v):
    inputs = {"Q": (b, h, s, d), "Qp": (b, h, s, e), "K": (b, h, l, d), "Kp": (b, l, e), "V": (b, h, l, v)}
    scale = 1 / math.sqrt(d + e)
    body = ['S1 = contract("b h s d, b h l d -> b h s l", Q, K)', 'S2 = contract("b h s e, b l e -> b h s l", Qp, Kp)',
            f"P = softmax(mul(add(S1, S2), {scale!r}), axis=-1)",
            'output O = contract("b h s l, b h l v -> b h s v", P, V)']

    def run(m, q, qp, k, kp, val):
        keys = torch.cat([k, kp.unsqueeze(1).expand(-1, h, -1, -1)], -1)
        return F.scaled_dot_product_attention(torch.cat([q, qp], -1), keys, val)

    return Row("mla_prefill", {"b": b, "h": h, "s": s, "L": l}, graph("mla_prefill", inputs, {}, body), module(run), inputs,
               {}, 2 * b * h * s * l * (d + e + v), b * h * (s * (d + e + v) + l * (d + v)) + b * l * e, True)


def mla_decode(b, h, l, c, e):
    inputs = {"Q": (b, h, c), "Qp": (b, h, e), "KV": (b, l, c), "Kp": (b, l, e)}
    scale = 1 / math.sqrt(128 + e)
    body = ['S1 = contract("b h c, b l c -> b h l", Q, KV)', 'S2 = contract("b h e, b l e -> b h l", Qp, Kp)',
            f"P = softmax(mul(add(S1, S2), {scale!r}), axis=-1)", 'output O = contract("b h l, b l c -> b h c", P, KV)']

    def run(m, q, qp, kv, kp):
        scores = (torch.matmul(q, kv.transpose(1, 2)) + torch.matmul(qp, kp.transpose(1, 2))) * scale
        return torch.matmul(torch.softmax(scores, -1), kv)

    return Row("mla_decode", {"b": b, "h": h, "L": l}, graph("mla_decode", inputs, {}, body), module(run), inputs, {},
               2 * b * h * l * (2 * c + e), b * (h * (2 * c + e) + l * (c + e)), True, True)


def linear(m, k, n):
    inputs, constants = {"X": (m, k)}, {"W": ((n, k), k**-0.5, 0)}
    return Row("linear", {"M": m, "K": k, "N": n},
               graph("linear", inputs, constants, ['output Y = contract("s k, n k -> s n", X, W)']),
               module(lambda w, x: F.linear(x, w.W)), inputs, constants, 2 * m * k * n, m * k + n * k + m * n, cold=True)


def rmsnorm_linear(m, k, n):
    inputs, constants = {"X": (m, k)}, {"g": ((k,), 0.1, 1), "W": ((n, k), k**-0.5, 0)}
    body = ["Xn = rms_norm(X, g, axes=[1], eps=0.00001)", 'output Y = contract("s k, n k -> s n", Xn, W)']
    return Row("rmsnorm_linear", {"M": m, "K": k, "N": n}, graph("rmsnorm_linear", inputs, constants, body),
               module(lambda w, x: F.linear(F.rms_norm(x, (k,), w.g, 1e-5), w.W)), inputs, constants, 2 * m * k * n,
               m * k + n * k + m * n, cold=True)


def swiglu(m, k, n):
    inputs, constants = {"X": (m, k)}, {"Wg": ((n, k), k**-0.5, 0), "Wu": ((n, k), k**-0.5, 0)}
    body = ['G = contract("s k, n k -> s n", X, Wg)', 'U = contract("s k, n k -> s n", X, Wu)', "output Y = mul(silu(G), U)"]
    return Row("swiglu", {"M": m, "K": k, "N": n}, graph("swiglu", inputs, constants, body),
               module(lambda w, x: F.silu(F.linear(x, w.Wg)) * F.linear(x, w.Wu)), inputs, constants, 4 * m * k * n,
               m * k + 2 * n * k + m * n, cold=True)


def lora(m, k, n, r):
    inputs = {"X": (m, k)}
    constants = {"W": ((n, k), k**-0.5, 0), "A": ((r, k), k**-0.5, 0), "B": ((n, r), r**-0.5, 0)}
    body = ['C = contract("s k, n k -> s n", X, W)', 'D = contract("s k, r k -> s r", X, A)',
            'output Y = add(C, contract("s r, n r -> s n", D, B))']
    return Row("lora", {"M": m, "K": k, "N": n, "r": r}, graph("lora", inputs, constants, body),
               module(lambda w, x: F.linear(x, w.W) + F.linear(F.linear(x, w.A), w.B)), inputs, constants,
               2 * m * (k * n + k * r + r * n), m * k + n * k + r * (k + n) + m * n, cold=True)


def ntrans(s, k):
    inputs, constants = {"H": (s, k), "X": (s, k)}, {"alpha": ((k,), 0.1, 0.5)}
    body = ["Hn = mul(H, rsqrt(add(sum(square(H), axes=[1], keepdims=true), 0.000000000001)))",
            "C = add(X, mul(sub(Hn, X), alpha))",
            "output Y = mul(C, rsqrt(add(sum(square(C), axes=[1], keepdims=true), 0.000000000001)))"]

    def run(w, h, x):
        n = h * torch.rsqrt(h.square().sum(-1, keepdim=True) + 1e-12)
        c = x + (n - x) * w.alpha
        return c * torch.rsqrt(c.square().sum(-1, keepdim=True) + 1e-12)

    return Row("ntrans", {"s": s, "k": k}, graph("ntrans", inputs, constants, body), module(run), inputs, constants, 0,
               3 * s * k, cold=True)


def rows(options=None):
    out = []
    for d in (64, 128):
        for s in (256, 1024):
            out += [attention("mha", 1, 16, 16, s, s, d), attention("mha_causal", 1, 16, 16, s, s, d, causal=True),
                    attention("qknorm", 1, 16, 16, s, s, d, qknorm=True)]
    out += [attention("gqa_prefill", 1, 32, 8, 512, 512, 128), attention("mqa_prefill", 1, 32, 1, 512, 512, 128),
            mla_prefill(1, 16, 512, 512, 128, 64, 128)]
    for b in (1, 4):
        for length in (1024, 4096):
            out += [attention("gqa_decode", b, 32, 8, 1, length, 128, decode=True),
                    attention("mqa_decode", b, 32, 1, 1, length, 128, decode=True), mla_decode(b, 16, length, 512, 64)]
    for m in (1, 4, 16, 64, 256):
        out += [linear(m, 4096, 4096), rmsnorm_linear(m, 4096, 4096), swiglu(m, 2048, 5632), lora(m, 4096, 4096, 16)]
    return out + [ntrans(2048, 4096)]
