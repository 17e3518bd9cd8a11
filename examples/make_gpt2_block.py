#!/usr/bin/env python3
"""Exports one transformer block of GPT-2's size (width 768, 12 heads, causal) from PyTorch to ONNX.

usage: python3 examples/make_gpt2_block.py [--verify]

Writes examples/gpt2_block.onnx and examples/gpt2_block.weights.txt. The weights are not in the model: they lie in an
external data file, examples/gpt2_block.weights, that tools/make_weights writes from the recipe (`make weights`), here
and on machines without PyTorch alike (docs/decisions/0002-onnx-example-weights.md).

With --verify also writes tests/data/gpt2_block_rows.npy: rows 0, 1, 63 and 127 of PyTorch's float64 result for the
input of verification_input(), which the import's test computes too.
Needs torch, onnx and onnxscript; made with torch 2.13.0.
"""

import argparse
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("make_weights", str(ROOT / "tools" / "make_weights"))
SPEC = importlib.util.spec_from_loader("make_weights", LOADER)
make_weights = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(make_weights)

WIDTH, HEADS, SEQUENCE = 768, 12, 128


class Conv1D(nn.Module):
    """GPT-2's linear layer: its weight is stored as (inputs, outputs), so the exporter has nothing to transpose."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(nn.Module):
    """GPT-2's block: pre-norm causal attention and a four times wider GELU layer, each with a residual."""

    def __init__(self):
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.qkv = Conv1D(WIDTH, 3 * WIDTH)
        self.projection = Conv1D(WIDTH, WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.up = Conv1D(WIDTH, 4 * WIDTH)
        self.down = Conv1D(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).split(WIDTH, dim=2)
        q, k, v = (t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


def recipe_lines(block):
    """Scales as in GPT-2's initialisation: 0.02 times the square root of three for a uniform distribution."""
    for name, parameter in block.named_parameters():
        if name.startswith("norm") and name.endswith("weight"):
            yield f"{name} {parameter.numel()} 0.25 1.0"
        elif name.endswith("bias"):
            yield f"{name} {parameter.numel()} 0.02 0.0"
        else:
            yield f"{name} {parameter.numel()} 0.035 0.0"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--dynamic", metavar="FILE", help="also export with a dynamic batch and length to FILE")
    options = parser.parse_args()

    block = Block().eval()
    recipe = HERE / "gpt2_block.weights.txt"
    recipe.write_text("# Weights of gpt2_block.onnx, see tools/make_weights: NAME COUNT SCALE OFFSET\n"
                      + "\n".join(recipe_lines(block)) + "\n")
    weights_file = make_weights.write(recipe)
    rows, _ = make_weights.read_recipe(recipe)
    places = {name: (position, 4 * count) for name, count, _, _, position in rows}
    data = weights_file.read_bytes()
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            position, size = places[name]
            values = np.frombuffer(data, dtype="<f4", count=size // 4, offset=position)
            parameter.copy_(torch.from_numpy(values.copy()).reshape(parameter.shape))

    x = verification_input()
    export(block, x, None, HERE / "gpt2_block.onnx", places)
    if options.dynamic:
        shapes = {"x": {0: torch.export.Dim("batch", min=1, max=8), 1: torch.export.Dim("length", min=2, max=1024)}}
        export(block, x, shapes, Path(options.dynamic), places)
    if options.verify:
        with torch.no_grad():
            y = block.double()(x.double())
        np.save(ROOT / "tests" / "data" / "gpt2_block_rows.npy", y[0, [0, 1, 63, 127]].numpy())


def verification_input():
    """Element i is (7919 i mod 2003) / 1001.5 - 1, rounded to float32."""
    i = np.arange(SEQUENCE * WIDTH, dtype=np.int64)
    return torch.from_numpy(((i * 7919 % 2003) / 1001.5 - 1).astype(np.float32)).reshape(1, SEQUENCE, WIDTH)


def export(block, x, dynamic_shapes, target, places):
    program = torch.onnx.export(block, (x,), input_names=["x"], output_names=["y"], dynamo=True,
                                dynamic_shapes=dynamic_shapes, verbose=False)
    model = program.model_proto
    for tensor in model.graph.initializer:
        if tensor.name not in places:
            assert len(tensor.raw_data) < 100_000, f"{tensor.name} would bloat the model"
            continue
        position, size = places[tensor.name]
        assert len(tensor.raw_data) == size, tensor.name
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
        for key, value in (("location", "gpt2_block.weights"), ("offset", position), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
    # Source positions and exporter notes would be most of the file.
    for node in model.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    for value in [*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer]:
        del value.metadata_props[:]
    target.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
