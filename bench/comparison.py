"""A suite whose rows are programs that we and the peers run: every row is optimised, checked against float64, and compared
with the best of the peers in ABBA pairs (measure.py)."""

import copy
import math
import sys

from measure import Ceilings, clock, compare, sample
from ours import Failed, ours
from peers import Skip, peer

LIMITS = {"f32": 1e-4, "bf16": 2e-2, "f16": 4e-3}  # of the largest difference over the largest magnitude
BYTES = {"f32": 4, "bf16": 2, "f16": 2}
FIELDS = ("name", "point", "attention")


def say(text):
    print(text, file=sys.stderr, flush=True)


def error_of(results, exact):
    """Largest difference over the largest magnitude, of all outputs; where all is 0, the largest difference."""
    worst = 0.0
    for result, wanted in zip(results, exact, strict=True):
        most = float(wanted.abs().max()) or 1.0
        error = float((result.double().reshape(wanted.shape) - wanted).abs().max()) / most
        worst = error if not error <= worst else worst  # NaN too
    return worst


def as_list(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


def exact_of(module, inputs):
    import torch

    with torch.no_grad():
        return as_list(copy.deepcopy(module).double()(*[x.double() if x.is_floating_point() else x for x in inputs]))


def quickest(peers, row, dtype, module, inputs, exact, threads, before):
    """(the peers that give the right result, quickest first: (seconds, name, function, error); name -> why not)"""
    found, skipped = [], {}
    for adapter in peers:
        try:
            run, value = adapter.prepare(row, dtype, module, inputs)
            error = error_of(as_list(value()), exact)
            if not error <= LIMITS[dtype]:
                raise Skip(f"its error is {error:.1e}")
            quick = min(sample(run, clock(threads), 2e-3, before) for _ in range(5))
            found.append((quick, adapter.name, run, error))
        except Skip as why:
            skipped[adapter.name] = str(why)
        except Exception as why:  # noqa: BLE001 - a peer that breaks on a row is skipped there, and the row says so
            skipped[adapter.name] = f"{type(why).__name__}: {str(why).splitlines()[0][:120] if str(why) else ''}"
    return sorted(found, key=lambda f: f[0]), skipped


def matrix_unit_factor():
    """How often AMX does the bf16 products of the vector units' f32 ones: 512 a cycle to 32."""
    with open("/proc/cpuinfo") as f:
        return 16 if "amx_bf16" in f.read() else 1


def measure(row, dtype, options, entry, peers, ceilings, dram):
    module, inputs = row.build(dtype), row.data(dtype)
    made = entry.optimize(row, dtype, module, inputs)
    out = dict(made.facts)
    if options.optimize_only:
        return out
    exact = None if made.error is not None else exact_of(module, inputs)
    out["error"] = made.error if exact is None else error_of(as_list(made.run()), exact)
    if not out["error"] <= LIMITS[dtype]:
        return {**out, "failed": f"our error is {out['error']:.1e}"}
    if options.pairs == 0:
        return out
    exact = exact or exact_of(module, inputs)
    before = ceilings.evict if row.cold else None
    found, out["skipped"] = quickest(peers, row, dtype, module, inputs, exact, options.threads, before)
    out["peers_ms"] = {name: 1e3 * quick for quick, name, _, _ in found}
    if not found:
        return {**out, "failed": "no peer could run it"}
    _, name, theirs, error = found[0]
    c = compare(made.run, theirs, options.threads, ceilings, options.pairs, 2e-3, before)
    if c is None:
        return {**out, "failed": "the machine was too noisy"}
    peak = c["peak"] * (matrix_unit_factor() if dtype == "bf16" else 1)
    least = max(row.flops / (peak * 1e9 * options.threads), row.elements * BYTES[dtype] / (dram * 1e9))
    return {**out, "ours_ms": 1e3 * c["ours_s"], "peer": name, "peer_ms": 1e3 * c["peer_s"], "ratio": c["ratio"],
            "lo": c["lo"], "hi": c["hi"], "roofline_pct": 100 * least / c["ours_s"], "peer_error": error,
            "peak_gflops": c["peak"], "pairs": c["kept"], "control": c["control"]}


def geomean(rows):
    if not rows or any("ratio" not in r for r in rows):
        return None
    return math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows))


def text_of(row):
    title = f"{row['name']} " + " ".join(f"{k}{v}" for k, v in row["point"].items())
    if "ratio" not in row:
        state = row.get("failed") or ("right" if "error" in row else "not measured")
        return f"{title:<44} {row['dtype']:<5} {state}" + (f"  {row['error']:.1e}" if "error" in row else "")
    return (f"{title:<44} {row['dtype']:<5} {row['ours_ms']:9.3f} ms  {row['peer_ms']:9.3f} ms {row['peer']:<21} "
            f"{row['ratio']:6.2f}x ({row['lo']:.2f} to {row['hi']:.2f})  {row['roofline_pct']:4.0f} %  {row['error']:.1e}")


def adapters(options):
    out = []
    for name in filter(None, options.against.split(",")):
        try:
            out.append(peer(name, options.threads))
        except Skip as why:
            say(f"bench: skipped: {why}")
    return out


def report(options, rows):
    """Measures the rows; what `bench/run` prints."""
    import torch

    torch.set_num_threads(options.threads)
    peers = adapters(options) if options.pairs else []
    entries = {name: ours(name, options) for name in {r.entry for r in rows}}
    ceilings = Ceilings(options.build)
    dram = ceilings.dram()
    results = []
    for dtype in options.dtype.split(","):
        for row in rows:
            head = {**{f: getattr(row, f) for f in FIELDS}, "dtype": dtype, "threads": options.threads}
            try:
                results.append({**head, **measure(row, dtype, options, entries[row.entry], peers, ceilings, dram)})
            except Failed as why:
                results.append({**head, "failed": str(why)})
            say(text_of(results[-1]))
            for name, why in results[-1].get("skipped", {}).items():
                say(f"    {name} skipped: {why}")
    return {"rows": results, "geomean": geomean(results), "geomean_attention": geomean([r for r in results if r["attention"]]),
            "dram_gbytes": dram, "versions": {p.name: p.version for p in peers}}
