"""Parameters of programs, drawn small: pairwise distinct as far as the constraints allow, or as many equal as possible."""

import random
from types import SimpleNamespace

import torch

SIZES = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15]
# Parameters that shape an operator; all others are extents.
STRUCTURE = {
    "kernel": [1, 2, 3, 4, 5],
    "pool": [1, 2, 3],
    "stride": [1, 2, 3],
    "padding": [0, 1, 2],
    "dilation": [1, 2, 3],
    "group": [2, 3, 4],
    "head": [2, 3, 4, 6],
    "divisor": [1, 2, 3, 5],
    "block": [3, 4, 5, 6],
}
SPATIAL = ("height", "width", "depth", "length", "height_in", "width_in", "D", "H", "W", "dim1", "dim2", "dim3",
           "input_length", "sequence_length")  # fmt: skip


def axis_like(name):
    return name in ("dim", "reduce_dim", "reduction_dim")


def candidates(parameter, windows):
    name = parameter["name"]
    if axis_like(name) and len(parameter.get("range", [0] * 3)) == 2 and parameter["range"][1] < 8:
        return [parameter["default"]]
    for word, values in STRUCTURE.items():
        if word in name:
            return values
    return [5, 6, 7, 8, 9, 10, 11] if windows and name in SPATIAL else SIZES


def axis_choices(program):
    """Every value of each parameter that names an axis; [{}] when there is none."""
    for q in program["params"]:
        if axis_like(q["name"]) and "range" in q and q["range"][1] < 8:
            # The range is what the release draws from; the default is an axis too.
            low, high = q["range"]
            return [{q["name"]: v} for v in sorted({*range(low, high), q["default"]})]
    return [{}]


def draw(program, lawful, seed, equal, fixed, tries=3000):
    """One assignment of all parameters; None when no lawful one was found."""
    rng = random.Random(f"{program['name']} {seed} {equal} {fixed}")
    windows = any("kernel" in q["name"] for q in program["params"])
    best, score = None, None
    for attempt in range(tries):
        values = dict(fixed)
        common = rng.choice(SIZES)
        for q in program["params"]:
            if q["name"] in values:
                continue
            if q.get("kind") == "float":
                low, high = q.get("range", [q["default"]] * 2)
                values[q["name"]] = round(rng.uniform(low, high), 6)
                continue
            options = candidates(q, windows)
            if len(options) == 1:
                values[q["name"]] = options[0]
            elif equal and common in options and rng.random() < 0.9:
                values[q["name"]] = common
            elif "max_seqlen" in q["name"]:
                values[q["name"]] = 16
            else:
                values[q["name"]] = rng.choice(options)
        try:
            if not lawful(SimpleNamespace(**values)):
                continue
        except (ZeroDivisionError, AttributeError):
            continue
        drawn = [v for q in program["params"] for v in [values[q["name"]]] if isinstance(v, int) and q["name"] not in fixed]
        mine = len(set(drawn)) if not equal else -len(set(drawn))
        work = 1
        for v in drawn:
            work *= max(v, 1)
        if work > 60_000_000:
            mine -= 3
        if score is None or mine > score:
            best, score = values, mine
            if (not equal and mine == len(drawn)) or (equal and mine == -1):
                break
        if attempt > 400 and best is not None:
            break
    return SimpleNamespace(**best) if best else None


def data(shapes, dtype, seed):
    """Input tensors of the given laws, in `dtype` (reals) and with the same values in float64."""
    generator = torch.Generator().manual_seed(seed)
    classes = next((s[-1] for s, law in shapes if law == "normal" and s), 2)
    out = []
    for shape, law in shapes:
        if isinstance(law, float):
            value = torch.tensor(law, dtype=torch.float64)
        elif law == "class":
            out.append(torch.randint(0, classes, shape, generator=generator))
            continue
        elif law == "bool":
            out.append(torch.randint(0, 2, shape, generator=generator).bool())
            continue
        else:
            value = torch.randn(shape, generator=generator, dtype=torch.float64)
            if law == "positive":
                value = value.abs() + 1e-3
            elif law == "sign":
                value = torch.where(value < 0, -1.0, 1.0).double()
            elif law == "simplex":
                value = torch.softmax(value, dim=-1)
        out.append(value.to(dtype))
    return out
