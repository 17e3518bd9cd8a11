"""Networks of the transformers package (seeded small configurations) against eager PyTorch.

Each goes through `torch.compile(backend="cleave", dynamic=True)` and through `cleave.optimize` with an open batch and an open
length, and runs with several batches and lengths. Both are compared with the same network in float64 (the weights are those of
the type): a result may be twice as far from it as eager's is. There may be one compilation only, and of the networks in
COVERED at least 95 % of the flops have to be compiled. Exit code 0 when all agree.

Runs under a Python that has PyTorch, `transformers` and the package (PYTHONPATH=python build/venv/bin/python).
"""

import contextlib
import io
import json
import re
import time

NAMES = ["gpt2", "llama", "qwen3", "bert", "vit", "t5", "mixtral", "mixtral_dense"]
COVERED = {"gpt2", "llama", "qwen3", "bert"}  # at least 95 % of the flops
NOT_EXPORTED = {"mixtral"}  # its experts depend on data: for torch.compile
DTYPES = ["float32", "bfloat16", "float16"]


def declare(parser):
    parser.add_argument("--only", action="append", choices=NAMES, help="default: all")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="default: float32 and bfloat16")
    parser.add_argument("--way", action="append", choices=["compile", "optimize"], help="default: both")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def dense_experts(self, tokens, picked, weights):
    """Every expert works on every token; those that were not picked have weight 0."""
    import torch  # noqa: PLC0415

    routing = torch.zeros(tokens.shape[0], self.num_experts, dtype=weights.dtype).scatter(1, picked, weights)
    gate, up = torch.einsum("td,efd->etf", tokens, self.gate_up_proj).chunk(2, dim=-1)
    out = torch.einsum("etf,edf->etd", self.act_fn(gate) * up, self.down_proj)
    return torch.einsum("etd,te->td", out, routing.to(out.dtype))


def model(name, layers):
    """The network in inference, giving its last hidden state alone."""
    import torch  # noqa: PLC0415
    import transformers as t  # noqa: PLC0415
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS  # noqa: PLC0415

    ALL_EXPERTS_FUNCTIONS.register("dense", dense_experts)
    small = dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=layers, intermediate_size=128, vocab_size=101)
    make = {
        "gpt2": lambda: t.GPT2Model(t.GPT2Config(n_embd=64, n_head=4, n_layer=layers, vocab_size=101, n_positions=64,
                                                 bos_token_id=0, eos_token_id=0)),
        "llama": lambda: t.LlamaModel(t.LlamaConfig(**small, num_key_value_heads=2)),
        "qwen3": lambda: t.Qwen3Model(t.Qwen3Config(**small, num_key_value_heads=2, head_dim=16)),
        "bert": lambda: t.BertModel(t.BertConfig(**small)),
        "vit": lambda: t.ViTModel(t.ViTConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=layers,
                                              intermediate_size=128, image_size=32, patch_size=8)),
        "t5": lambda: t.T5Model(t.T5Config(d_model=64, d_kv=16, num_heads=4, num_layers=layers, d_ff=128, vocab_size=101)),
        "mixtral": lambda: t.MixtralModel(t.MixtralConfig(**small, num_key_value_heads=2, num_local_experts=4)),
        "mixtral_dense": lambda: t.MixtralModel(t.MixtralConfig(**small, num_key_value_heads=2, num_local_experts=4,
                                                                experts_implementation="dense")),
    }  # fmt: skip
    torch.manual_seed(0)
    inner = make[name]().eval()

    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            if name == "vit":
                return self.inner(x).last_hidden_state
            more = {} if name == "bert" else {"use_cache": False}
            if name == "t5":  # both halves: cross-attention from and to the same ids
                more["decoder_input_ids"] = x
            return self.inner(input_ids=x, **more).last_hidden_state

    return Last()


def example(name, batch, length, dtype=None):
    import torch  # noqa: PLC0415

    torch.manual_seed(batch * 100 + length)
    if name == "vit":
        return torch.randn(batch, 3, 32, 32).to(dtype)
    return torch.randint(0, 101, (batch, length))


def worst(a, b):
    """The larger one; NaN if either is."""
    return b if not b <= a else a


def check(name, way, dtype, layers, points=((2, 9), (3, 17), (4, 40))):
    """One network: {"off": largest difference from eager, "error" and "eager_error": from float64, "coverage", "compilations",
    "seconds", "ok"}."""
    import copy  # noqa: PLC0415

    import torch  # noqa: PLC0415

    import cleave  # noqa: PLC0415
    from cleave import backend  # noqa: PLC0415

    kind = getattr(torch, dtype)
    module = model(name, layers).to(kind)
    exact = copy.deepcopy(module).double()
    if name == "mixtral":  # its own experts take no float64
        exact.inner.set_experts_implementation("dense")
    said, start, coverage = io.StringIO(), time.monotonic(), 1.0
    with torch.no_grad(), contextlib.redirect_stderr(said):
        if way == "compile":
            torch._dynamo.reset()
            before = backend.stats["graphs"]
            compiled = torch.compile(module, backend="cleave", dynamic=True)
        else:
            b, s = torch.export.Dim("b", min=1, max=16), torch.export.Dim("s", min=2, max=64)
            dims = ({0: b},) if name == "vit" else ({0: b, 1: s},)
            compiled = cleave.optimize(module, (example(name, *points[0], kind),), dynamic_shapes=dims, deterministic=True)
            coverage = compiled.coverage
        off = error = eager_error = 0.0
        for batch, length in points:
            x = example(name, batch, length, kind)
            got, eager = compiled(x).double(), module(x).double()
            want = exact(x.double() if x.is_floating_point() else x)
            off, error, eager_error = (worst(a, float((b - c).abs().max())) for a, b, c in
                                       ((off, got, eager), (error, got, want), (eager_error, eager, want)))  # fmt: skip
            if way == "compile" and (batch, length) == points[0]:
                first = backend.stats["graphs"]
    if way == "compile":
        shares = [float(share) / 100 for share in re.findall(r"([0-9.]+) % of the flops", said.getvalue())]
        coverage = min(shares, default=0.0)
        compilations = 1 + backend.stats["graphs"] - first if first > before else 0
    else:
        compilations = compiled.compilations
    ok = error <= 2 * eager_error and compilations == 1 and (name not in COVERED or coverage >= 0.95)
    memory = compiled.memory if way == "optimize" else None
    return {"network": name, "way": way, "dtype": dtype, "off": off, "error": error, "eager_error": eager_error,
            "coverage": round(coverage, 4), "compilations": compilations, "memory": memory, "seconds": round(time.monotonic() - start, 1),
            "ok": ok}  # fmt: skip


def run(arguments):
    import transformers  # noqa: PLC0415

    transformers.logging.set_verbosity_error()
    results = []
    for name in arguments.only or NAMES:
        for way in arguments.way or ["compile", "optimize"]:
            if way == "optimize" and name in NOT_EXPORTED:
                continue
            for dtype in arguments.dtype or ["float32", "bfloat16"]:
                try:
                    results.append(check(name, way, dtype, arguments.layers))
                except Exception as error:  # one network does not end the others
                    results.append({"network": name, "way": way, "dtype": dtype, "ok": False, "error": str(error).splitlines()[0]})
                if not arguments.json:
                    print("  ".join(f"{k} {v}" for k, v in results[-1].items()), flush=True)
    if arguments.json:
        print(json.dumps({"schema": "cleave.conformance.models/1", "layers": arguments.layers, "results": results}, indent=1))
    return 0 if all(r["ok"] for r in results) else 1


