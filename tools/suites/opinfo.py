"""PyTorch's own operator samples (OpInfo) against eager, for every operator that can be translated.

Each sample is traced to ATen operators, compiled and run. A sample with an operator, a type or an argument that is not
supported is refused, by name. A result that differs from eager's by more than some roundings is wrong if it is farther than
eager's from what eager computes in float64, and beyond the rounding bound of the graph; that is a failure, as is a crash or a
time-out. Exit code 0 when none failed.

Runs under a Python that has PyTorch, `expecttest` and the package (PYTHONPATH=python build/venv/bin/python).
"""

import collections
import json
import os
import signal
import subprocess
import sys

# Results are other numbers each time, or are defined up to a choice.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint", "randint_like",
          "randn", "randn_like", "uniform", "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
          "new_empty_strided", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
          "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "pca_lowrank", "svd_lowrank"}
CHOICES = {"topk", "kthvalue", "sort", "argsort"}  # of equal elements any may be named
ROUNDINGS = {8: 64, 4: 64, 2: 4}  # of the largest magnitude that a result may be off, by the size of its type
DTYPES = ["float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"]


def declare(parser):
    parser.add_argument("--only", metavar="TEXT", help="only operators whose name contains this")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="default: float32")
    parser.add_argument("--samples", type=int, default=10**9, metavar="N", help="the first N samples of each operator")
    parser.add_argument("--search", action="store_true", help="compile what the search finds; default: the graph as given")
    parser.add_argument("--seconds", type=int, default=60, help="for one sample (default: 60)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--worker", action="store_true", help="used by the suite itself: operators from standard input, a line for "
                        "each sample to standard output")  # fmt: skip


def operators():
    """(name, OpInfo) of each, those with variants apart."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415

    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if op.name not in RANDOM:
            yield name, op


def program_of(function, sample, search=True):
    """The sample's program, compiled, and the places of its tensors; raises UnsupportedError by name."""
    import torch  # noqa: PLC0415
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415
    from torch.utils import _pytree as pytree  # noqa: PLC0415

    from cleave import UnsupportedError, aten, backend, fx  # noqa: PLC0415

    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def flat(*tensors):
        filled = list(leaves)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        given, args, kwargs = pytree.tree_unflatten(filled, spec)
        return tuple(r for r in pytree.tree_leaves(function(given, *args, **kwargs)) if isinstance(r, torch.Tensor))

    tensors = [leaves[p] for p in places]
    try:
        traced = dict(tracing_mode="fake", _allow_non_fake_inputs=True)
        graph = make_fx(torch.func.functionalize(flat), decomposition_table=backend.decompositions(), **traced)(*tensors)
        if any(n.op == "call_function" and aten.name_of(n.target).endswith("_") for n in graph.graph.nodes):  # by a decomposition
            graph = make_fx(torch.func.functionalize(graph), **traced)(*tensors)
    except Exception as error:  # whatever torch raises: data-dependent shapes and the like
        raise UnsupportedError(f"tracing: {type(error).__name__}", node="tracing") from error
    for node in graph.graph.nodes:
        if why := fx.unsupported(node):
            raise UnsupportedError(why, node=why)
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].dtype not in aten.DTYPES:
            raise UnsupportedError(f"tensors of {node.meta['val'].dtype}", node=str(node.meta["val"].dtype))
    results = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    if not results or not all(isinstance(r, torch.fx.Node) and r.op == "call_function" for r in results):
        raise UnsupportedError("nothing is computed", node="nothing is computed")
    with torch.no_grad():
        return backend.Island(graph, "sample", {}, None, search=search), tensors, flat


def difference(got, want) -> str:
    """Empty when a result agrees: integers exactly, reals within a few roundings of the largest magnitude."""
    import torch  # noqa: PLC0415

    if got.dtype != want.dtype:
        return f"the type is {got.dtype}, eager's is {want.dtype}"
    if got.shape != want.shape:
        return f"the shape is {list(got.shape)}, eager's is {list(want.shape)}"
    if not want.dtype.is_floating_point:
        return "" if torch.equal(got, want) else f"{int((got != want).sum())} of {want.numel()} elements differ"
    finite = want[want.isfinite()].double().abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    roundings = ROUNDINGS[want.dtype.itemsize]
    eps = torch.finfo(want.dtype).eps
    try:
        torch.testing.assert_close(got, want, rtol=roundings * eps, atol=roundings * eps * max(scale, 1e-30), equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def chosen(function, sample, got, want) -> str:
    """The same for (values, positions), where equal elements may come in any order: each position has to hold its value, and
    none may come twice."""
    import torch  # noqa: PLC0415

    if len(got) == 2 and (bad := difference(got[0], want[0])):
        return bad
    at, eager = got[-1], want[-1]
    if at.dtype != eager.dtype or at.shape != eager.shape:
        return "the positions have another type or shape"
    given = {"dim": -1} | dict(zip(("k", "dim") if function in ("topk", "kthvalue") else ("dim",), sample.args)) | sample.kwargs
    x = sample.input
    if x.dim() == 0:
        return "" if not at.any() else "a position is not 0"
    if at.dim() < x.dim():
        at, eager = at.unsqueeze(given["dim"]), eager.unsqueeze(given["dim"])
    if bad := difference(torch.gather(x, given["dim"], at), torch.gather(x, given["dim"], eager)):
        return f"positions that hold other values: {bad}"
    ordered = at.sort(given["dim"]).values
    return "a position comes twice" if (ordered.diff(dim=given["dim"]) == 0).any() else ""


def excused(function, sample, program, tensors, got, want) -> bool:
    """Whether results that differ from eager's are as near to what eager computes in float64 as its own are, or within the
    rounding bound that is derived for the graph: where terms cancel, rounding is not small against what remains."""
    import torch  # noqa: PLC0415
    from torch.utils import _pytree as pytree  # noqa: PLC0415

    if not all(w.dtype.is_floating_point and w.dtype != torch.float64 for w in want):
        return False
    wide = lambda leaf: (leaf.double() if isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point
                         else torch.float64 if leaf == want[0].dtype else leaf)  # fmt: skip
    given, args, kwargs = pytree.tree_map(wide, (sample.input, sample.args, sample.kwargs))
    try:
        with torch.no_grad():
            exact = [r for r in pytree.tree_leaves(function(given, *args, **kwargs)) if isinstance(r, torch.Tensor)]
    except RuntimeError:
        return False
    bound = None
    for g, w, x in zip(got, want, exact):
        # Where eager overflows on the way, the exact result says what is finite.
        finite = g.isfinite()
        if g.dtype != w.dtype or g.shape != w.shape or not any(torch.equal(finite, v.isfinite()) for v in (w, x.to(w.dtype))):
            return False
        at, known = finite & x.isfinite(), finite & x.isfinite() & w.isfinite()
        off, allowed = (float(v.abs().max()) if v.numel() else 0.0 for v in ((g.double() - x)[at], (w.double() - x)[known]))
        size = float(x[at].abs().max()) if at.any() else 0.0
        if not off <= max(allowed, ROUNDINGS[w.dtype.itemsize] * torch.finfo(w.dtype).eps * size):
            bound = bound if bound is not None else rounding_bound(program, tensors)
            if not off <= bound * size:
                return False
    return True


def rounding_bound(program, tensors) -> float:
    """How far from float64 roundings may carry the graph's results on these inputs, relative to the largest magnitude."""
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    command = os.environ.get("CLEAVE", str(Path(__file__).resolve().parents[2] / "build" / "bin" / "cleave"))
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i in program.takes:
            if str(tensors[i].dtype) == "torch.bfloat16":  # numpy has none
                return 0.0
            files.append(f"{folder}/{i}.npy")
            np.save(files[-1], tensors[i].detach().numpy())
        Path(folder, "g.graph").write_text(program.graph.text())
        done = subprocess.run([command, "run", f"{folder}/g.graph", "--check", "--json", *(["--inputs", *files] if files else [])],
                              capture_output=True, text=True, check=False)
    return float(json.loads(done.stdout)["error"]["bound"]) if done.returncode == 0 else 0.0


def judge(function, sample, search=True):
    """(outcome, reason) of one sample."""
    import torch  # noqa: PLC0415

    from cleave import UnsupportedError  # noqa: PLC0415

    try:
        program, tensors, flat = program_of(function, sample, search)
    except UnsupportedError as error:
        return "refused", str(error).splitlines()[0]
    except Exception as error:
        return "failed", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    with torch.no_grad():
        want = flat(*[t.clone() if isinstance(t, torch.Tensor) else t for t in tensors])
        try:
            got = program(*tensors)
        except Exception as error:
            return "failed", f"{type(error).__name__}: {str(error).splitlines()[0]}"
    if getattr(function, "__name__", "") in CHOICES:
        bad = chosen(function.__name__, sample, got, want)
    else:
        bad = next(filter(None, map(difference, got, want)), "")
    if bad and excused(function, sample, program, tensors, got, want):
        bad = ""
    return ("failed", bad) if bad else ("passed", "")


def samples(op, dtype, count):
    import torch  # noqa: PLC0415

    if dtype not in op.dtypes:
        return
    torch.manual_seed(0)
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
        if number == count:
            return
        yield number, sample


def work(arguments):
    import warnings  # noqa: PLC0415

    import torch  # noqa: PLC0415

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(124))
    known = dict(operators())
    for line in sys.stdin:
        name, dtype, first = line.split()
        for number, sample in samples(known[name], getattr(torch, dtype), arguments.samples):
            if number < int(first):
                continue
            signal.alarm(arguments.seconds)
            outcome, reason = judge(known[name].op, sample, arguments.search)
            signal.alarm(0)
            print("\t".join((name, dtype, str(number), outcome, " ".join(reason.split()))), flush=True)
        print("\t".join((name, dtype, "-1", "done", "")), flush=True)


def run(arguments):
    if arguments.worker:
        work(arguments)
        return 0
    left = [(name, dtype, 0) for dtype in arguments.dtype or ["float32"] for name, _ in operators()
            if not arguments.only or arguments.only in name]  # fmt: skip
    counts, refused, failed = collections.Counter(), collections.Counter(), []
    covered = collections.defaultdict(collections.Counter)
    command = [sys.executable, sys.argv[0], "opinfo", "--worker", "--samples", str(arguments.samples), "--seconds", str(arguments.seconds)]
    command += ["--search"] if arguments.search else []
    while left:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        process.stdin.write("".join(f"{n} {d} {f}\n" for n, d, f in left))
        process.stdin.close()
        done, last = 0, -1
        for line in process.stdout:
            name, dtype, number, outcome, reason = (line.rstrip("\n").split("\t") + [""] * 5)[:5]
            if outcome == "done":
                done, last = done + 1, -1
            elif outcome in ("passed", "refused", "failed"):
                last = int(number)
                counts[outcome] += 1
                covered[name][outcome] += 1
                if outcome == "refused":
                    refused[reason] += 1
                if outcome == "failed":
                    failed.append(f"{name} {dtype} {number}: {reason}")
                    print(f"opinfo: failed {failed[-1]}", file=sys.stderr, flush=True)
        process.wait()
        left = left[done:]
        if left:  # it died in the sample behind the last one
            name, dtype, first = left[0]
            number = max(first, last + 1)
            if number > 10000 or (done == 0 and last < 0 and process.returncode == 1):
                print("opinfo: the worker does not start; try --worker by hand", file=sys.stderr)
                return 2
            reason = "out of time" if process.returncode == 124 else f"the worker ended with {process.returncode}"
            failed.append(f"{name} {dtype} {number}: {reason}")
            counts["failed"] += 1
            left[0] = (name, dtype, number + 1)
    names = sorted(n for n, c in covered.items() if c["passed"])
    if arguments.json:
        print(json.dumps({"schema": "cleave.conformance.opinfo/1", "operators": len(names), **counts, "failures": failed,
                          "refusals": dict(refused.most_common()), "covered": names}, indent=1))  # fmt: skip
    else:
        print(f"{counts['passed']} samples of {len(names)} operators passed, {counts['refused']} refused, {counts['failed']} failed")
        for reason, count in refused.most_common(60):
            print(f"  refused {count:4}  {reason}")
        for text in failed:
            print(f"  failed  {text}")
    return 1 if failed else 0
