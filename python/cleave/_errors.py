"""The exceptions of the package. Each has the message's code ("CLV3012"), the node or option that is meant, and a hint."""

from __future__ import annotations

import re


class Error(Exception):
    """Something did not work; the text is what the command would print."""

    own_code = ""  # of what the package itself finds, before the library is asked

    def __init__(self, message: str, code: str = "", node: str = "", hint: str = ""):
        super().__init__(message)
        self.code = code or self.own_code
        self.node = node
        self.hint = hint


class InvalidError(Error, ValueError):
    """A text, a model, a shape, an array or an option is wrong."""

    own_code = "CLV8001"


class UnsupportedError(Error, NotImplementedError):
    """An operator, a type, a device or a target that this version lacks."""

    own_code = "CLV8002"


class IndexRangeError(InvalidError, IndexError, RuntimeError):
    """An index lies outside its axis. Eager's operators raise IndexError or RuntimeError."""


class DivisionError(InvalidError, ZeroDivisionError, RuntimeError):
    """Integers are divided by 0."""


class VerifyError(Error):
    """A kernel or a certificate did not pass its verification."""


class ToolchainError(Error):
    """The compiler, the device or stored object code does not work."""


class InternalError(Error, RuntimeError):
    """A fault of Cleave itself."""


# In the order of cleave::Error::Kind.
_KINDS = (InvalidError, UnsupportedError, VerifyError, ToolchainError, Error, InternalError)


# Options of the command, as the library's messages name them -> what callers of the package write instead.
_OPTIONS = tuple((re.compile(option), text) for option, text in (
    (r"with --dim or in its declaration", "in `dynamic_shapes` (torch.export.Dim), in `dims` or in its declaration"),
    (r"`?--dim NAME=LO\.\.HI@N`?", '`dims={"NAME": "LO..HI@N"}`'),
    (r"`?--dim ([\w.{}]+)=N`?", r'`dims={"\1": N}`'),
    (r"`?--dim\b`?", "`dims`"),
    (r"`?--(budget|threads|target)(?: (\w+))?`?", lambda m: f"`{m[1]}={m[2] or ''}`"),
    (r"`--db FILE`|`--no-cache`", "`cache_dir`"),
    (r"--(deterministic|disable)\b", r"`\1`"),
    (r"`cleave show --operators` lists them", "docs/graph.md lists them")))
# What to do about errors for which the library has no hint.
_HINTS = {"CLV2014": "a wider range of the dimension: torch.export.Dim(min=, max=) in `dynamic_shapes`, or `dims`",
          "CLV5003": 'torch.export.Dim("L", min=1) in `dynamic_shapes`, or dims={"L": "1..512"}, begins a range higher',
          "CLV7006": "`program.inputs` lists types and shapes",
          "CLV7012": "`out` takes memory of its own for each of `program.outputs`, which has its type and shape"}


def in_python(text: str) -> str:
    """A message of the library without options of the command."""
    for option, instead in _OPTIONS:
        text = option.sub(instead, text)
    return text


def make(kind: int, code: str, node: str, hint: str, message: str) -> Error:
    return _KINDS[kind](in_python(message), code, node, in_python(hint) or _HINTS.get(code, ""))


# Programs made of PyTorch have a further output, a bool, for each check that needs what the program computes: FLAG, kind, node.
# NEVER is that of a program that computes nothing: it never holds.
FLAG, INDEX, ZERO, NEVER = "check__", "index", "zero", "never"


def outside(node: str, value, extent) -> str:
    return f"`{node}`: the index {value} is outside an axis of {extent}"


def zero(node: str) -> str:
    return f"`{node}`: integers are divided by 0"


def raise_flag(name: str):
    """The error of a further output that holds."""
    kind, node = name[len(FLAG):].split("_", 1)
    if kind == ZERO:
        raise DivisionError(zero(node), node=node)
    raise IndexRangeError(f"`{node}`: an index is outside its axis", node=node)
