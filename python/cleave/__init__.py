"""Cleave: finds equal graphs that are cheaper to run, schedules them into fused kernels, verifies and measures them.

    import cleave
    res = cleave.optimize(fn, (q, k, v))   # a function or module of PyTorch, an ExportedProgram, a .graph or .onnx file
    out = res(q, k, v)                     # numpy, torch, anything with __dlpack__; nothing is copied

See docs/python.md."""

from ._errors import Error, InternalError, InvalidError, ToolchainError, UnsupportedError, VerifyError
from ._native import version as __version__
from .graph import Graph, Value
from .result import Program, Result, compile, load, optimize


def __getattr__(name: str):
    """cleave.backend and cleave.leir are taken up when they are first asked for: one needs torch, both cost time."""
    if name not in ("backend", "leir"):
        raise AttributeError(f"module 'cleave' has no attribute '{name}'")
    import importlib

    try:
        return importlib.import_module(f"cleave.{name}")
    except ImportError as error:
        raise AttributeError(f"cleave.{name} cannot be imported: {error}") from error


__all__ = ["Error", "Graph", "InternalError", "InvalidError", "Program", "Result", "ToolchainError", "UnsupportedError", "Value",
           "VerifyError", "compile", "load", "optimize", "__version__"]
