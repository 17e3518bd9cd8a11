"""LEIR from PyTorch: `translate(module, inputs)` gives a program, its inputs and its outputs. Needs torch and numpy."""

from .translate import Program, Unsupported, translate

__all__ = ["Program", "Unsupported", "translate"]
