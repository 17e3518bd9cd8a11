"""PyTorch programs as LEIR, where other translators went wrong. Skipped without torch."""

import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
CLEAVE = os.environ.get("CLEAVE", str(ROOT / "build/bin/cleave"))

try:
    import torch
    from torch import nn
    from torch.nn import functional as f
except ImportError:
    torch = None


def rows(*shape):
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape) / 7 - 1


@unittest.skipIf(torch is None, "torch is not installed")
class Translate(unittest.TestCase):
    def equal(self, function, *inputs, module=None):
        """The LEIR of the function, run by the interpreter, gives PyTorch's results."""
        from cleave_leir import store, translate
        from cleave_leir.programs import Chain

        torch.manual_seed(1)
        module = (module or Chain(lambda m, *x: function(*x))).double().eval()
        program = translate(module, inputs)
        with torch.no_grad():
            expected = module(*inputs)
        expected = expected if isinstance(expected, (tuple, list)) else [expected]
        with tempfile.TemporaryDirectory() as folder:
            store.write(pathlib.Path(folder), program, expected)
            command = [CLEAVE, "leir", "run", folder, "--check", "--rtol", "1e-10"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + program.full)
        return program

    def test_broadcasts_align_at_the_right(self):  # rows 1 and 2
        for shape in ((4, 4), (14, 4), (4, 4, 4)):
            self.equal(lambda a, b: a + b * 2, rows(*shape), rows(4))
        self.equal(lambda a, b: a * b, rows(4, 1), rows(1, 4))

    def test_convolutions_keep_groups_and_bias(self):  # row 3
        for groups, out in ((2, 4), (4, 4), (4, 8), (1, 4), (2, 6)):
            self.equal(None, rows(2, 4, 5, 6), module=nn.Conv2d(4, out, 3, groups=groups, padding=1, bias=True))
        self.equal(None, rows(2, 4, 9), module=nn.Conv1d(4, 4, 3, stride=2, dilation=2, groups=2))
        self.equal(None, rows(1, 2, 5, 5), module=nn.Conv2d(2, 3, 3, padding="same"))

    def test_views_are_any_views(self):  # row 4
        for before, after in (((24,), (2, 3, 4)), ((4, 6), (3, 8)), ((2, 3, 4), (24,)), ((2, 2, 2, 2), (4, 2, 2)),
                              ((6, 4), (2, 3, 2, 2)), ((2, 3, 5), (15, 2)), ((3, 1, 4), (12,))):  # fmt: skip
            self.equal(lambda x, after=after: x.reshape(after) + 1, rows(*before))
        self.equal(lambda x: x.transpose(0, 1).reshape(12), rows(3, 4))
        self.equal(lambda x: x[:, ::2].flip(1).unsqueeze(0).expand(3, 2, 3).sum(0), rows(2, 5))
        self.equal(lambda x: torch.cat((x, x.T, x[:1]), 0), rows(3, 3))

    def test_pools_take_any_window(self):  # row 4
        for kernel, stride, padding, ceil in (((2, 3), None, 0, False), ((3, 2), 2, 1, True), (3, (2, 1), 1, False), (2, 3, 0, True)):
            self.equal(lambda x, k=kernel, s=stride, p=padding, c=ceil: f.max_pool2d(x, k, s, p, ceil_mode=c), rows(1, 2, 7, 8))
            for include in (False, True):
                self.equal(lambda x, k=kernel, s=stride, p=padding, c=ceil, i=include:
                           f.avg_pool2d(x, k, s, p, ceil_mode=c, count_include_pad=i), rows(1, 2, 7, 8))  # fmt: skip
        self.equal(lambda x: f.avg_pool2d(x, 2, divisor_override=3), rows(1, 1, 4, 4))

    def test_ties_and_nan_take_the_first(self):  # row 5
        self.equal(lambda x: (x.argmax(0), x.argmin(0), x.argmax()), torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64))
        nan = torch.tensor([[1.0, math.nan, 3.0, math.nan], [2.0, 1.0, 2.0, 1.0]], dtype=torch.float64)
        self.equal(lambda x: (x.argmax(1), x.max(1)[0], x.max(1)[1], x.min(1)[1]), nan)

    def test_large_values_stay_finite(self):  # row 6
        big = torch.tensor([[800.0, -800.0, 799.0], [1e4, 0.0, -1e4]], dtype=torch.float64)
        for function in (torch.tanh, f.softplus, f.mish, f.silu, f.gelu, torch.sigmoid):
            self.equal(function, big)
        self.equal(lambda x: (torch.logsumexp(x, 1), torch.softmax(x, 1), f.log_softmax(x, 1)), big)
        infinite = torch.tensor([[-math.inf, -math.inf], [math.inf, 1.0]], dtype=torch.float64)
        self.equal(lambda x: torch.logsumexp(x, 1), infinite)

    def test_several_outputs(self):  # row 31
        program = self.equal(lambda a, b: (a + b, a, (a * b).sum(), b.T), rows(3, 3), rows(3, 3) * 2)
        self.assertEqual(len(program.outputs), 4)

    def test_losses(self):
        target = torch.tensor([2, 0, 3, 1, 2])
        self.equal(lambda x: f.cross_entropy(x, target), rows(5, 4))
        self.equal(lambda x: f.cross_entropy(x, target, ignore_index=2, reduction="sum"), rows(5, 4))
        self.equal(lambda x: f.nll_loss(x, target, weight=rows(4), ignore_index=1), rows(5, 4))
        self.equal(lambda x, y: f.kl_div(x, y, reduction="mean"), rows(2, 3), rows(2, 3).abs())
        self.equal(lambda a, b, c: f.triplet_margin_loss(a, b, c, swap=True, p=3), rows(2, 3), rows(2, 3) * 2, rows(2, 3).flip(0))
        self.equal(lambda a, b: f.cosine_similarity(a, b, dim=2), rows(2, 3, 4), rows(2, 3, 4) ** 2)
        self.equal(lambda a, b: f.smooth_l1_loss(a, b, beta=0.5), rows(3, 4), rows(3, 4) * 1.3)

    def test_scans_and_statistics(self):
        for axis in (0, 1, -1):
            self.equal(lambda x, a=axis: (torch.cumsum(x, a), torch.cumprod(x, a)), rows(2, 3, 4))
        self.equal(lambda x: (x.var(1), x.std(0), x.var(dim=(0, 1), unbiased=False), x.mean()), rows(3, 4))
        self.equal(lambda x: x.unsqueeze(1).expand(3, 5, 4).sum(1), rows(3, 4))

    def test_attention_and_tables(self):
        q, k, v = rows(2, 4, 3, 5) / 9, rows(2, 4, 6, 5) / 8, rows(2, 4, 6, 7)
        self.equal(lambda q, k, v: f.scaled_dot_product_attention(q, k, v), q, k, v)
        self.equal(lambda q, k: f.scaled_dot_product_attention(q, k, k, is_causal=True), q, q.flip(2))
        mask = torch.arange(18).reshape(3, 6) % 4 != 1
        self.equal(lambda q, k, v: f.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3), q, k, v)
        self.equal(lambda q, k, v: f.scaled_dot_product_attention(q, k[:, ::2], v[:, ::2], enable_gqa=True), q, k, v)
        index = torch.tensor([[2, 0], [1, 2]])
        self.equal(lambda w: f.embedding(index, w), rows(3, 4))
        self.equal(lambda x: torch.index_select(x, 1, torch.tensor([3, 0, 3])), rows(2, 4))
        self.equal(None, rows(2, 3, 4), module=nn.PReLU(3))
        self.equal(lambda x: x.repeat(2, 3), rows(2, 2))

    def test_axes_beyond_a_block_are_split_or_bound_to_blocks(self):
        program = self.equal(lambda x: x * 2, rows(2050))
        self.assertIn("L^{5}_{a=0}B^{410}_{tx=0}", program.text)  # the largest divisor up to 1,024
        self.assertIn("B^{1031}_{bx=0}B^{1}_{tx=0}", self.equal(lambda x: x * 2, rows(1031)).text)

    def test_sixteen_bit_programs_round_where_they_are_stored(self):
        from cleave_leir import translate
        from cleave_leir.programs import Chain

        module = Chain(lambda m, x: torch.softmax(torch.relu(x) * 2, dim=-1) + 1)
        x = rows(3, 4).half()
        wide = translate(module, (x,))
        self.assertEqual(wide.full.count("^{f16,g}"), wide.full.count("A^{f16,g}") + 1, wide.full)  # the input, the output
        self.assertIn("out " + wide.outputs[0] + " f16[3,4]", wide.header)
        own = translate(module, (x,), intermediates="own")
        self.assertGreater(own.full.count("^{f16,g}"), wide.full.count("^{f16,g}"))
        self.assertIn("f32", own.full)  # sums
        self.assertNotIn("f32", translate(module, (x,), accumulate="target").full)
        # A cast that the program writes rounds, and what follows is kept wide again.
        cast = Chain(lambda m, x: (x * 3).half().float() + 1)
        text = translate(cast, (rows(3).float(),)).full
        self.assertEqual(text.count("f16"), 2, text)

    def test_elements_at_computed_places(self):
        i = torch.tensor([3, 0, 2])
        self.equal(lambda x, i: (x[i], x[:, i % 2], torch.gather(x, 1, i[:, None] % 4)), rows(5, 4), i)
        self.equal(lambda x, i, j: (x[i, j], x[:, i[:, None], j], x[i, :, j]), rows(5, 4, 4), i, torch.tensor([1, 3, 0]))
        self.equal(lambda x: (x.unfold(1, 3, 2), x.roll(2, 0), torch.remainder(x, 0.75)), rows(4, 7))

    def test_transposed_convolutions(self):
        for options in ({}, {"stride": 2, "output_padding": 1}, {"stride": (2, 3), "padding": (1, 2), "dilation": 2},
                        {"groups": 2, "stride": 3, "bias": False}):  # fmt: skip
            self.equal(None, rows(2, 4, 4, 5), module=nn.ConvTranspose2d(4, 6, 3, **options))
        self.equal(None, rows(1, 2, 6), module=nn.ConvTranspose1d(2, 3, 4, stride=2, padding=1))

    def test_operators_without_a_handler_are_taken_apart(self):
        self.equal(lambda a, b: (torch.outer(a, b), torch.einsum("i,j,i->j", a, b, a)), rows(3), rows(4))
        self.equal(f.binary_cross_entropy_with_logits, rows(3, 4), torch.sigmoid(rows(3, 4)))
        self.equal(lambda x: (torch.cummax(x.flip(1), 1)[0], torch.cummin(x, 0)[0]), rows(3, 4) % 1)

    def test_masks_far_away_do_not_blur_the_rest(self):
        self.equal(lambda x, m: x.masked_fill(m, -1e9).softmax(-1), rows(3, 4), rows(3, 4) > 0)

    def test_what_has_no_form_is_named(self):
        from cleave_leir import Unsupported, translate
        from cleave_leir.programs import Chain

        with self.assertRaisesRegex(Unsupported, "aten.sort"):
            translate(Chain(lambda m, x: torch.sort(x)[0]), (rows(4),))


if __name__ == "__main__":
    unittest.main()
