"""Networks and parts of them."""

import torch
import torch.nn.functional as F
from torch import nn

from .level1 import new_gelu
from .modules import Problem, normal


def mlp(*widths):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class CausalAttention(nn.Module):
    """Heads of one projection, scores masked by a lower triangle; `weigh` makes weights of masked scores."""

    def __init__(self, width, heads, longest, weigh, finish):
        super().__init__()
        self.heads, self.weigh, self.finish = heads, weigh, finish
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("visible", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.attend(x).split(c, dim=2))
        scores = q @ k.transpose(-2, -1) * (1.0 / (c // self.heads) ** 0.5)
        scores = scores.masked_fill(self.visible[:, :, :t, :t] == 0, float("-inf"))
        y = (self.weigh(scores) @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.finish(self.project(y))


def softmax_attention(width, heads, longest):
    return CausalAttention(width, heads, longest, lambda s: torch.softmax(s, -1), lambda y: y)


class Block(nn.Module):
    def __init__(self, width, heads, longest):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = softmax_attention(width, heads, longest)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.narrow(new_gelu(self.widen(self.after(x))))


class Vlad(nn.Module):
    """Sums of the differences between features and cluster centres, weighted by soft assignment; ghost clusters take part
    in the assignment only."""

    def __init__(self, clusters, width, ghosts):
        super().__init__()
        self.clusters = clusters
        self.assign = nn.Parameter(torch.randn(width, clusters + ghosts) / width**0.5)
        self.centres = nn.Parameter(torch.randn(1, width, clusters) / width**0.5)
        self.norm = nn.BatchNorm1d(clusters + ghosts, track_running_stats=False)  # statistics of the batch

    def forward(self, x):
        b, n, d = x.shape
        share = torch.softmax(self.norm(x.reshape(-1, d) @ self.assign), dim=1)[:, :self.clusters].view(b, n, self.clusters)
        total = torch.sum(share, dim=1, keepdim=True) * self.centres
        vlad = torch.matmul(share.transpose(1, 2), x).transpose(1, 2) - total
        return F.normalize(F.normalize(vlad).reshape(b, d * self.clusters))


def problem(number, name, make, shape):
    return Problem(3, number, name, make, (normal(*shape),))


PROBLEMS = [
    problem(1, "perceptron", lambda: mlp(1024, 1024, 1024, 512), (32, 1024)),
    problem(2, "wide perceptron", lambda: mlp(640, 1280, 1280, 640), (24, 640)),
    problem(3, "deep narrow perceptron", lambda: mlp(1024, *[128] * 16, 1024), (128, 1024)),
    problem(43, "causal attention", lambda: softmax_attention(192, 8, 256), (2, 128, 192)),
    problem(44, "transformer block", lambda: Block(192, 8, 256), (2, 96, 192)),
    problem(46, "vlad with ghost clusters", lambda: Vlad(32, 512, 16), (16, 100, 512)),
    problem(47, "vlad", lambda: Vlad(32, 512, 0), (16, 100, 512)),
    problem(50, "relu attention", lambda: CausalAttention(384, 12, 256, torch.relu, new_gelu), (1, 128, 384)),
]
