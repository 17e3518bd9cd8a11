"""LEIR programs: translated from PyTorch or stored with their values, run by the interpreter and compared.

--data FILE     the program types of a data file, looked up by name among our modules: three draws of pairwise distinct
                parameters and three of as many equal ones as the constraints allow, every value of an axis, in float64,
                float32 and float16. Needs torch and numpy.
--cases DIR     DIR/NAME/{prog.leir, inputs.npz, outputs.npz}, written by others. Needs neither.
--modules DIR   DIR/*.py that define get_model() and get_inputs(). Needs torch and numpy.

A result is right when every output is within the running error bound of the interpreter (and 1e-10 of the value) of what
PyTorch computes in float64 on the same inputs. Exit code 0 when none failed.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def declare(parser):
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", metavar="FILE", type=Path, help="program types, by name")
    what.add_argument("--cases", metavar="DIR", type=Path, help="stored programs")
    what.add_argument("--modules", metavar="DIR", type=Path, help="PyTorch modules")
    parser.add_argument("--only", metavar="TEXT", help="only names that contain this")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=3, help="distinct, and as many equal ones (default: 3)")
    parser.add_argument("--dtypes", default="float64,float32,float16")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the folders there")
    parser.add_argument("--via", default="interpreter", help="how to run them: interpreter, c, jit, cuda (that text as C++) or tvm (needs apache-tvm)")
    parser.add_argument("--nvcc", metavar="FILE", help="and compile the CUDA text of each with it, for --archs")
    parser.add_argument("--archs", default="sm_80,sm_90", help="for --nvcc (default: sm_80,sm_90)")
    parser.add_argument("--cleave", metavar="FILE", type=Path,
                        default=Path(os.environ.get("CLEAVE", ROOT / "build" / "bin" / "cleave")))  # fmt: skip


class Suite:
    def __init__(self, arguments):
        self.a = arguments
        self.programs, self.draws, self.failed = 0, 0, {}
        self.names = []

    def run_folder(self, folder):
        """None, or why the folder's program does not give its outputs."""
        if self.a.via == "tvm":
            from suites import tvm_run

            return tvm_run.run_folder(self.a.cleave, folder)
        command = [str(self.a.cleave), "leir", "run", str(folder), "--check", "-q", "--rtol", "1e-10"]
        if self.a.via != "interpreter":
            command += ["--via", self.a.via]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except subprocess.TimeoutExpired:
            return "it ran longer than 300 s"
        if done.returncode != 0:
            return done.stderr.strip() or f"exit code {done.returncode}"
        return self.compile_cuda(folder) if self.a.nvcc else None

    def compile_cuda(self, folder):
        text = subprocess.run([str(self.a.cleave), "leir", "lower", str(folder), "--to", "cuda"], capture_output=True, text=True,
                              check=False)  # fmt: skip
        if text.returncode != 0:
            return text.stderr.strip()
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / "p.cu"
            source.write_text(text.stdout)
            for arch in self.a.archs.split(","):
                done = subprocess.run([self.a.nvcc, "-w", f"-arch={arch}", "-cubin", "-o", f"{scratch}/p.cubin", str(source)],
                                      capture_output=True, text=True, check=False)  # fmt: skip
                if done.returncode != 0:
                    return f"nvcc for {arch}: {(done.stderr or done.stdout).strip()}"
        return None

    def fail(self, name, why):
        if name not in self.failed:
            self.failed[name] = why
            if not self.a.json:
                print(f"FAIL {name}: {why}", flush=True)

    def report(self):
        passed = self.programs - len(self.failed)
        if self.a.json:
            print(json.dumps({"programs": self.programs, "passed": passed, "failed": sorted(self.failed), "draws": self.draws,
                              "seed": self.a.seed, "reasons": self.failed}))  # fmt: skip
        else:
            print(f"{passed} of {self.programs} programs, {self.draws} draws, seed {self.a.seed}")
        if not self.programs:
            print("no program was found: see tools/conformance leir -h", file=sys.stderr)
        return 1 if self.failed or not self.programs else 0


def wanted(arguments, name):
    return not arguments.only or arguments.only in name


def cases(suite):
    for folder in sorted(p for p in suite.a.cases.iterdir() if (p / "prog.leir").exists()):
        if not wanted(suite.a, folder.name):
            continue
        suite.programs += 1
        suite.draws += 1
        why = suite.run_folder(folder)
        if why:
            suite.fail(folder.name, why)


def case_of(module, inputs, exact_inputs, folder):
    """Writes the folder of a module; exact results come from float64 on the same values."""
    import copy

    import torch
    from cleave_leir import store, translate

    program = translate(module, inputs)
    exact = copy.deepcopy(module).double()
    with torch.no_grad():
        results = exact(*exact_inputs)
    results = results if isinstance(results, (tuple, list)) else [results]
    store.write(folder, program, results)


def in_double(inputs):
    return [x.double() if hasattr(x, "is_floating_point") and x.is_floating_point() else x for x in inputs]


def data(suite, folder):
    import torch
    from cleave_leir.draws import axis_choices, data, draw
    from cleave_leir.programs import PROGRAMS, reinitialise

    torch.set_num_threads(1)
    listed = json.loads(suite.a.data.read_text())["programs"]
    work = []
    with ThreadPoolExecutor(2) as pool:
        for entry in listed:
            name = entry["name"]
            if not wanted(suite.a, name):
                continue
            suite.programs += 1
            ours = PROGRAMS.get(name)
            if ours is None:
                suite.fail(name, "there is no module of this name")
                continue
            for fixed in axis_choices(entry):
                for equal in (False, True):
                    for number in range(suite.a.draws):
                        p = draw(entry, ours.lawful, f"{suite.a.seed}.{number}", equal, fixed)
                        if p is None:
                            suite.fail(name, "no lawful parameters were found")
                            continue
                        suite.draws += 1
                        for dtype in suite.a.dtypes.split(","):
                            where = folder / f"{name}.{'e' if equal else 'd'}{number}.{'_'.join(map(str, fixed.values()))}.{dtype}"
                            try:
                                torch.manual_seed(number)
                                module, shapes = ours.build(p)
                                module = reinitialise(module, number).eval().to(getattr(torch, dtype))
                                inputs = data(shapes, getattr(torch, dtype), number + 7)
                                case_of(module, inputs, in_double(inputs), where)
                            except Exception as e:  # noqa: BLE001 - any fault of a program is its failure
                                suite.fail(name, f"{type(e).__name__}: {e} with {vars(p)} in {dtype}")
                                continue
                            work.append((name, p, dtype, pool.submit(suite.run_folder, where)))
        for name, p, dtype, future in work:
            if why := future.result():
                suite.fail(name, f"{why} with {vars(p)} in {dtype}")


def modules(suite, folder):
    import torch

    torch.set_num_threads(1)
    for file in sorted(suite.a.modules.glob("*.py")):
        if not wanted(suite.a, file.stem):
            continue
        suite.programs += 1
        suite.draws += 1
        try:
            spec = importlib.util.spec_from_file_location(file.stem, file)
            code = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(code)
            torch.manual_seed(suite.a.seed)
            model = code.get_model().eval()
            inputs = code.get_inputs()
            inputs = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
            case_of(model, inputs, in_double(inputs), folder / file.stem)
            why = suite.run_folder(folder / file.stem)
        except Exception as e:  # noqa: BLE001 - any fault of a module is its failure
            why = f"{type(e).__name__}: {e}"
        if why:
            suite.fail(file.stem, why)


def run(arguments):
    suite = Suite(arguments)
    sys.path.insert(0, str(ROOT / "python"))
    if not arguments.cleave.exists():
        print(f"{arguments.cleave} is missing: build it first (ninja -C build cleave)", file=sys.stderr)
        return 6
    given = arguments.cases or arguments.modules or arguments.data
    if not given.exists():
        print(f"{given} does not exist", file=sys.stderr)
        return 2
    if arguments.cases:
        cases(suite)
        return suite.report()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        (data if arguments.data else modules)(suite, folder)
        return suite.report()
