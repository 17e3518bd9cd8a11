"""Small modules of which the problems are made, and how a problem and its data are described.

The shapes are those of the suites that the problems are named after, scaled to at most about 0.2 GFLOP and 16 MB each;
ratios of extents, odd extents, ranks and sizes of groups stay what makes a problem special.
"""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Problem:
    level: int
    id: int
    name: str
    make: object  # () -> torch.nn.Module; weights are drawn as PyTorch does by default
    draws: tuple  # of functions: torch.Generator -> tensor


class Fn(nn.Module):
    """A function without weights."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class After(nn.Module):
    """A layer, then a function of what it gives, of further inputs, and of this module (weights `w` and `v`)."""

    def __init__(self, layer, function, w=None, v=None):
        super().__init__()
        self.layer, self.function = layer, function
        self.w = None if w is None else nn.Parameter(torch.randn(w))
        self.v = v

    def forward(self, x, *rest):
        return self.function(self, self.layer(x), *rest)


def normal(*shape):
    return lambda generator: torch.randn(shape, generator=generator)


def signs(*shape):
    return lambda generator: torch.randint(0, 2, shape, generator=generator).float() * 2 - 1


def distribution(*shape):
    return lambda generator: torch.softmax(torch.randn(shape, generator=generator), -1)


def triangle(keep, *shape):
    return lambda generator: keep(torch.randn(shape, generator=generator))


def symmetric(n):
    def draw(generator):
        x = torch.randn(n, n, generator=generator)
        return (x + x.T) / 2

    return draw
