"""Models of the transformers package with seeded small configurations: cleave.optimize and torch.compile(backend="cleave") agree
with eager, with other batches and lengths through the same compilation. Skipped where the package is not installed."""

import contextlib
import io
import re
import unittest

try:
    import torch
    import transformers
except ImportError:
    raise unittest.SkipTest("torch and transformers are not installed")

import cleave

SMALL = dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=2, intermediate_size=128, vocab_size=101)


def model(name):
    t = transformers
    torch.manual_seed(0)
    if name == "gpt2":
        m = t.GPT2Model(t.GPT2Config(n_embd=64, n_head=4, n_layer=2, vocab_size=101, n_positions=64))
    elif name == "llama":
        m = t.LlamaModel(t.LlamaConfig(**SMALL, num_key_value_heads=2))
    elif name == "qwen3":
        m = t.Qwen3Model(t.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=16))
    elif name == "bert":
        m = t.BertModel(t.BertConfig(**SMALL))
    elif name == "vit":
        m = t.ViTModel(t.ViTConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=2, intermediate_size=128, image_size=32,
                                   patch_size=8))
    elif name == "t5":
        m = t.T5EncoderModel(t.T5Config(d_model=64, d_kv=16, num_heads=4, num_layers=2, d_ff=128, vocab_size=101))
    elif name == "mixtral":
        m = t.MixtralModel(t.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4))
    return m.eval()


def inputs(name, batch, length):
    torch.manual_seed(batch * 100 + length)
    if name == "vit":
        return (torch.randn(batch, 3, 32, 32),)
    return (torch.randint(0, 101, (batch, length)),)


class Wrapped(torch.nn.Module):
    """The last hidden state alone, without a cache."""

    def __init__(self, inner, name):
        super().__init__()
        self.inner, self.name = inner, name

    def forward(self, x):
        if self.name in ("vit",):
            return self.inner(x).last_hidden_state
        if self.name in ("bert", "t5"):
            return self.inner(input_ids=x).last_hidden_state
        return self.inner(input_ids=x, use_cache=False).last_hidden_state


NAMES = ["gpt2", "llama", "qwen3", "bert", "vit", "t5", "mixtral"]
COVERED = {"gpt2", "llama", "qwen3", "bert"}  # at least 95 % of the flops


class Optimize(unittest.TestCase):
    def test_agrees_with_eager(self):
        for name in NAMES:
            if name == "mixtral":
                continue  # its experts depend on data: for torch.compile
            with self.subTest(name):
                module = Wrapped(model(name), name)
                args = inputs(name, 2, 9)
                b, s = torch.export.Dim("b", min=1, max=16), torch.export.Dim("s", min=2, max=64)
                dims = ({0: b},) if name == "vit" else ({0: b, 1: s},)
                result = cleave.optimize(module, args, dynamic_shapes=dims, deterministic=True, threads=1)
                for batch, length in ((2, 9), (3, 17)):
                    x = inputs(name, batch, length)
                    with torch.no_grad():
                        torch.testing.assert_close(result(*x), module(*x), rtol=1e-4, atol=1e-4)


class Compile(unittest.TestCase):
    def test_agrees_with_eager(self):
        for name in NAMES:
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(f"{name} {dtype}"):
                    torch._dynamo.reset()
                    module = Wrapped(model(name), name).to(dtype)
                    compiled = torch.compile(module, backend="cleave", dynamic=True)
                    for batch, length in ((2, 9), (3, 17)):
                        x = tuple(t.to(dtype) if t.is_floating_point() else t for t in inputs(name, batch, length))
                        err = io.StringIO()
                        with torch.no_grad(), contextlib.redirect_stderr(err):
                            got, want = compiled(*x), module(*x)
                        tolerance = 1e-4 if dtype == torch.float32 else 6e-2
                        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
                        shares = [float(s) for s in re.findall(r"([0-9.]+) % of the flops", err.getvalue())]
                        if name in COVERED and shares:
                            self.assertGreaterEqual(min(shares), 95.0, err.getvalue())


if __name__ == "__main__":
    unittest.main()
