"""What each part of the optimiser brings: every row with everything, and again with one part left out.

A row is optimised with `cleave optimize --without PART` for each part (algebra, iterative tiling, splits, packed operands,
panel layouts, and algebra and tiling together), and the artefacts are compared with the one that has everything in interleaved
pairs. A figure is the time without the part over the time with everything: 1.00x, the part brings nothing there."""

import copy
from pathlib import Path

from suites import subgraphs

PARTS = ["algebra", "tiling", "split", "packing", "layout", "algebra+tiling"]


def rows(options=None):
    """One row of each subgraph, small enough to be optimised seven times."""
    out = {}
    for row in sorted(subgraphs.rows(options), key=lambda r: r.flops or r.elements):
        if row.point.get("M", 16) == 16:
            out.setdefault(row.name, row)
    return [out[name] for name in sorted(out)]


def side(options, part):
    from ours import ours

    own = copy.copy(options)
    own.cache = str(Path(options.cache) / "ablation" / part)
    own.option = options.option + [word for p in part.split("+") if p != "all" for word in ("--without", p)]
    return ours("command", own)


def measure(row, options, sides, ceilings):
    from measure import compare

    module, inputs = row.build("f32"), row.data("f32")
    runs = {part: entry.optimize(row, "f32", module, inputs).run for part, entry in sides.items()}
    out = {"name": row.name, "point": row.point, "without": {}}
    before = ceilings.evict if row.cold else None
    for part in PARTS if options.pairs else []:
        c = compare(runs["all"], runs[part], options.threads, ceilings, options.pairs, 2e-3, before)
        if c is None:
            return {**out, "failed": "the machine was too noisy"}
        out["ours_ms"] = 1e3 * c["ours_s"]
        out["without"][part] = {"ratio": c["ratio"], "lo": c["lo"], "hi": c["hi"]}
    return out


def report(options, chosen):
    from comparison import say
    from measure import Ceilings
    from ours import Failed

    ceilings = Ceilings(options.build)
    sides = {part: side(options, part) for part in ["all", *PARTS]}
    results = []
    for row in chosen:
        try:
            results.append(measure(row, options, sides, ceilings))
        except Failed as why:
            results.append({"name": row.name, "point": row.point, "without": {}, "failed": str(why)})
        say(text_of(results[-1]))
    return {"parts": PARTS, "rows": results}


def text_of(row):
    title = f"{row['name']} " + " ".join(f"{k}{v}" for k, v in row["point"].items())
    if not row["without"]:
        return f"{title:<40} {row.get('failed', 'not measured')}"
    return f"{title:<40} {row['ours_ms']:9.3f} ms" + "".join(f"  no {p} {w['ratio']:.2f}x" for p, w in row["without"].items())
