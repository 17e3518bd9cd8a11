"""A printed `.graph` text (constant extents) as a PyTorch module, so that peers can run a user's own artefact.

Statements are those that the command prints: one operator a line. Operators that are missing here are named in the error.
"""

import re

import torch
import torch.nn.functional as F

DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}


class Unsupported(Exception):
    pass


def einsum(x, y, spec):
    letters = {}

    def short(part):
        return "".join(letters.setdefault(n, chr(ord("a") + len(letters))) for n in part.split())

    (left, right), out = spec.split("->")[0].split(","), spec.split("->")[1]
    return torch.einsum(f"{short(left)},{short(right)}->{short(out)}", x, y)


def axes_of(x, a):
    return tuple(a.get("axes", range(x.dim())))


def gate(name):
    return {"silu": F.silu, "gelu_erf": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "mish": F.mish,
            "hardswish": F.hardswish, "relu": F.relu, "selu": F.selu, "softplus": F.softplus,
            "hardsigmoid": F.hardsigmoid}[name]


def reduction(name):
    f = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin}[name]
    return lambda a, x: f(x, dim=axes_of(x, a), keepdim=a.get("keepdims", False))


def norm(kind):
    def run(a, x, *rest):
        axes, eps = tuple(a["axes"]), a.get("eps", 1e-5)
        shape = [x.shape[i] for i in axes]
        if list(axes) != list(range(x.dim() - len(axes), x.dim())):
            raise Unsupported(f"{kind} over axes that are not the last")
        rest = [r.reshape(shape) for r in rest]
        if kind == "layer_norm":
            return F.layer_norm(x, shape, rest[0] if rest else None, rest[1] if len(rest) > 1 else None, eps)
        return F.rms_norm(x, shape, rest[0] if rest else None, eps)

    return run


def sdpa(a, q, k, v, mask=None):
    if a.get("lse") or a.get("empty"):
        raise Unsupported("sdpa with lse or empty")
    causal = a.get("causal")
    if causal == "end" and q.shape[-2] != k.shape[-2]:
        s, n = q.shape[-2], k.shape[-2]
        mask, causal = torch.ones(s, n, dtype=torch.bool).tril(n - s), None
    if q.dim() == 3:
        return sdpa(a, q[None], k[None], v[None], mask)[0]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=bool(causal), scale=a.get("scale"),
                                          enable_gqa=q.shape[-3] != k.shape[-3])


OPERATORS = {
    "contract": lambda a, x, y: einsum(x, y, a["spec"]),
    "softmax": lambda a, x: torch.softmax(x, a["axis"]), "log_softmax": lambda a, x: torch.log_softmax(x, a["axis"]),
    "logsumexp": lambda a, x: torch.logsumexp(x, axes_of(x, a), a.get("keepdims", False)),
    "layer_norm": norm("layer_norm"), "rms_norm": norm("rms_norm"), "sdpa": sdpa,
    "reshape": lambda a, x: x.reshape(a["shape"]), "transpose": lambda a, x: x.permute(a["perm"]),
    "broadcast": lambda a, x: x.expand(a["shape"]),
    "squeeze": lambda a, x: x.squeeze(tuple(a["axes"])),
    "cast": lambda a, x: x.to(DTYPES[a["dtype"]]), "where": lambda a, c, x, y: torch.where(c, x, y),
    "concat": lambda a, *x: torch.cat(x, a["axis"]), "split": lambda a, x: torch.split(x, a["sizes"], a["axis"]),
    "clamp": lambda a, x, low, high: torch.clamp(x, low, high), "quot0": lambda a, x, y: torch.where(y == 0, 0, x / y),
    "max": lambda a, x, y: torch.maximum(x, y), "min": lambda a, x, y: torch.minimum(x, y),
    "leaky_relu": lambda a, x, y: torch.where(x >= 0, x, x * y), "elu": lambda a, x, y: torch.where(x > 0, x, y * torch.expm1(x)),
}
for _name in ("add", "sub", "mul", "pow", "div", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"):
    OPERATORS[_name] = (lambda f: lambda a, x, y: f(x, y))(getattr(torch, _name))
for _name in ("neg", "abs", "sign", "square", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal",
              "floor", "ceil", "round", "sin", "cos", "tan", "tanh", "erf", "sigmoid", "logical_not"):
    OPERATORS[_name] = (lambda f: lambda a, x: f(x))(getattr(torch, _name))
for _name in ("silu", "gelu_erf", "gelu_tanh", "mish", "hardswish", "relu", "selu", "softplus", "hardsigmoid"):
    OPERATORS[_name] = (lambda f: lambda a, x: f(x))(gate(_name))
for _name in ("sum", "mean", "amax", "amin"):
    OPERATORS[_name] = reduction(_name)


def unsqueeze(a, x):
    for axis in sorted(a["axes"]):
        x = x.unsqueeze(axis)
    return x


def take_slice(a, x):
    index = [slice(None)] * x.dim()
    for axis, start, stop, step in zip(a["axes"], a["starts"], a["stops"], a.get("steps", [1] * len(a["axes"]))):
        if step < 0:
            raise Unsupported("slice with a negative step")
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


OPERATORS["unsqueeze"], OPERATORS["slice"] = unsqueeze, take_slice

LEAF = re.compile(r'^(input|const|scalar) (\S+): (\w+)(?:\[([^\]]*)\])?(?: as "[^"]*")?(?: = (.*))?$')
CALL = re.compile(r"^([\w., ]+?) = (\w+)\((.*)\)$")
OUTPUT = re.compile(r'^output ("[^"]*"|\S+) = (\S+)$')


def split_arguments(text):
    parts, depth, quoted, now = [], 0, False, ""
    for c in text:
        quoted ^= c == '"'
        depth += (c in "[(") - (c in "])") if not quoted else 0
        if c == "," and depth == 0 and not quoted:
            parts.append(now.strip())
            now = ""
        else:
            now += c
    return parts + [now.strip()] if now.strip() else parts


def value_of(text):
    if text.startswith('"'):
        return text[1:-1]
    if text.startswith("["):
        return [value_of(t) for t in split_arguments(text[1:-1])]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text  # a dtype


def parse(text):
    """(inputs, constants, statements, outputs): leaves as name -> (dtype, shape), statements as (results, op, operands,
    attributes)."""
    leaves, constants, statements, outputs = {}, {}, [], []
    for line in text.splitlines()[1:]:
        line = line.strip()
        if line in ("", "}") or line.startswith("#"):
            continue
        if leaf := LEAF.match(line):
            kind, name, dtype, shape, _ = leaf.groups()
            if kind == "scalar":
                raise Unsupported("run-time scalars")
            target = leaves if kind == "input" else constants
            target[name] = (dtype, tuple(int(n) for n in (shape or "").split(",") if n.strip()))
        elif output := OUTPUT.match(line):
            outputs.append(output.group(2))
        elif call := CALL.match(line):
            results, op, body = call.groups()
            arguments = split_arguments(body)
            attributes = {a.split("=", 1)[0]: value_of(a.split("=", 1)[1]) for a in arguments if re.match(r"^\w+=", a)}
            operands = [a for a in arguments if not re.match(r"^\w+=", a)]
            if op not in OPERATORS and op != "literal":
                raise Unsupported(f"the operator `{op}`")
            statements.append(([r.strip() for r in results.split(",")], op, operands, attributes))
        else:
            raise Unsupported(f"the statement `{line}`")
    if len(outputs) != 1:
        raise Unsupported("graphs with several outputs")
    return leaves, constants, statements, outputs


def function(text):
    leaves, constants, statements, outputs = parse(text)
    order = list(leaves)

    def run(module, *inputs):
        values = dict(zip(order, inputs))
        values.update({n: getattr(module, f"c_{i}") for i, n in enumerate(constants)})
        for results, op, operands, attributes in statements:
            if op == "literal":
                values[results[0]] = attributes["value"]
                continue
            x = OPERATORS[op](attributes, *[values[o] for o in operands])
            values.update(zip(results, x if isinstance(x, tuple) else (x,)))
        return values[outputs[0]]

    return leaves, {f"c_{i}": shape for i, shape in enumerate(constants.values())}, run
