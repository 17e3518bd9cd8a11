"""Peers of bench/run, each behind one adapter.

An adapter has `name`, `version` and `prepare(row, dtype, module, inputs)`, which returns two functions without
arguments: one that runs once, one that returns the output or all outputs; or raises Skip with the reason.
"""

import importlib


class Skip(Exception):
    pass


# name on the command line -> (file here, class)
TABLE = {
    "eager": ("pytorch", "Eager"),
    "torch-compile": ("pytorch", "Compiled"),
    "torch-compile-frozen": ("pytorch", "Frozen"),
    "torch-compile-max": ("pytorch", "MaxAutotune"),
    "onnxruntime": ("onnx_runtime", "OnnxRuntime"),
    "openvino": ("open_vino", "OpenVino"),
}


def peer(name, threads):
    """The adapter of that name, or Skip when what it needs is not installed."""
    if name not in TABLE:
        raise SystemExit(f"bench: the peer `{name}` is not known; there are: {', '.join(TABLE)}")
    file, kind = TABLE[name]
    try:
        return getattr(importlib.import_module(f"peers.{file}"), kind)(threads)
    except ImportError as why:
        raise Skip(f"{name}: {why}") from why
