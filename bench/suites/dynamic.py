"""The attention operators of examples/dynamic on serving batches: one compilation of each at full heads and widths, through
the Python package, against the fastest of three forms of PyTorch (bench/serving), output and log-sum."""

from dataclasses import dataclass
from pathlib import Path

import torch
from comparison import error_of, geomean, say
from measure import Ceilings, clock, compare, sample
from ours import Failed, Package
from serving import forms
from serving.batches import OPERATORS, batches, fixed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "dynamic"
LIMIT = 1e-4


@dataclass
class Row:
    """An operator with its batches."""

    operator: object

    @property
    def title(self):
        return self.operator.name


def rows(options=None):
    return [Row(o) for o in OPERATORS]


def ranges(o, all_batches):
    """What is fixed, and for the rest the range that the batches span, with a middle batch as what is tuned for."""
    text = (EXAMPLES / f"{o.graph}.graph").read_text()
    declared = [line.split()[1] for line in text.splitlines() if line.startswith("  dim ")]
    typical = sorted(all_batches, key=lambda b: b.flops)[len(all_batches) // 2].dims()
    most = {d: max(b.dims()[d] for b in all_batches) for d in typical}
    return {d: str(fixed(o)[d]) if d in fixed(o) else f"1..{most[d]}@{typical[d]}" for d in declared}


class Operator(Package):
    """The compiled program of an operator."""

    def compiled(self, o, all_batches):
        path = EXAMPLES / f"{o.graph}.graph"
        dims = ranges(o, all_batches)
        row = Row(o)
        out, _ = self.artefact(row, "f32", f"{path.read_text()} {dims}", lambda folder: self.fill(folder, path, dims))
        return self.cleave.load(out)

    def fill(self, folder, path, dims):
        try:
            result = self.cleave.optimize(str(path), dims=dims, budget=self.options.budget, threads=self.options.threads)
        except self.cleave.Error as why:
            raise Failed(f"{why.code}: {why}"[:400]) from why
        result.export(folder / "out")
        return result.details


def exact_of(batch):
    """float64, one request after the other, by the definition."""
    q, k, v, slots, rows = batch.torch_side
    return forms.per_request((q.double(), k.double(), v.double(), slots, rows), batch.scale, forms.by_definition)


def peers(batch, exact, options):
    """Quickest first: (seconds, name, function); and why others are not there."""
    found, skipped = [], {}
    for name, make in forms.FORMS.items():
        try:
            f = make(batch.torch_side)
            run = lambda f=f: f(batch.torch_side, batch.scale)
            error = error_of(run(), exact)
            if not error <= LIMIT:
                raise ValueError(f"its error is {error:.1e}")
            found.append((min(sample(run, clock(options.threads), 2e-3) for _ in range(3)), name, run))
        except Exception as why:  # noqa: BLE001 - a form that PyTorch cannot run here is skipped, and the row says so
            skipped[name] = f"{type(why).__name__}: {str(why)[:120]}"
    return sorted(found, key=lambda f: f[0]), skipped


def measured(batch, program, options, ceilings):
    o = batch.operator
    inputs, dims = batch.inputs(), batch.dims()
    arrays = [inputs[name] for name, _, _ in program.inputs]
    apart = {d: dims[d] for d in ("S", "L") if d in program.dims}
    ours = lambda: program(*arrays, sm_scale=batch.scale, **apart)
    out = {"name": o.name, "point": {"requests": len(batch.rows), "keys": sum(batch.keys), "longest": max(batch.keys),
                                     "rows": sum(batch.rows)}, "mflop": round(batch.flops / 1e6), "dtype": "f32"}
    with torch.no_grad():
        exact = exact_of(batch)
        out["error"] = error_of(ours(), exact)
        if not out["error"] <= LIMIT:
            return {**out, "failed": f"our error is {out['error']:.1e}"}
        if options.pairs == 0:
            return out
        found, out["skipped"] = peers(batch, exact, options)
        if not found:
            return {**out, "failed": "no form could run it"}
        out["peers_ms"] = {name: 1e3 * seconds for seconds, name, _ in found}
        c = compare(ours, found[0][2], options.threads, ceilings, options.pairs)
    if c is None:
        return {**out, "failed": "the machine was too noisy"}
    return {**out, "ours_ms": 1e3 * c["ours_s"], "peer": found[0][1], "peer_ms": 1e3 * c["peer_s"], "ratio": c["ratio"],
            "lo": c["lo"], "hi": c["hi"], "pairs": c["kept"], "control": c["control"],
            "peak_pct": 100 * batch.flops / (c["ours_s"] * c["peak"] * 1e9 * options.threads)}


def report(options, rows):
    torch.set_num_threads(options.threads)
    entry, ceilings, out = Operator(options), Ceilings(options.build), []
    for row in rows:
        all_batches = batches(row.operator)
        try:
            program = entry.compiled(row.operator, all_batches)
        except Failed as why:
            out.append({"name": row.title, "point": {}, "failed": str(why)})
            say(text_of(out[-1]))
            continue
        for batch in all_batches:
            out.append(measured(batch, program, options, ceilings))
            say(text_of(out[-1]))
        if program.compilations > 1:
            say(f"    {row.title}: some batches ran the unfused schedule")
    means = [geomean([r for r in out if r["name"] == row.title]) for row in rows]
    whole = geomean([{"ratio": m} if m else {} for m in means])
    return {"rows": out, "geomean": whole, "operators": {r.title: m for r, m in zip(rows, means)},
            "versions": {"torch": torch.__version__}}


def text_of(row):
    title = f"{row['name']:<24} " + " ".join(f"{k} {v}" for k, v in row["point"].items())
    if "ratio" not in row:
        return f"{title:<72} {row.get('failed', 'right')}" + (f"  {row['error']:.1e}" if "error" in row else "")
    return (f"{title:<72} {row['ours_ms']:9.3f} ms {row['peer_ms']:9.3f} ms {row['peer']:<12} {row['ratio']:6.2f}x "
            f"({row['lo']:.2f} to {row['hi']:.2f})  {row['peak_pct']:3.0f} % of peak  {row['error']:.1e}")
