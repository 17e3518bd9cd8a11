"""PyTorch: eager, and torch.compile at its defaults, frozen, and at max-autotune with frozen weights."""

import torch


class Eager:
    name = "eager"
    version = f"torch {torch.__version__}"

    def __init__(self, threads):
        torch.set_num_threads(threads)

    def compile(self, module):
        return module

    def prepare(self, row, dtype, module, inputs):
        module = self.compile(module)
        with torch.inference_mode(False), torch.no_grad():
            for _ in range(3):
                module(*inputs)

        def run():
            with torch.no_grad():
                return module(*inputs)

        return run, run


class Compiled(Eager):
    name = "torch-compile"
    freezing, mode = False, "default"

    def compile(self, module):
        import torch._inductor.config as config

        torch._dynamo.reset()
        config.freezing = self.freezing
        return torch.compile(module, mode=self.mode, dynamic=False)


class Frozen(Compiled):
    name = "torch-compile-frozen"
    freezing = True


class MaxAutotune(Compiled):
    name = "torch-compile-max"
    freezing, mode = True, "max-autotune"
