"""Stored LEIR programs through TVM: printed as TVM script, built for the CPU, run and compared. Needs apache-tvm."""

import subprocess
import tempfile
from pathlib import Path


def run_folder(cleave, folder, slack=4):
    """None, or why TVM does not give the folder's outputs within `slack` times the interpreter's error bound."""
    import numpy as np
    import tvm
    from tvm.script import from_source

    version = ".".join(tvm.__version__.split(".")[:2])
    command = [str(cleave), "leir", "lower", str(folder), "--to", "tir", "--target", "cpu", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip()
    try:
        module = tvm.compile(from_source(done.stdout), target="llvm")
    except Exception as e:  # noqa: BLE001 - whatever TVM says is the answer
        return f"TVM {version} does not build it: {str(e)[-300:]}"
    inputs = dict(np.load(Path(folder) / "inputs.npz"))
    outputs = dict(np.load(Path(folder) / "outputs.npz"))
    with tempfile.TemporaryDirectory() as scratch:
        bounds, ours = f"{scratch}/e.npz", f"{scratch}/o.npz"
        command = [str(cleave), "leir", "run", str(folder), "-q", "--errors", bounds, "--outputs", ours]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip()
        bounds, ours = dict(np.load(bounds)), dict(np.load(ours))
    arguments, results = [], {}
    for line in (Path(folder) / "prog.leir").read_text().split(";"):
        words = line.strip().splitlines()[-1:] or [""]
        word = words[0].split()
        if len(word) < 3 or word[0] not in ("in", "const", "param", "out"):
            continue
        name = word[1]
        array = np.zeros_like(ours[name]) if word[0] == "out" else inputs[name]
        arguments.append(tvm.runtime.tensor(np.array(array, order="C")))
        if word[0] == "out":
            results[name] = arguments[-1]
    module["main"](*arguments)
    for name, tensor in results.items():
        got, want = tensor.numpy().astype(float), outputs[name].astype(float)
        with np.errstate(invalid="ignore"):
            allowed = slack * bounds[name] + 1e-10 * np.abs(want)
            same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= allowed)
        if not same.all():
            i = int(np.argmin(same))
            return f"output {name}: element {i} is {got.flat[i]}, expected is {want.flat[i]}, allowed is {allowed.flat[i]:.3g}"
    return None
