"""Our side: a row optimised by the command, entered through the shared library of its artefact."""

import ctypes
import json
import struct
import subprocess
import zlib
from pathlib import Path

import torch

DESCR = {"f32": "<f4", "f64": "<f8", "f16": "<f2", "bf16": "|V2"}


def write_npy(path, tensor, dtype):
    header = repr({"descr": DESCR[dtype], "fortran_order": False, "shape": tuple(tensor.shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    raw = tensor.contiguous().view(torch.int16).numpy().tobytes() if dtype == "bf16" else tensor.contiguous().numpy().tobytes()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + raw)


class Ours:
    def __init__(self, cleave, cache, threads, budget, extra=()):
        self.cleave, self.cache, self.threads, self.budget, self.extra = cleave, Path(cache), threads, budget, list(extra)
        self.version = subprocess.run([cleave, "--version"], capture_output=True, text=True).stdout.strip()
        self.stamp = f"{zlib.crc32(Path(cleave).read_bytes()):08x}"

    def folder(self, row, dtype):
        return self.cache / f"{row.title.replace(' ', '_')}_{dtype}_t{self.threads}"

    def optimize(self, row, dtype, weights):
        """The artefact of a row; kept in the cache folder, made again for another command or graph."""
        folder = self.folder(row, dtype)
        text = row.graph.replace("{t}", dtype)
        key = json.dumps([self.stamp, text, self.budget, self.extra])
        if (folder / "key").exists() and (folder / "key").read_text() == key:
            return json.loads((folder / "result.json").read_text())
        folder.mkdir(parents=True, exist_ok=True)
        for name, tensor in weights.items():
            write_npy(folder / f"{name}.npy", tensor, dtype)
        (folder / "row.graph").write_text(text)
        done = subprocess.run([self.cleave, "optimize", str(folder / "row.graph"), "--threads", str(self.threads), "--budget",
                               self.budget, "-o", str(folder / "out"), "--json", *self.extra], capture_output=True, text=True)
        for name in weights:  # the artefact has its own
            (folder / f"{name}.npy").unlink()
        if done.returncode:
            raise RuntimeError(f"{row.title} {dtype}: {done.stderr.strip()[:400]}")
        (folder / "result.json").write_text(done.stdout)
        (folder / "key").write_text(key)
        return json.loads(done.stdout)

    def checked(self, folder):
        """What the command says of an artefact: its result is compared with float64 here."""
        done = subprocess.run([self.cleave, "run", str(folder), "--check", "--json"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{folder}: {done.stderr.strip()[:400]}")
        return {"error": json.loads(done.stdout)["error"], "speedup": None,
                "chosen": {"predicted_ms": None, "unfused": None}}

    def prepare(self, row, dtype, inputs):
        out = getattr(row, "folder", None) or self.folder(row, dtype) / "out"
        library = ctypes.CDLL(str(next(out.glob("lib*.so"))))
        name = next(out.glob("*.h")).stem
        getattr(library, f"{name}_set_threads")(self.threads)
        run = getattr(library, f"{name}_run")
        result = torch.full(self.shape(out), float("nan"), dtype=inputs[0].dtype)
        pointers = (ctypes.c_void_p * len(inputs))(*[x.data_ptr() for x in inputs])
        outputs = (ctypes.c_void_p * 1)(result.data_ptr())
        keep = (library, pointers, outputs, inputs)

        def call():
            status = run(pointers, None, outputs, None)
            if status:
                raise RuntimeError(f"{row.title}: {name}_run returned {status}")
            return keep and result

        call()
        return call, call

    @staticmethod
    def shape(out):
        return json.loads((out / "manifest.json").read_text())["arguments"]["outputs"][0]["shape"]
