"""ONNX Runtime on the CPU, all graph optimisations."""

import onnxruntime
import torch

from . import Skip
from .onnx_model import model_of


class OnnxRuntime:
    name = "onnxruntime"
    version = f"onnxruntime {onnxruntime.__version__}"

    def __init__(self, threads):
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1
        self.options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.options.log_severity_level = 4

    def prepare(self, row, dtype, module, inputs):
        if dtype == "bf16":
            raise Skip("no bf16 on the CPU")
        try:
            session = onnxruntime.InferenceSession(model_of(module, inputs), self.options,
                                                   providers=["CPUExecutionProvider"])
        except Skip:
            raise
        except Exception as why:  # noqa: BLE001
            raise Skip(str(why).splitlines()[0][:120]) from why
        binding = session.io_binding()
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy()) for x in inputs]
        for argument, value in zip(session.get_inputs(), values):
            binding.bind_ortvalue_input(argument.name, value)
        for result in session.get_outputs():
            binding.bind_output(result.name, "cpu")

        def run():
            session.run_with_iobinding(binding)

        for _ in range(3):
            run()
        return run, lambda: [torch.from_numpy(x.numpy()) for x in binding.get_outputs()]
