"""A few of PyTorch's own operator samples against eager; `tools/conformance opinfo` runs all. Skipped without torch."""

import sys
import unittest
import warnings
from pathlib import Path

try:
    import expecttest  # noqa: F401
    import torch
except ImportError:
    raise unittest.SkipTest("torch and expecttest are not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from suites import opinfo  # noqa: E402

# Of each kind: elementwise with broadcasts, views, picks, reductions, norms, products, windows.
FLOATS = ["add", "div.floor_rounding", "where", "nn.functional.softplus", "cat", "expand", "split", "tril", "gather", "index_select",
          "argmax", "cummax", "cummin", "cumsum", "logsumexp", "softmax", "var_mean", "nn.functional.layer_norm", "addmm", "matmul", "nn.functional.conv1d",
          "nn.functional.avg_pool2d", "nn.functional.scaled_dot_product_attention"]  # fmt: skip
INTEGERS = ["add", "remainder"]


class Samples(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        self.known = dict(opinfo.operators())

    def agree(self, name, dtype, count):
        outcomes = []
        for number, sample in opinfo.samples(self.known[name], dtype, count):
            outcome, reason = opinfo.judge(self.known[name].op, sample, search=False)
            outcomes.append(outcome)
            self.assertNotEqual(outcome, "failed", f"{name} {dtype} {number}: {reason}")
        self.assertIn("passed", outcomes, name)

    def test_reals(self):
        for name in FLOATS:
            with self.subTest(name):
                self.agree(name, torch.float32, 2)

    def test_integers_and_halves(self):
        for name in INTEGERS:
            with self.subTest(name):
                self.agree(name, torch.int64, 2)
                self.agree(name, torch.bfloat16, 1)

    def test_a_wrong_result_is_seen(self):
        sample = next(opinfo.samples(self.known["add"], torch.float32, 1))[1]
        program, tensors, flat = opinfo.program_of(self.known["add"].op, sample, search=False)
        want = flat(*tensors)[0]
        self.assertEqual(opinfo.difference(program(*tensors)[0], want), "")
        self.assertTrue(opinfo.difference(program(*tensors)[0] * 1.001 + 0.001, want))
        self.assertTrue(opinfo.difference(program(*tensors)[0].double(), want))

    def test_what_is_refused_is_named(self):
        sample = next(opinfo.samples(self.known["fft.fft"], torch.float32, 1))[1]
        outcome, reason = opinfo.judge(self.known["fft.fft"].op, sample)
        self.assertEqual(outcome, "refused")
        self.assertIn("fft", reason)
        sample = next(opinfo.samples(self.known["native_batch_norm"], torch.float32, 1))[1]
        outcome, reason = opinfo.judge(self.known["native_batch_norm"].op, sample)
        self.assertEqual(outcome, "refused")
        self.assertIn("aten.native_batch_norm in training", reason)


if __name__ == "__main__":
    unittest.main()
