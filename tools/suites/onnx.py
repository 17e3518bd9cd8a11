"""ONNX node tests: folders TEST/model.onnx with TEST/test_data_set_*/{input,output}_*.pb.

Each model is imported, scheduled, compiled and run; its outputs are compared with the expected ones. A model with an
operator, attribute or type that is not supported is refused, by name. Every test runs within its own time and a crash
of one does not end the others. Exit code 0 when none failed.

--generate writes the tests of the installed `onnx` Python package into the folder first.
"""

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def declare(parser):
    parser.add_argument("--data", required=True, metavar="DIR", type=Path, help="a folder of tests")
    parser.add_argument("--generate", action="store_true", help="write the tests of the `onnx` package there first")
    parser.add_argument("--only", metavar="TEXT", help="only tests whose name contains this")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=60, help="for one test (default: 60)")
    parser.add_argument("--runner", metavar="FILE", type=Path, default=ROOT / "build" / "bin" / "onnx_conformance")


def generate(folder):
    """Writes the node tests of the installed package as folders."""
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415
    from onnx.backend.test.case.node import collect_testcases  # noqa: PLC0415

    for case in collect_testcases():
        target = folder / case.name
        target.mkdir(parents=True, exist_ok=True)
        (target / "model.onnx").write_bytes(case.model.SerializeToString())
        for number, (inputs, outputs) in enumerate(case.data_sets):
            data = target / f"test_data_set_{number}"
            data.mkdir(exist_ok=True)
            sides = (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output))
            for word, values, declared in sides:
                for i, value in enumerate(values):
                    kind, name = declared[i].type, declared[i].name
                    if isinstance(value, TensorProto):
                        proto = value
                    elif kind.HasField("sequence_type"):
                        proto = numpy_helper.from_list(value, name)
                    elif kind.HasField("optional_type"):
                        proto = numpy_helper.from_optional(value, name)
                    else:
                        proto = numpy_helper.from_array(value, name)
                    (data / f"{word}_{i}.pb").write_bytes(proto.SerializeToString())


def results_of(runner, tests, seconds):
    """{folder: (outcome, reason)}: the runner takes the tests in order; after a crash it is started again behind it."""
    results, left = {}, list(tests)
    while left:
        process = subprocess.Popen([str(runner), "--seconds", str(seconds)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        out, _ = process.communicate("".join(f"{t}\n" for t in left))
        done = 0
        for line in out.splitlines():
            outcome, name, reason = (line.split("\t", 2) + ["", ""])[:3]
            if outcome not in ("passed", "refused", "failed"):
                continue
            results[Path(name)] = (outcome, reason)
            done += 1
        if done < len(left):
            code = process.returncode
            reason = "out of time" if code == 124 else f"the runner ended with {code}"
            results[left[done]] = ("failed", reason)
            done += 1
        left = left[done:]
    return results


def run(arguments):
    if arguments.generate:
        generate(arguments.data)
    tests = sorted(p.parent for p in arguments.data.rglob("model.onnx"))
    if arguments.only:
        tests = [t for t in tests if arguments.only in t.name]
    if not tests:
        print(f"conformance: no test lies in {arguments.data}", file=sys.stderr)
        return 2
    if not os.access(arguments.runner, os.X_OK):
        print(f"conformance: {arguments.runner} is missing; build the target onnx_conformance", file=sys.stderr)
        return 2
    results = results_of(arguments.runner, tests, arguments.seconds)
    refused = collections.Counter(r for o, r in results.values() if o == "refused")
    why = {str(t.relative_to(arguments.data)): r for t, (o, r) in results.items() if o == "failed"}
    failed = sorted(why)
    passed = sum(o == "passed" for o, _ in results.values())
    if arguments.json:
        print(json.dumps({"schema": "cleave.conformance.onnx/1", "tests": len(tests), "passed": passed,
                          "refused": dict(refused.most_common()), "failed": failed}, indent=1))
    else:
        print(f"{passed} of {len(tests)} passed, {sum(refused.values())} refused, {len(failed)} failed")
        for reason, count in refused.most_common():
            print(f"  refused {count:4}  {reason}")
        for name in failed:
            print(f"  failed  {name}: {why[name]}")
    return 1 if failed else 0
