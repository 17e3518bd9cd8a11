"""The building blocks (build/bench/bench_micro): register tiles, functions and copies, each beside the ceiling of the machine
that was measured with it. A row's figure is in per cent of that ceiling, for functions in cycles an element."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# part of bench_micro -> what its lines look like: name, figure; and the unit of the figure
PARTS = {
    "tiles": (re.compile(r"^(?P<name>.*?)\s+(?P<figure>[\d.]+) % of peak"), "% of peak"),
    "matmul": (re.compile(r"^(?P<name>matmul .*?):\s+(?P<figure>[\d.]+) % of peak"), "% of peak"),
    "functions": (re.compile(r"^(?P<name>\S+\s+\S+)\s+(?P<figure>[\d.]+) cycles/element"), "cycles an element"),
    "copies": (re.compile(r"^(?P<name>copy\s+\d+ KiB):.*?(?P<figure>[\d.]+) % of reading"), "% of reading as much"),
    "stream": (re.compile(r"^(?P<name>linear .*?):\s+(?P<figure>[\d.]+) GB/s"), "GB/s of weights"),
}


@dataclass
class Row:
    title: str


def rows(options=None):
    return [Row(part) for part in PARTS]


def report(options, rows):
    program, out = Path(options.build) / "bench" / "bench_micro", []
    for row in rows:
        line_of, unit = PARTS[row.title]
        done = subprocess.run([str(program), row.title], capture_output=True, text=True)
        found = [m for m in map(line_of.match, done.stdout.splitlines()) if m]
        if done.returncode or not found:
            out.append({"name": row.title, "failed": done.stderr.strip()[:200] or "it printed no figure"})
        for m in found:
            out.append({"name": " ".join(m["name"].split()), "part": row.title, "figure": float(m["figure"]), "unit": unit})
        print(f"bench: {row.title}: {len(found)} figures", file=sys.stderr, flush=True)
    return {"rows": out}


def text_of(row):
    return f"{row['name']:<48} " + (row.get("failed") or f"{row['figure']:7.2f} {row['unit']}")
