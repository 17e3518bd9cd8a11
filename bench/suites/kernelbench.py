"""The 93 problems of KernelBench that are made of products, elementwise operators, reductions and views, as PyTorch modules
(bench/problems), with constant weights, through the Python package."""

import inspect

from problems import level1, level2, level3, modules
from problems.module_row import ModuleRow


def rows(options=None):
    out = []
    for level in (level1, level2, level3):
        source = inspect.getsource(level) + inspect.getsource(modules)
        for p in level.PROBLEMS:
            out.append(ModuleRow(f"{p.level}.{p.id} {p.name}", {}, p.make, p.draws, source, attention="attention" in p.name))
    return out
