"""One row: the program of an artefact folder against its input graph under the peers (`bench/run artefact --folder OUT`)."""

import json
from pathlib import Path

import graph_module

from .subgraphs import Row, module


def rows(options):
    if options.folder is None:
        raise SystemExit("bench: the suite `artefact` needs --folder OUT")
    folder = Path(options.folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    try:
        inputs, constants, run = graph_module.function((folder / "graph/input.graph").read_text())
    except graph_module.Unsupported as why:
        raise SystemExit(f"bench: {folder}: peers cannot run {why}") from why
    kinds = {dtype for dtype, _ in inputs.values()} | {dtype for dtype, _ in constants.values()}
    if len(kinds) != 1 or not kinds <= {"f32", "f16", "bf16"}:
        raise SystemExit(f"bench: {folder}: its tensors are {', '.join(sorted(kinds))}; one of f32, f16, bf16 is needed")
    size = {"f32": 4}.get(next(iter(kinds)), 2)
    elements = 0
    for _, shape in [*inputs.values(), *constants.values(), ("", manifest["arguments"]["outputs"][0]["shape"])]:
        n = 1
        for e in shape:
            n *= e
        elements += n
    row = Row(manifest["name"], {}, "", module(run), {n: shape for n, (_, shape) in inputs.items()},
              {n: (shape, max(shape[-1], 1) ** -0.5, 0) for n, (_, shape) in constants.items()}, 0, elements, False,
              size * elements > 16 << 20)
    row.folder, options.dtype = folder, next(iter(kinds))
    return [row]
