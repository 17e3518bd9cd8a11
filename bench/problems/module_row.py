"""A row of a suite that is a PyTorch module."""

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass
class ModuleRow:
    name: str
    point: dict
    make: object  # () -> torch.nn.Module, with the weights that PyTorch draws
    draws: tuple  # of functions: torch.Generator -> an input
    source: str  # the text that says what is computed
    attention: bool = False
    cold: bool = False
    flops: float = 0  # of the products; filled by build, like the next
    elements: float = 0  # read and written once
    entry = "package"

    @property
    def title(self):
        return " ".join([self.name, *(f"{k}{v}" for k, v in self.point.items())])

    def build(self, dtype):
        """The module in evaluation mode, always with the same weights."""
        torch.manual_seed(1)
        module = self.make().eval().requires_grad_(False)
        inputs = self.data("f32")
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            results = module(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        self.flops = counter.get_total_flops()
        self.elements = sum(x.numel() for x in [*inputs, *module.parameters(), *results])
        return module.to(DTYPES[dtype])

    def data(self, dtype):
        generator = torch.Generator().manual_seed(2)
        drawn = [draw(generator) for draw in self.draws]
        return [x.to(DTYPES[dtype]) if x.is_floating_point() else x for x in drawn]
