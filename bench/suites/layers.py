"""One layer each of GPT-2, Llama 3 8B and Qwen3 32B, scaled, prefill and decode with a cache (bench/problems/layers.py)."""

import inspect

from problems import layers
from problems.module_row import ModuleRow
from problems.modules import normal


def row(name, kind, sizes, batch, s, length):
    past = [normal(batch, sizes.groups, length - s, sizes.d)] * 2 if length > s else []
    return ModuleRow(name, {"b": batch, "s": s, "l": length}, lambda: kind(sizes, length - s, s),
                     (normal(batch, s, sizes.width), *past), inspect.getsource(layers), cold=name == "gpt2_full")


def rows(options=None):
    return [row(name, kind, sizes, *point) for name, kind, sizes, points in layers.LAYERS for point in points]
