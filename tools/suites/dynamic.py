"""Serving records of ragged and paged attention: one compilation for each operator and column serves every record.

--data names a JSON file: {operators: [{name, axes_const}], workloads: [{op, uuid, sm_scale, q_lens, kv_lens, flops,
cpu: {len_divisor}}], extra_operators: [...]}. The operators' graphs are examples/dynamic/*.graph. Every record runs at
its `cpu` column (heads and widths reduced, lengths divided), and with --full those under 1 GFLOP also at full heads and
widths. Outputs and base-2 log-sums are compared with a float64 evaluation; exit code 0 when all are right.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def declare(parser):
    parser.add_argument("--data", required=True, metavar="FILE", type=Path, help="the file of operators and records")
    parser.add_argument("--full", action="store_true", help="also full heads and widths, for records under 1 GFLOP")
    parser.add_argument("--only", metavar="TEXT", help="only operators whose name contains this")
    parser.add_argument("--record", metavar="TEXT", help="only records whose uuid contains this")
    parser.add_argument("--seed", type=int, default=1, help="of the data and of the order of the records (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each call (default: 1)")
    parser.add_argument("--part", type=int, default=0, help="keys in parts of this length (default: as the scheduler chooses)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runner", metavar="FILE", type=Path, default=ROOT / "build" / "bin" / "dynamic_conformance")


def run(arguments):
    if not arguments.runner.exists():
        print(f"{arguments.runner} is missing: build the target dynamic_conformance", file=sys.stderr)
        return 2
    command = [str(arguments.runner), "--data", str(arguments.data), "--seed", str(arguments.seed),
               "--threads", str(arguments.threads), "--part", str(arguments.part)]
    for name in ("only", "record"):
        if getattr(arguments, name):
            command += [f"--{name}", getattr(arguments, name)]
    if arguments.full:
        command.append("--full")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        return done.returncode or 1
    if arguments.json:
        print(done.stdout, end="")
        return done.returncode
    for entry in json.loads(done.stdout)["operators"]:
        print(f"{entry['name']:<44} {entry['column']:<5} {entry['passed']:>4} of {entry['records']:>4} records"
              f"  {entry['compilations']} compilation  {entry['seconds']:.1f} s")
        for uuid in entry["failed"]:
            print(f"    failed: {uuid}")
    return done.returncode
