"""Single operators."""

import torch
import torch.nn.functional as F
from torch import nn

from .modules import Fn, Problem, distribution, normal, signs, symmetric, triangle

M, K, N = 224, 896, 448  # 1 : 4 : 2
BATCH, WIDTH = 128, 12288
IMAGE = (7, 32, 64, 64)
ROWS = (8, 256, 511)
LOSS = (1024, 1024)


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))


def problem(number, name, make, *draws):
    return Problem(1, number, name, make, draws)


def function(number, name, f, *draws):
    return problem(number, name, lambda: Fn(f), *draws)


PRODUCTS = [
    function(1, "square product", torch.matmul, normal(448, 448), normal(448, 448)),
    function(2, "product", torch.matmul, normal(M, K), normal(K, N)),
    function(3, "batched product", torch.bmm, normal(32, 64, 128), normal(32, 128, 256)),
    function(4, "matrix times vector", torch.matmul, normal(48, 65536), normal(65536, 1)),
    function(5, "matrix times number", lambda a: a * 3.14, normal(2048, 1024)),
    function(6, "product, large K", torch.matmul, normal(64, 16384), normal(16384, 64)),
    function(7, "product, small K", torch.matmul, normal(1536, 32), normal(32, 1536)),
    function(8, "product, odd extents", torch.matmul, normal(683, 247), normal(247, 493)),
    function(9, "tall times wide", torch.matmul, normal(1536, 12), normal(12, 1536)),
    function(10, "product of rank 3", torch.matmul, normal(8, 192, 384), normal(384, 144)),
    function(11, "product of rank 4", lambda a, b: torch.einsum("bijl,lk->bijk", a, b), normal(2, 24, 48, 96), normal(96, 288)),
    function(12, "diagonal times matrix", lambda a, b: a.unsqueeze(1) * b, normal(1024), normal(1024, 1024)),
    function(13, "symmetric product", torch.matmul, symmetric(448), symmetric(448)),
    function(14, "upper triangular product", lambda a, b: torch.triu(a @ b), triangle(torch.triu, 448, 448),
             triangle(torch.triu, 448, 448)),
    function(15, "lower triangular product", lambda a, b: torch.tril(a @ b), triangle(torch.tril, 448, 448),
             triangle(torch.tril, 448, 448)),
    function(16, "product, A transposed", lambda a, b: a.T @ b, normal(K, M), normal(K, N)),
    function(17, "product, B transposed", lambda a, b: a @ b.T, normal(M, K), normal(N, K)),
    function(18, "product, both transposed", lambda a, b: a.T @ b.T, normal(K, M), normal(N, K)),
]

ELEMENTWISE = [function(number, name, f, normal(BATCH, WIDTH)) for number, name, f in (
    (19, "relu", torch.relu),
    (20, "leaky relu", lambda x: F.leaky_relu(x, 0.01)),
    (21, "sigmoid", torch.sigmoid),
    (22, "tanh", torch.tanh),
    (23, "softmax", lambda x: torch.softmax(x, 1)),
    (24, "log softmax", lambda x: torch.log_softmax(x, 1)),
    (25, "swish", lambda x: x * torch.sigmoid(x)),
    (26, "gelu", F.gelu),
    (27, "selu", torch.selu),
    (28, "hard sigmoid", F.hardsigmoid),
    (29, "softplus", F.softplus),
    (30, "softsign", lambda x: x / (1 + torch.abs(x))),
    (31, "elu", lambda x: F.elu(x, 1.0)),
    (32, "hard tanh", lambda x: F.hardtanh(x, -1.0, 1.0)),
)]

# Statistics of the batch, in evaluation: a batch norm that keeps no running ones.
NORMS = [
    problem(33, "batch norm", lambda: nn.BatchNorm2d(32, track_running_stats=False), normal(8, 32, 64, 64)),
    problem(34, "instance norm", lambda: nn.InstanceNorm2d(32), normal(*IMAGE)),
    problem(35, "group norm", lambda: nn.GroupNorm(8, 32), normal(*IMAGE)),
    function(36, "rms norm over channels", lambda x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5),
             normal(*IMAGE)),
    function(37, "frobenius norm", lambda x: x / torch.norm(x, p="fro"), normal(*IMAGE)),
    function(38, "L1 norm", lambda x: x / torch.mean(torch.abs(x), dim=1, keepdim=True), normal(128, 8191)),
    function(39, "L2 norm", lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True), normal(128, 8191)),
    problem(40, "layer norm", lambda: nn.LayerNorm((16, 64, 64)), normal(16, 16, 64, 64)),
]

REDUCTIONS = [function(number, name, f, normal(*ROWS)) for number, name, f in (
    (47, "sum over rows", lambda x: torch.sum(x, dim=1, keepdim=True)),
    (48, "mean over rows", lambda x: torch.mean(x, dim=1)),
    (49, "maximum over rows", lambda x: torch.max(x, dim=1)[0]),
    (53, "minimum over rows", lambda x: torch.min(x, dim=1)[0]),
)]

REST = [
    function(88, "new gelu", new_gelu, normal(1024, 1024)),
    function(94, "squared error", lambda p, t: torch.mean((p - t) ** 2), normal(*LOSS), normal(*LOSS)),
    function(96, "huber loss", F.smooth_l1_loss, normal(*LOSS), normal(*LOSS)),
    function(97, "attention", F.scaled_dot_product_attention, *[normal(1, 8, 128, 256)] * 3),
    function(98, "KL divergence", lambda p, t: F.kl_div(torch.log(p), t, reduction="batchmean"), distribution(*LOSS),
             distribution(*LOSS)),
    problem(99, "triplet margin", lambda: nn.TripletMarginLoss(margin=1.0), *[normal(1024, 1024)] * 3),
    function(100, "hinge loss", lambda p, t: torch.mean(torch.clamp(1 - p * t, min=0)), normal(*LOSS), signs(LOSS[1])),
]

PROBLEMS = PRODUCTS + ELEMENTWISE + NORMS + REDUCTIONS + REST
