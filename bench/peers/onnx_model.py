"""A row as an ONNX model, exported by PyTorch."""

import io

import torch

from . import Skip


def model_of(module, inputs):
    buffer = io.BytesIO()
    try:
        with torch.no_grad():
            torch.onnx.export(module, tuple(inputs), buffer, dynamo=True, verbose=False, optimize=True)
    except Exception as why:  # noqa: BLE001 - the exporter raises whatever it likes
        raise Skip(f"export failed: {str(why).splitlines()[0][:120]}") from why
    return buffer.getvalue()
