"""The exceptions of the package. Each has the message's code ("CLV3012"), the node or option that is meant, and a hint."""

from __future__ import annotations


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


def make(kind: int, code: str, node: str, hint: str, message: str) -> Error:
    return _KINDS[kind](message, code, node, hint)


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
