"""One layer of each of three language models, with a cache of keys and values: (x [b, s, width], keys and values
[b, groups, l - s, d] of earlier tokens) -> (y, the new keys, the new values)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Sizes:
    width: int
    heads: int
    groups: int  # heads of keys and values
    d: int
    inner: int


def attend(q, k, v):
    """Row i sees the keys up to i + l - s."""
    s, length, grouped = q.shape[2], k.shape[2], q.shape[1] != k.shape[1]
    if s in (1, length):
        return F.scaled_dot_product_attention(q, k, v, is_causal=s > 1, enable_gqa=grouped)
    visible = torch.ones(s, length, dtype=torch.bool).tril(length - s)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=grouped)


class Layer(nn.Module):
    """What the models share: split into heads, extend the cache, attend, join."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def split(self, x, heads):
        b, s, _ = x.shape
        return x.view(b, s, heads, self.sizes.d).transpose(1, 2)

    def attention(self, q, k, v, past):
        b, _, s, _ = q.shape
        keys, values = (torch.cat(pair, 2) for pair in zip(past, (k, v))) if past else (k, v)
        return attend(q, keys, values).transpose(1, 2).reshape(b, s, -1)


class Gpt2(Layer):
    def __init__(self, sizes, start, s):
        super().__init__(sizes)
        w = sizes.width
        self.before, self.after = nn.LayerNorm(w), nn.LayerNorm(w)
        self.qkv, self.out = nn.Linear(w, 3 * w), nn.Linear(w, w)
        self.up, self.down = nn.Linear(w, sizes.inner), nn.Linear(sizes.inner, w)

    def forward(self, x, *past):
        q, k, v = (self.split(y, self.sizes.heads) for y in self.qkv(self.before(x)).chunk(3, -1))
        x = x + self.out(self.attention(q, k, v, past))
        return x + self.down(F.gelu(self.up(self.after(x)), approximate="tanh")), k, v


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Llama(Layer):
    theta, eps, norms_heads = 500000.0, 1e-5, False

    def __init__(self, sizes, start, s):
        super().__init__(sizes)
        w, d = sizes.width, sizes.d
        self.before, self.after = nn.RMSNorm(w, self.eps), nn.RMSNorm(w, self.eps)
        self.q, self.k, self.v = (nn.Linear(w, h * d, bias=False) for h in (sizes.heads, sizes.groups, sizes.groups))
        self.out = nn.Linear(sizes.heads * d, w, bias=False)
        self.gate, self.up = nn.Linear(w, sizes.inner, bias=False), nn.Linear(w, sizes.inner, bias=False)
        self.down = nn.Linear(sizes.inner, w, bias=False)
        if self.norms_heads:
            self.q_norm, self.k_norm = nn.RMSNorm(d, self.eps), nn.RMSNorm(d, self.eps)
        angles = torch.outer(torch.arange(start, start + s), self.theta ** (-torch.arange(0, d, 2) / d)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, *past):
        n = self.before(x)
        q, k = self.split(self.q(n), self.sizes.heads), self.split(self.k(n), self.sizes.groups)
        if self.norms_heads:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = rotated(q, self.cos, self.sin), rotated(k, self.cos, self.sin), self.split(self.v(n), self.sizes.groups)
        x = x + self.out(self.attention(q, k, v, past))
        n = self.after(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n)), k, v


class Qwen3(Llama):
    theta, eps, norms_heads = 1000000.0, 1e-6, True


# Scaled from the models' sizes: the ratios of widths and groups stay, and that heads times d is no width of Qwen3's.
# Points are (batch, new tokens s, tokens in all l).
LAYERS = [
    ("gpt2", Gpt2, Sizes(192, 3, 3, 64, 768), [(1, 32, 32), (1, 96, 96), (1, 256, 256), (1, 1, 512), (1, 7, 131)]),
    ("gpt2_full", Gpt2, Sizes(768, 12, 12, 64, 3072), [(1, 1, 128), (1, 4, 64), (1, 256, 256)]),
    ("llama3_8b", Llama, Sizes(256, 8, 2, 32, 896), [(1, 32, 32), (1, 64, 64), (1, 256, 256), (1, 1, 1024), (1, 5, 67)]),
    ("qwen3_32b", Qwen3, Sizes(160, 8, 1, 32, 800), [(1, 32, 32), (1, 64, 64), (1, 256, 256), (1, 1, 1024), (1, 5, 67)]),
]
