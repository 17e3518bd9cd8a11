"""Every graph of a suite at its points: schedules of all equal graphs, compiled and judged by the float64 evaluator.

--data names a file in the format of tests/data/subgraphs.json. Graphs of few steps are interpreted as tile programs as
well. Exit code 0 when every program of every point is right.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {"group": "only points whose group contains this (default: cpu)", "only": "only rows whose name contains this",
           "graphs": "equal graphs tried at a point", "candidates": "candidates of each graph",
           "part": "split reductions into parts of this length", "interpret": "steps up to which a graph is interpreted"}


def declare(parser):
    parser.add_argument("--data", metavar="FILE", type=Path, default=ROOT / "tests/data/subgraphs.json",
                        help="the suite (default: tests/data/subgraphs.json)")
    for name, doc in OPTIONS.items():
        parser.add_argument(f"--{name}", help=doc)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runner", metavar="FILE", type=Path, default=ROOT / "build/bin/schedules_conformance")


def run(arguments):
    if not arguments.runner.exists():
        print(f"{arguments.runner} is missing: build the target schedules_conformance", file=sys.stderr)
        return 2
    command = [str(arguments.runner), "--data", str(arguments.data)]
    for name in OPTIONS:
        if getattr(arguments, name) is not None:
            command += [f"--{name}", getattr(arguments, name)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if arguments.json:
        print(done.stdout, end="")
    return done.returncode
