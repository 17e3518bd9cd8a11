"""How long a compilation takes, and what of it: the examples and generated networks.

Four columns, each in CPU seconds (wall seconds beside them): `--deterministic` from the file to a verified program, cold
and with its code in the cache; eight candidates timed (`--budget 8c`), cold; and what a program pays that asks the library
again for a program that was compiled before (cleave.compile, median of 21 calls in this process)."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STAGES = ("import", "algebra", "schedule", "codegen", "verify", "measure")


@dataclass
class Row:
    title: str
    path: Path
    dims: dict

    @property
    def words(self):
        return [str(self.path), *(w for name, value in self.dims.items() for w in ("--dim", f"{name}={value}"))]


def rows(options=None):
    sizes = {"KV": 8, "R": 4, "D": 128, "B": 4, "TQ": 64, "TK": 4096, "S": 32, "L": 1024, "PAGES": 4096, "N": 4096, "H": 16,
             "C": 512, "E": 64}
    out = [Row(p.stem, p, {"L": 4096} if p.stem == "gqa_decode" else {}) for p in sorted(EXAMPLES.glob("*.graph"))]
    if (EXAMPLES / "gpt2_block.weights").exists():
        out.append(Row("gpt2_block", EXAMPLES / "gpt2_block.onnx", {}))
    for path in sorted((EXAMPLES / "dynamic").glob("g*_decode.graph")) + sorted((EXAMPLES / "dynamic").glob("*ragged*.graph")):
        declared = [line.split()[1] for line in path.read_text().splitlines() if line.startswith("  dim ")]
        out.append(Row(path.stem, path, {d: sizes[d] for d in declared}))
    return out


class Timed:
    """Commands and calls with one cache folder, which keeps the description of this machine and nothing else when it is
    emptied."""

    def __init__(self, options):
        self.options, self.folder = options, Path(tempfile.mkdtemp(prefix="cleave-bench-"))

    def empty(self):
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix != ".machine":
                path.unlink()

    def command(self, row, *words):
        """{cpu, wall, one for each stage}; seconds."""
        start = time.perf_counter()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = subprocess.Popen([self.options.cleave, "optimize", *row.words, "--threads", str(self.options.threads),
                                      "--cache-dir", str(self.folder), "--json", *words], stdout=out, stderr=err)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            wall = time.perf_counter() - start
            out.seek(0), err.seek(0)
            if child.returncode:
                raise RuntimeError(err.read().strip()[:300])
            stages = json.load(out)["seconds"]
        return {"cpu": usage.ru_utime + usage.ru_stime, "wall": wall, **{s: stages[s] for s in STAGES}}

    def library(self, row):
        """Seconds of CPU of cleave.compile: the first call, and the median of those that follow."""
        import cleave

        os.environ["CLEAVE_CACHE_DIR"] = str(self.folder)
        seconds = []
        for _ in range(22):
            start = time.process_time()
            cleave.compile(str(row.path), dims=row.dims, threads=self.options.threads)
            seconds.append(time.process_time() - start)
        return {"first": seconds[0], "again": statistics.median(seconds[1:])}

    def row(self, row):
        self.empty()
        cold = self.command(row, "--deterministic")
        warm = self.command(row, "--deterministic")
        self.empty()
        timed = self.command(row, "--budget", "8c")
        self.empty()
        return {"cold": cold, "warm": warm, "timed": timed, "library": self.library(row)}


def report(options, rows):
    sys.path.insert(0, options.package)
    timed = Timed(options)
    out = []
    try:
        subprocess.run([options.cleave, "optimize", *rows[0].words, "--deterministic", "--cache-dir", str(timed.folder), "--json"],
                       check=True, capture_output=True)  # measures the machine
        for row in rows:
            try:
                out.append({"name": row.title, **timed.row(row)})
            except Exception as why:  # noqa: BLE001 - the row says so
                out.append({"name": row.title, "failed": str(why)})
            print(text_of(out[-1]), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(timed.folder)
    return {"rows": out}


def text_of(row):
    if "failed" in row:
        return f"{row['name']:<22} {row['failed']}"
    stages = " ".join(f"{s} {row['cold'][s]:.2f}" for s in STAGES)
    return (f"{row['name']:<22} " + "  ".join(f"{k} {row[k]['cpu']:5.2f} s ({row[k]['wall']:5.2f})" for k in ("cold", "warm", "timed"))
            + f"  library {1e3 * row['library']['first']:6.0f} ms, again {1e3 * row['library']['again']:6.2f} ms  [{stages}]")
