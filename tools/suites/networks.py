"""Whole ONNX models against ONNX Runtime: optimised (without measuring), run on the same seeded inputs, every output compared.

Runs under a Python that has `onnxruntime` and `numpy`. An output may be off by --tolerance of its largest magnitude
(f32: 1e-4 by default; a network is many roundings deep). Integer outputs have to be equal. Exit code 0 when all agree.

    tools/conformance networks --model encoder.onnx --dim batch_size=2 --dim sequence_length=16 --ints input_ids=0..30000
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def declare(parser):
    parser.add_argument("--model", required=True, type=Path, metavar="FILE")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="an extent that the model leaves open")
    parser.add_argument("--ints", action="append", default=[], metavar="INPUT=LOW..HIGH",
                        help="the range of an integer input (default 0..2, HIGH is left out)")
    parser.add_argument("--range", action="append", default=[], metavar="INPUT=LOW..HIGH", dest="reals",
                        help="uniform instead of normal numbers for a real input")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", default="1")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--cleave", type=Path, default=Path(os.environ.get("CLEAVE", ROOT / "build" / "bin" / "cleave")))


def identifier(name):
    out = "".join(c if c.isalnum() and c.isascii() else "_" for c in name[:80])
    return "_" + out if not out or out[0].isdigit() else out


def ranges(options):
    out = {}
    for option in options:
        name, _, bounds = option.partition("=")
        low, _, high = bounds.partition("..")
        out[name] = (float(low), float(high))
    return out


def make_inputs(session, arguments):
    """Arrays for the inputs of an ONNX Runtime session, and the dims of ours that were needed."""
    import numpy as np  # noqa: PLC0415

    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
             "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
    given = dict(d.split("=") for d in arguments.dim)
    ints, reals = ranges(arguments.ints), ranges(arguments.reals)
    rng = np.random.default_rng(arguments.seed)
    arrays, dims = [], {}
    for value in session.get_inputs():
        shape = []
        for axis, extent in enumerate(value.shape):
            if isinstance(extent, int) and extent >= 0:
                shape.append(extent)
                continue
            # An axis without a name is called after its input.
            name = identifier(extent) if isinstance(extent, str) and extent else identifier(f"{value.name}_{axis}")
            if name not in given and f"{identifier(value.name)}_{axis}" in given:
                name = f"{identifier(value.name)}_{axis}"
            if name not in given:
                raise SystemExit(f"networks: give the extent `{name}` of `{value.name}` with --dim {name}=N")
            dims[name] = given[name]
            shape.append(int(given[name]))
        kind = np.dtype(kinds[value.type])
        if kind.kind == "f":
            low, high = reals.get(value.name, (None, None))
            data = rng.standard_normal(shape) if low is None else rng.uniform(low, high, shape)
        else:
            low, high = ints.get(value.name, (0, 2))
            data = rng.integers(int(low), int(high), shape)
        arrays.append(data.astype(kind))
    return arrays, dims


def run(arguments):
    try:
        import numpy as np  # noqa: PLC0415
        import onnxruntime  # noqa: PLC0415
    except ImportError as missing:
        print(f"networks: {missing.name} is missing; install it with pip", file=sys.stderr)
        return 2
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(arguments.model), options, providers=["CPUExecutionProvider"])
    arrays, dims = make_inputs(session, arguments)
    expected = session.run(None, {v.name: a for v, a in zip(session.get_inputs(), arrays)})
    report = {"schema": "cleave.conformance.networks/1", "model": arguments.model.name, "outputs": []}
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        files = []
        for i, array in enumerate(arrays):
            files.append(str(at / f"input_{i}.npy"))
            np.save(files[-1], array)
        common = ["--threads", arguments.threads, "--json"]
        commands = [["optimize", str(arguments.model), "--deterministic", "-q", "-o", str(at / "artefact"), *common],
                    ["run", str(at / "artefact"), "--inputs", *files, "--outputs", str(at / "out"), *common]]
        for name, extent in dims.items():
            commands[0] += ["--dim", f"{name}={extent}"]
        start = time.monotonic()
        for command in commands:
            done = subprocess.run([str(arguments.cleave), *command], capture_output=True, text=True)
            if done.returncode != 0:
                break
            report |= {k: v for k, v in json.loads(done.stdout).items() if k in ("coverage", "memory")}
        report["seconds"] = round(time.monotonic() - start, 2)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
            report["error"] = done.stderr.split("\n")[0]
        else:
            written = json.loads(done.stdout)["files"]
            for value, want, file in zip(session.get_outputs(), expected, written):
                got = np.load(file)
                entry = {"name": value.name, "shape": list(want.shape)}
                if got.shape != want.shape or got.dtype != want.dtype:
                    entry.update(ok=False, got=f"{got.dtype}{list(got.shape)}")
                elif want.dtype.kind == "f":
                    scale = float(np.abs(want).max(initial=0)) or 1.0
                    off = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0)) / scale
                    entry.update(ok=bool(off <= arguments.tolerance), off=off)
                else:
                    entry.update(ok=bool((got == want).all()), off=int((got != want).sum()))
                report["outputs"].append(entry)
    report["ok"] = bool(report["outputs"]) and all(o["ok"] for o in report["outputs"])
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        print(f"{report['model']}: {'agrees' if report['ok'] else 'differs'} ({report['seconds']} s)")
        if "coverage" in report:
            left = "; ".join(f"{entry['operator']}: {entry['why']}" for entry in report["coverage"]["left_out"])
            print(f"  optimised: {100 * report['coverage']['work']:.1f} % of the arithmetic" + (f"; left out: {left}" if left else ""))
            print(f"  intermediates: {report['memory']['workspace']} bytes, {report['memory']['without_reuse']} if none shared memory")
        for o in report["outputs"]:
            print(f"  {o['name']} {o['shape']}: off by {o.get('off', '-')}{'' if o['ok'] else '  DIFFERS ' + str(o.get('got', ''))}")
    return 0 if report["ok"] else 1
