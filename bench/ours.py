"""Our side of a comparison. `optimize(row, dtype, module, inputs)` gives a Made; artefacts are kept in the cache folder and made
again for another compiler, budget or source.

Command: a graph text through `cleave optimize`, entered through the shared library of its artefact.
Package: a PyTorch module through `cleave.optimize`, entered as `program(*tensors)`.
"""

import ctypes
import json
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch

DESCR = {"f32": "<f4", "f64": "<f8", "f16": "<f2", "bf16": "|V2"}


class Failed(Exception):
    """The row cannot be optimised, and why."""


@dataclass
class Made:
    facts: dict  # for the report
    run: object  # computes once, gives the results
    error: object = None  # when something else has checked the result


def facts_of(result):
    """What the report of `optimize` says for a row of ours."""
    return {"predicted_ms": result["chosen"]["predicted_ms"], "unfused": result["chosen"]["unfused"],
            "speedup_over_unfused": result["speedup"]}


def write_npy(path, tensor, dtype):
    header = repr({"descr": DESCR[dtype], "fortran_order": False, "shape": tuple(tensor.shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    raw = tensor.contiguous().view(torch.int16).numpy().tobytes() if dtype == "bf16" else tensor.contiguous().numpy().tobytes()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + raw)


class Cached:
    """Artefacts by row: `make(folder)` fills a folder and gives the report, when the key has changed."""

    def __init__(self, options, stamp):
        self.options, self.stamp = options, f"{zlib.crc32(Path(stamp).read_bytes()):08x}"

    def artefact(self, row, dtype, source, make):
        title = "".join(c if c.isalnum() else "_" for c in row.title)
        folder = Path(self.options.cache) / f"{title}_{dtype}_t{self.options.threads}"
        key = json.dumps([self.stamp, source, self.options.budget, self.options.option])
        if not ((folder / "key").exists() and (folder / "key").read_text() == key):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "result.json").write_text(json.dumps(make(folder)))
            (folder / "key").write_text(key)
        return folder / "out", json.loads((folder / "result.json").read_text())


class Command(Cached):
    def __init__(self, options):
        super().__init__(options, options.cleave)

    def optimize(self, row, dtype, module, inputs):
        if row.folder:  # somebody's artefact: it has its own weights, and is checked by the command
            out, result = row.folder, self.said("run", str(row.folder), "--check")
            error, facts = result["error"]["max_rel"], {"predicted_ms": None, "unfused": None, "speedup_over_unfused": None}
        else:
            text = row.graph.replace("{t}", dtype)
            out, result = self.artefact(row, dtype, text, lambda folder: self.make(folder, text, dtype, module))
            error, facts = None, facts_of(result)
        return Made(facts, self.entered(out, inputs), error)

    def said(self, *words):
        done = subprocess.run([self.options.cleave, *words, "--json"], capture_output=True, text=True)
        if done.returncode:
            raise Failed(done.stderr.strip()[:400])
        return json.loads(done.stdout)

    def make(self, folder, text, dtype, module):
        weights = dict(module.named_parameters())
        for name, tensor in weights.items():
            write_npy(folder / f"{name}.npy", tensor.detach(), dtype)
        (folder / "row.graph").write_text(text)
        try:
            return self.said("optimize", str(folder / "row.graph"), "--threads", str(self.options.threads), "--budget",
                             self.options.budget, "-o", str(folder / "out"), *self.options.option)
        finally:
            for name in weights:  # the artefact has its own
                (folder / f"{name}.npy").unlink()

    def entered(self, out, inputs):
        library = ctypes.CDLL(str(next(out.glob("lib*.so"))))
        name = next(out.glob("*.h")).stem
        getattr(library, f"{name}_set_threads")(self.options.threads)
        run = getattr(library, f"{name}_run")
        shape = json.loads((out / "manifest.json").read_text())["arguments"]["outputs"][0]["shape"]
        result = torch.full(shape, float("nan"), dtype=inputs[0].dtype)
        pointers = (ctypes.c_void_p * len(inputs))(*[x.data_ptr() for x in inputs])
        outputs = (ctypes.c_void_p * 1)(result.data_ptr())
        keep = (library, pointers, outputs, inputs)

        def call():
            status = run(pointers, None, outputs, None)
            if status:
                raise RuntimeError(f"{name}_run returned {status}")
            return keep and result

        call()
        return call


class Package(Cached):
    def __init__(self, options):
        sys.path.insert(0, options.package)
        try:
            import cleave
        except ImportError as why:
            sys.exit(f"bench: the Python package is not there ({why}): make python, or --package FOLDER")
        self.cleave = cleave
        super().__init__(options, cleave._native.__file__)
        self.stamp += f" {zlib.crc32(b''.join(p.read_bytes() for p in sorted(Path(cleave.__file__).parent.glob('*.py')))):08x}"

    def optimize(self, row, dtype, module, inputs):
        out, result = self.artefact(row, dtype, row.source, lambda folder: self.make(folder, module, inputs))
        program = self.cleave.load(out)
        return Made(facts_of(result), lambda: program(*inputs))

    def make(self, folder, module, inputs):
        try:
            result = self.cleave.optimize(module, tuple(inputs), budget=self.options.budget, threads=self.options.threads)
            result.export(folder / "out")
            return result.details
        except self.cleave.Error as why:
            raise Failed(f"{why.code}: {why}"[:400]) from why


def ours(name, options):
    return {"command": Command, "package": Package}[name](options)
