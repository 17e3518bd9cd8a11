"""OpenVINO on the CPU, tuned for latency."""

import openvino
import torch

from . import Skip
from .onnx_model import model_of


class OpenVino:
    name = "openvino"
    version = f"openvino {openvino.__version__.split('-')[0]}"

    def __init__(self, threads):
        self.core = openvino.Core()
        self.threads = threads

    def prepare(self, row, dtype, module, inputs):
        if dtype == "bf16":
            raise Skip("no bf16 tensors in its Python interface")
        precision = {"f32": "f32", "f16": "f16"}[dtype]
        try:
            compiled = self.core.compile_model(
                self.core.read_model(model_of(module, inputs)), "CPU",
                {"INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                 "INFERENCE_PRECISION_HINT": "f32" if precision == "f32" else "f16"})
        except Skip:
            raise
        except Exception as why:  # noqa: BLE001
            raise Skip(str(why).splitlines()[0][:120]) from why
        request = compiled.create_infer_request()
        for i, x in enumerate(inputs):
            request.set_input_tensor(i, openvino.Tensor(x.numpy(), shared_memory=True))

        for _ in range(3):
            request.infer()
        return request.infer, lambda: [torch.from_numpy(request.get_output_tensor(i).data.copy())
                                       for i in range(len(compiled.outputs))]
