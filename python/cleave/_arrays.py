"""Arrays of the caller: torch tensors, numpy arrays, anything with __dlpack__; nothing is copied on the way in."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading

from . import _native
from ._errors import Error, InvalidError, UnsupportedError

_NUMPY = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
          "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool"}
DTYPES = {**_NUMPY, "bf16": "bfloat16"}


def _torch():
    return sys.modules.get("torch")


def is_torch(array) -> bool:
    torch = _torch()
    return torch is not None and isinstance(array, torch.Tensor)


def given(array, name: str = ""):
    """What is handed to the library for the input `name`: the array itself, without gradients."""
    try:
        return _given(array)
    except Error as error:
        if not name:
            raise
        raise type(error)(f"`{name}`: {error}", error.code, name, error.hint) from None


def _given(array):
    if is_torch(array):
        return _tensor(array)
    if type(array).__module__ != "numpy" and hasattr(array, "shape") and _has_memory(array):
        return array
    import numpy

    shown = f"a {type(array).__name__}"
    if not isinstance(array, numpy.ndarray):
        try:
            array = numpy.from_dlpack(array) if hasattr(array, "__dlpack__") else numpy.asarray(array)
        except (TypeError, ValueError, BufferError, RuntimeError) as error:
            raise InvalidError(f"{shown} is no array: {error}",
                               hint="numpy arrays, torch tensors and what has __dlpack__ are arrays") from None
    if not array.dtype.isnative:
        raise InvalidError(f"an array's numbers are in another order of bytes than this machine's ({array.dtype.str})",
                           node=array.dtype.str, hint='x.astype(x.dtype.newbyteorder("="))')
    if array.dtype.kind not in "biufc" and not (array.dtype.kind == "V" and array.dtype.names is None):
        if not array.ndim:
            raise InvalidError(f"{shown} is no array", hint="numpy arrays, torch tensors and what has __dlpack__ are arrays")
        raise UnsupportedError(f"arrays of {array.dtype} are not supported", node=str(array.dtype),
                               hint=f"convert it to one of {' '.join(DTYPES)}")
    return array if array.flags.aligned else array.copy()


def _has_memory(array) -> bool:
    return hasattr(array, "__dlpack__") or hasattr(array, "__array_interface__")


def _tensor(array):
    torch = _torch()
    if array.device.type != "cpu":
        raise UnsupportedError(f"a tensor lies on {array.device}; this version runs on the CPU", hint="x.cpu()")
    if array.layout != torch.strided:
        raise UnsupportedError(f"a tensor has the layout {array.layout}, dense ones are supported", node=str(array.layout),
                               hint="x.to_dense()")
    if array.is_quantized or array.is_nested:
        raise UnsupportedError(f"{'quantized' if array.is_quantized else 'nested'} tensors are not supported",
                               hint="x.dequantize()" if array.is_quantized else "torch.nested.to_padded_tensor(x, 0.0)")
    array = array.detach()
    return array.resolve_conj().resolve_neg() if array.is_conj() or array.is_neg() else array


def target(array):
    """The same for memory that a result is written to."""
    flags = getattr(array, "flags", None)
    if is_torch(array) and (array.is_conj() or array.is_neg()):
        raise InvalidError("a tensor of `out` is a view that turns signs", node="out", hint="torch.empty_like(x) is none")
    if type(array).__module__ == "numpy" and flags is not None and not flags.aligned:
        raise InvalidError("an array of `out` is not aligned to its elements", node="out", hint="np.empty makes arrays that are")
    array = given(array) if is_torch(array) or type(array).__module__ == "numpy" else array
    if flags is not None and not getattr(flags, "writeable", True):
        raise InvalidError("an array of `out` is read-only", node="out", hint="np.empty makes arrays that are not")
    if not is_torch(array) and not _has_memory(array):
        raise InvalidError(f"a {type(array).__name__} in `out` has no memory that a result can be written to", node="out",
                           hint="an array of numpy or a tensor")
    return array


def shape(array) -> list:
    return [int(n) for n in array.shape]


def empty(like_torch: bool, dtype: str, extents):
    """A dense array for a result: a torch tensor if the inputs are, else a numpy array."""
    if like_torch or dtype == "bf16":
        torch = _torch()
        if torch is None:
            raise UnsupportedError("numpy has no bf16", code="", hint="import torch first, results are torch tensors then")
        return torch.empty(list(extents), dtype=getattr(torch, DTYPES[dtype]))
    import numpy

    dtype = numpy.dtype(_NUMPY[dtype])
    size = math.prod(extents) * dtype.itemsize
    if size < 1 << 20:
        return numpy.empty(list(extents), dtype=dtype)
    # Large ones begin a line, as torch's do: such rows may be stored past the caches.
    memory = numpy.empty(size + 64, dtype=numpy.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(list(extents))


def dtype_name(array) -> str:
    """The name that the graph language has for an array's element type."""
    text = str(array.dtype).rsplit(".", 1)[-1]
    for name, spelled in DTYPES.items():
        if text == spelled:
            return name
    raise InvalidError(f"arrays of {text} are not supported", hint=" ".join(DTYPES))


def current_threads() -> int:
    """As many threads as torch uses, or OMP_NUM_THREADS, or the cores of this process."""
    torch = _torch()
    if torch is not None:
        return torch.get_num_threads()
    text = os.environ.get("CLEAVE_THREADS") or os.environ.get("OMP_NUM_THREADS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_pools: dict = {}
_pools_lock = threading.Lock()


def pool(threads: int):
    """The threads that all programs of this process share, or None for the calling thread alone."""
    if threads <= 1:
        return None
    with _pools_lock:
        if threads not in _pools:
            _pools[threads] = _native.Threads(threads)
        return _pools[threads]


def _forget_pools():
    """A child process has none of its parent's threads; their handles must not be destroyed, which would wait for them."""
    global _pools_lock
    _pools_lock = threading.Lock()
    for handle in _pools.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
