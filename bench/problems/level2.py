"""A linear layer and what follows it."""

import torch
import torch.nn.functional as F
from torch import nn

from .modules import After, Problem, normal

ROWS, WIDTH = 96, 768  # 1 : 8, as 1024 : 8192
NARROW = (512, 256, 256)  # rows, inputs, outputs: many rows, as 16384 with 4096
WIDE = (16, 1536, 1536)  # few rows, as 128 with 32768


def linear(number, name, f, shape=(ROWS, WIDTH, WIDTH), bias=True, more=(), **parts):
    rows, inputs, outputs = shape
    return Problem(2, number, name, lambda: After(nn.Linear(inputs, outputs, bias=bias), f, **made(parts)),
                   (normal(rows, inputs), *more))


def made(parts):
    """Weights by their shape; what is callable is a submodule to be made."""
    return {name: part() if callable(part) else part for name, part in parts.items()}


def swish(x):
    return torch.sigmoid(x) * x


def batch_norm(width=WIDTH):
    return lambda: nn.BatchNorm1d(width, track_running_stats=False)  # statistics of the batch


def group_norm(groups, width=WIDTH):
    return lambda: nn.GroupNorm(groups, width)


def summaries(m, x):
    x = torch.max(torch.sum(x, 1, keepdim=True), 1, keepdim=True)[0]
    x = torch.mean(x, 1, keepdim=True)
    return torch.logsumexp(torch.logsumexp(x, 1, keepdim=True), 1, keepdim=True)


def scaled_residual(m, x):
    x = x * 2.0
    x = torch.clamp(x + x, -10.0, 10.0)
    x = torch.logsumexp(x, 1, keepdim=True)
    return x * F.mish(x)


def instance_norm_residual(m, x, y):
    x = F.instance_norm(x.unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1)
    return (x + y) * y


def pooled(x, given):
    x = torch.mean(x, 1, keepdim=True)
    return F.gelu(torch.logsumexp(x, 1, keepdim=True)) + given


def lows(m, x):
    return torch.logsumexp(x, 1, keepdim=True)


def four_gates(m, x):
    x = F.leaky_relu(F.leaky_relu(lows(m, x), 0.01), 0.01)
    return F.gelu(F.gelu(x))


def centred(m, x):
    x = torch.max(x, 1, keepdim=True).values
    return F.gelu(x - x.mean(1, keepdim=True))


class Pooled(nn.Module):
    """A linear layer, a subtraction, a mean over the row and its gate, added to the input."""

    def __init__(self, width):
        super().__init__()
        self.layer, self.subtract = nn.Linear(width, width), nn.Parameter(torch.randn(width))

    def forward(self, x):
        return pooled(self.layer(x) - self.subtract, x)


PROBLEMS = [
    linear(9, "linear, subtract, multiply, relu", lambda m, x: torch.relu((x - 2.0) * 1.5)),
    linear(12, "linear, multiply, leaky relu", lambda m, x: F.leaky_relu(x * 2.0, 0.1)),
    linear(14, "product, divide, sum, scale", lambda m, x: torch.sum(x / 2, dim=1, keepdim=True) * 1.5, bias=False),
    linear(18, "linear, sum, max, mean, logsumexp twice", summaries),
    linear(22, "linear, scale, residual, clamp, logsumexp, mish", scaled_residual),
    linear(28, "linear, instance norm, residual, multiply", instance_norm_residual, more=(normal(ROWS, WIDTH),)),
    linear(29, "linear, mish, mish", lambda m, x: F.mish(F.mish(x))),
    linear(30, "linear, group norm, hard tanh", lambda m, x: F.hardtanh(m.v(x), -2.0, 2.0), v=group_norm(16)),
    linear(33, "linear, scale, batch norm", lambda m, x: m.v(x * m.w), w=(WIDTH,), v=batch_norm()),
    linear(37, "linear, swish, sum, group norm", lambda m, x: m.v(swish(x) + m.w), shape=(512, 192, 768), w=(768,),
           v=group_norm(12)),
    linear(39, "linear, scale, batch norm, many rows", lambda m, x: m.v(x * m.w), shape=NARROW, w=(256,), v=batch_norm(256)),
    linear(40, "linear, scale, residual", lambda m, x: x * 0.5 + x, shape=NARROW),
    linear(41, "linear, batch norm, gelu, relu", lambda m, x: torch.relu(F.gelu(m.v(x))), shape=NARROW, v=batch_norm(256)),
    linear(45, "linear, sigmoid, linear, logsumexp", lambda m, x: torch.logsumexp(m.v(torch.sigmoid(x)), dim=1),
           shape=(512, 192, 384), v=lambda: nn.Linear(384, 96)),
    Problem(2, 51, "linear, subtract, mean, logsumexp, gelu, residual", lambda: Pooled(WIDTH), (normal(ROWS, WIDTH),)),
    linear(53, "linear, scale, hard tanh, gelu", lambda m, x: F.gelu(F.hardtanh(x * 0.5, -2, 2))),
    linear(56, "linear, sigmoid, sum", lambda m, x: torch.sum(torch.sigmoid(x), dim=1, keepdim=True), shape=WIDE),
    linear(59, "linear, swish, scale", lambda m, x: x * torch.sigmoid(x) * 2.0, shape=WIDE, bias=False),
    linear(62, "linear, group norm, leaky relu, sum", lambda m, x: (lambda y: y + y)(F.leaky_relu(m.v(x), 0.01)),
           v=group_norm(48)),
    linear(63, "linear, relu, divide", lambda m, x: torch.relu(x) / 2.0),
    linear(64, "linear, logsumexp, leaky relu twice, gelu twice", four_gates),
    linear(68, "linear, minimum, subtract", lambda m, x: torch.min(x, m.w) - m.w, shape=WIDE, w=()),
    linear(70, "linear, sigmoid, scale, residual", lambda m, x: torch.sigmoid(x) * 2.0 + x),
    linear(75, "linear, group norm, min, bias", lambda m, x: torch.min(m.v(x), dim=1, keepdim=True)[0] + m.w,
           w=(1, WIDTH, 1, 1), v=group_norm(48)),
    linear(76, "product, bias, relu", lambda m, x: torch.relu(x + m.w), bias=False, w=(WIDTH,)),
    linear(80, "linear, max, subtract, gelu", centred),
    linear(81, "linear, swish, divide, clamp, tanh, clamp",
           lambda m, x: torch.clamp(torch.tanh(torch.clamp(swish(x) / 2.0, -1.0, 1.0)), -1.0, 1.0)),
    linear(84, "linear, batch norm, scale, softmax", lambda m, x: torch.softmax(m.w * m.v(x), 1), w=(1,), v=batch_norm()),
    linear(86, "linear, divide, gelu", lambda m, x: F.gelu(x / 10.0)),
    linear(88, "linear, group norm, swish, multiply, swish", lambda m, x: swish(swish(m.v(x)) * m.w), w=(WIDTH,),
           v=group_norm(24)),
    linear(94, "linear, bias, hard tanh, mish, group norm", lambda m, x: m.v(F.mish(F.hardtanh(x + m.w))), w=(WIDTH,),
           v=group_norm(24)),
    linear(95, "linear, add, swish, tanh, gelu, hard tanh",
           lambda m, x: F.hardtanh(F.gelu(torch.tanh(swish(x + m.w))), -1, 1), w=(WIDTH,)),
    linear(97, "linear, batch norm, bias, divide, swish", lambda m, x: swish((m.v(x) + m.w) / 1.0), w=(1,), v=batch_norm()),
    linear(99, "linear, gelu, softmax", lambda m, x: torch.softmax(F.gelu(x), dim=1)),
]
