"""torch.compile(backend="cleave"). Skipped where torch is not installed."""

import contextlib
import io
import math
import subprocess
import sys
import threading
import unittest

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    raise unittest.SkipTest("torch is not installed")

import cleave
import cleave.backend
from torch_test import Attention, fast


class Backend(unittest.TestCase):
    def test_threads_that_look_it_up_at_once(self):
        code = (
            "import threading, torch\n"
            "start = threading.Barrier(4)\n"
            "def work(i):\n"
            "    start.wait()\n"
            "    if i == 0: import cleave.backend\n"
            "    f = torch.compile(torch.nn.Linear(4, 4).eval(), backend='cleave', options={'quiet': True})\n"
            "    with torch.no_grad(): f(torch.ones(2, 4))\n"
            "    print('ok')\n"
            "threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]\n"
            "[t.start() for t in threads]\n"
            "[t.join() for t in threads]\n")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300)
        self.assertEqual((done.stdout, done.stderr), ("ok\n" * 4, ""))  # nor does the interpreter's end say anything

    def test_views_of_one_tensor(self):
        def f(x, y):
            x.add_(1)
            return y * 2

        def views(a):
            return a[:3], a[1:]

        for dynamic in (False, True):
            compiled = self.compiled(f, dynamic=dynamic, options={"quiet": True})
            with torch.no_grad():
                torch.testing.assert_close(compiled(torch.zeros(3), torch.zeros(3)), torch.zeros(3))
                a, b = torch.zeros(4), torch.zeros(4)
                torch.testing.assert_close(compiled(*views(a)), f(*views(b)))
                torch.testing.assert_close(a, b)
                torch.testing.assert_close(compiled(b, b), f(a, a))
                torch.testing.assert_close(compiled(torch.zeros(3), torch.zeros(3)), torch.zeros(3))

    def test_returned_views_lie_where_eager_has_them(self):
        def columns():
            z = torch.arange(12.).view(3, 4)
            return z[:, :3], z[:, 1:]

        def turns():
            z = torch.arange(8.)
            return z[0::2], z[1::2]

        cases = [(lambda x, y: (x.mul_(2), y + 1), columns), (lambda x, y: (x.mul_(2), y.add_(x)), turns),
                 (lambda x, y: ((x + 1)[:, 1:], y.t()), columns), (lambda x, y: ((x + 1).t()[1:], (y * 2)[::2]), columns)]
        for f, made in cases:
            a, b = made(), made()
            with torch.no_grad():
                want, got = f(*a), self.compiled(f, options={"quiet": True})(*b)
            for x, y in [*zip(want, got), *zip(a, b)]:
                torch.testing.assert_close(y, x)
                self.assertEqual((y.stride(), y.storage_offset()), (x.stride(), x.storage_offset()))

    def test_parts_of_an_input_lie_where_eager_has_them(self):
        # Of open extents: what a split gives are views of the input, with places in memory that depend on these.
        cases = [lambda x: x.chunk(2, 1)[1], lambda x: x.chunk(2, 0), lambda x: (*x.chunk(2, 1), x * 2),
                 lambda x: (x.chunk(2, 1)[1], x.chunk(2, 1)[0] * 3), lambda x: x.chunk(2, 1)[0].chunk(2, 0)[1].t()[1:],
                 lambda x: x.split(x.shape[0] // 2 + 1, 0), lambda x: x.split([x.shape[1] // 2, x.shape[1] - x.shape[1] // 2], 1),
                 lambda x: (x.add_(1), x.chunk(2, 1)[1]), lambda x: (x + 1).chunk(2, 1), lambda x: x[x.shape[0] - 6:]]
        for f in cases:
            compiled = self.compiled(f, dynamic=True, options={"quiet": True})
            for shape in ((6, 6), (7, 9), (8, 7)):
                a = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
                b = a.clone()
                with torch.no_grad():
                    want, got = torch.utils._pytree.tree_leaves(f(a)), torch.utils._pytree.tree_leaves(compiled(b))
                self.assertEqual(len(got), len(want))
                for x, y in zip(want, got):
                    torch.testing.assert_close(y, x, rtol=0, atol=0)
                    self.assertEqual((y.stride(), y.storage_offset()), (x.stride(), x.storage_offset()))

    def test_integers_that_are_no_extents(self):
        compiled = self.compiled(lambda x, k: (x @ x).relu() + k, options={"quiet": True})
        x = torch.randn(5, 5)
        with torch.no_grad():
            for k in (2, 3, 0, -4, 7):
                torch.testing.assert_close(compiled(x, k), (x @ x).relu() + k)

    def compiled(self, module, **options):
        torch._dynamo.reset()
        return torch.compile(module, backend="cleave", **options)

    def run_quietly(self, f, *args):
        err = io.StringIO()
        with contextlib.redirect_stderr(err), torch.no_grad():
            return f(*args), err.getvalue()

    def test_a_model_is_one_island(self):
        module = Attention().eval()
        x = torch.randn(2, 9, 32)
        got, said = self.run_quietly(self.compiled(module), x)
        with torch.no_grad():
            torch.testing.assert_close(got, module(x), rtol=2e-5, atol=2e-5)
        self.assertIn("cleave: 1 island, 100.0 % of the flops", said)

    def test_what_has_no_elements_stays_with_eager_for_a_reason(self):
        got, said = self.run_quietly(self.compiled(lambda x: (x + 1).softmax(-1)), torch.ones(0, 5))
        self.assertEqual(got.shape, (0, 5))
        self.assertRegex(said, r"cleave: 0 islands, nothing to compute; left to eager: aten.add \(no elements\), aten._softmax \(no elements\)\n")
        got, said = self.run_quietly(self.compiled(lambda x: (x + 1).sum(0)), torch.ones(0, 5))
        torch.testing.assert_close(got, torch.zeros(5))
        self.assertIn("1 island, 100.0 % of the flops\n", said)

    def test_the_counts_are_there_without_an_import(self):
        done = subprocess.run([sys.executable, "-c", "import cleave; print(cleave.backend.stats['graphs'])"], capture_output=True, text=True)
        self.assertEqual(done.stdout, "0\n", done.stderr)

    def test_unsupported_parts_stay_with_eager(self):
        module = lambda x, w: torch.fft.rfft((x @ w).relu()).abs() @ w[:5]
        x, w = torch.randn(4, 8), torch.randn(8, 8)
        got, said = self.run_quietly(self.compiled(module), x, w)
        torch.testing.assert_close(got, module(x, w), rtol=1e-4, atol=1e-4)
        self.assertIn("fft", said)

    def test_one_operator_that_is_refused_does_not_keep_the_others(self):
        # By its arguments, by results that are not made, by its type: each is left alone.
        def f(x, w):
            y = F.pad((x @ w).relu()[None], (1, 1), mode="reflect")[0]
            norm, mean, spread = torch.ops.aten._native_batch_norm_legit.no_stats(y, None, None, True, 0.1, 1e-5)
            q = torch.linalg.inv(norm[:, 1:9] + 9 * torch.eye(8))
            return (q @ w).softmax(-1) + (mean * spread)[1:9] + w.logcumsumexp(1)

        x, w = torch.randn(8, 8), torch.randn(8, 8)
        got, said = self.run_quietly(self.compiled(f), x, w)
        torch.testing.assert_close(got, f(x, w), rtol=1e-4, atol=1e-4)
        for name in ("_native_batch_norm_legit for its other results", "linalg_inv", "logcumsumexp"):
            self.assertIn(name, said)
        self.assertRegex(said, "cleave: [2-9] islands")

    def test_what_eager_does_faster_is_left_to_it(self):
        def f(x, at):
            return torch.zeros(20000, 8).index_add(0, at, x.relu()) + 1

        x, at = torch.randn(2000, 8), torch.arange(2000) * 7 % 20000
        got, said = self.run_quietly(self.compiled(f), x, at)
        torch.testing.assert_close(got, f(x, at))
        self.assertIn("pairs of a place and an update", said)

    def test_tensors_that_the_code_makes(self):
        def f(x):
            y = x + torch.tensor([1.0, 2.0, 3.0])
            y[:, torch.tensor([0, 2])] = 5.0
            return y.softmax(-1)

        x = torch.randn(2, 3)
        got, said = self.run_quietly(self.compiled(f), x)
        torch.testing.assert_close(got, f(x))
        self.assertIn("1 island, 100.0 %", said)

    def test_inputs_that_change_and_views(self):
        def f(x, y):
            x[1:, ::2].mul_(3)
            x.t().add_(y)
            return x[0], x.sum()

        x, y = torch.randn(3, 4), torch.randn(3)
        mine = x.clone()
        got, said = self.run_quietly(self.compiled(f), mine, y)
        want = f(x, y)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(mine, x)
        self.assertEqual(got[0].data_ptr(), mine.data_ptr(), "a view of an input stays one")
        self.assertIn("100.0 %", said)

    def test_numbers_that_are_computed_from_dimensions(self):
        def f(x):
            rows, columns = x.shape
            y = x * rows**-0.5 + (x / columns**0.5) * (1 / rows) - math.log(columns) * math.sqrt(rows)
            return y.clamp(max=columns / 3) + torch.full((rows, 1), rows * 0.25) + torch.arange(columns) / rows

        def g(x):
            a, b = x.chunk(2, -1)
            first, rest = x.split([x.shape[0] // 3, x.shape[0] - x.shape[0] // 3])
            return a.sigmoid().sum() + b.softmax(-1).sum(-1) + (first.sum(0) - rest.cumsum(0)[-1]).sum()

        def h(x):
            image = x[None, None]
            sizes = (F.interpolate(image, size=(7, 5), mode="bilinear"), F.interpolate(image, scale_factor=2, mode="bicubic"),
                     F.interpolate(image, size=(4, 9), mode="nearest"))
            return [*sizes, *(F.pad(image, (2, 1, 1, 2), mode=mode) for mode in ("reflect", "replicate", "circular"))]

        for program in (f, g, h):
            compiled = self.compiled(program, dynamic=True)
            for shape in ((9, 8), (10, 7), (4, 5)):
                x = torch.randn(shape)
                got, said = self.run_quietly(compiled, x)
                torch.testing.assert_close(got, program(x), rtol=1e-4, atol=1e-4)
                self.assertNotIn("internal", said)
                self.assertNotIn("left to eager", said)

    def test_many_open_dimensions(self):
        # Short ones whose ranges have no end: what a kernel keeps is no larger for that.
        def swapped(x):
            half = x.shape[0] // 2
            return torch.cat([x[half:], x[:half]]) + x

        for program, shapes in ((swapped, ((9, 8), (4, 5), (7, 3))),
                                (lambda x: F.softsign(torch.erf(x)), ((2, 9, 8), (4, 100, 33))),
                                (lambda x: F.avg_pool1d(x.mT, 2), ((2, 9, 8), (3, 5, 7))),
                                (lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), 2), ((2, 9, 8, 3), (3, 6, 7, 5)))):
            compiled = self.compiled(program, dynamic=True)
            before = cleave.backend.stats["islands"]
            for shape in shapes:
                x = torch.randn(shape)
                got, said = self.run_quietly(compiled, x)
                torch.testing.assert_close(got, program(x), rtol=1e-5, atol=1e-5)
                self.assertNotIn("left to eager", said)
            self.assertEqual(cleave.backend.stats["islands"] - before, 1)

    def test_graph_breaks_and_dynamic_shapes(self):
        def f(x):
            y = x.softmax(-1)
            print(end="")
            return y * 2

        compiled = self.compiled(f, dynamic=True)
        before = dict(cleave.backend.stats)
        for n in (3, 5, 8):
            x = torch.randn(n, 7)
            got, _ = self.run_quietly(compiled, x)
            torch.testing.assert_close(got, f(x))
        now = cleave.backend.stats
        self.assertEqual((now["graphs"] - before["graphs"], now["recompiles"] - before["recompiles"]), (2, 0))

    def test_recompilations_are_counted(self):
        compiled = self.compiled(lambda x: x.softmax(-1) * 2, dynamic=False)
        before = cleave.backend.stats["recompiles"]
        for n in (3, 5, 3, 8):
            self.run_quietly(compiled, torch.randn(n, 7))
        self.assertEqual(cleave.backend.stats["recompiles"] - before, 2)

    def test_dimensions_that_only_numbers_say(self):
        # The second island gets a flattened tensor and two sizes; only the sizes say what to split it into.
        def f(x):
            b, s, d = x.shape
            flat = torch.fft.rfft(x.reshape(b * s, d)).real
            return flat.reshape(b, s, -1).softmax(1) * torch.arange(s)[None, :, None]

        compiled = self.compiled(f, dynamic=True)
        for b, s in ((2, 3), (4, 5), (3, 4)):
            x = torch.randn(b, s, 6)
            got, _ = self.run_quietly(compiled, x)
            torch.testing.assert_close(got, f(x), rtol=1e-5, atol=1e-5)

    def test_results_lie_in_memory_as_those_of_eager(self):
        # Eager reads the result of an island by its strides.
        def f(x, y):
            z = (x + 1).transpose(0, 1) * y
            return torch.as_strided(torch.fft.fft(z).real + z, (4, 2), (1, 4)), z.cumsum(0).t()

        x, y = torch.randn(5, 4), torch.randn(4, 5).t().contiguous().t()
        (got, turned), _ = self.run_quietly(self.compiled(f), x, y)
        want, other = f(x, y)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(turned, other, rtol=1e-5, atol=1e-5)

    def test_narrow_integers(self):
        def f(x, y):
            return x * y + 100, torch.maximum(x, y), x.sum(), x // 7, (x < y).to(torch.int8), x.to(torch.float32) / 3

        for dtype in (torch.int8, torch.int16):
            x, y = (torch.arange(-60, 60, 10).reshape(3, 4) * 3).to(dtype), torch.arange(12).reshape(3, 4).to(dtype)
            got, said = self.run_quietly(self.compiled(f), x, y)
            for one, other in zip(got, f(x, y)):
                torch.testing.assert_close(one, other)
            self.assertIn("100.0 %", said)
        for dtype in (torch.uint16, torch.uint32):  # eager has few operators of these
            x = torch.tensor([0, 1, 40000, 65535], dtype=torch.int64).to(dtype)
            result = cleave.optimize(lambda x: x.to(torch.float32) * 2, (x,), **fast())
            torch.testing.assert_close(result(x), x.to(torch.float32) * 2)

    def test_types_that_there_are_not_stay_with_eager(self):
        def f(x, w):
            return torch.relu(x.to(torch.float32) @ w)

        for dtype in (torch.uint64,):
            x, w = (torch.arange(12).reshape(3, 4) % 5).to(dtype), torch.ones(4, 4)
            got, said = self.run_quietly(self.compiled(f), x, w)
            torch.testing.assert_close(got, f(x, w))
            self.assertIn(str(dtype), said)
            self.assertIn("1 island", said)
            with self.assertRaisesRegex(cleave.UnsupportedError, str(dtype)):
                cleave.optimize(f, (x, w), **fast())

    def test_several_threads_compile_and_run_at_once(self):
        torch._dynamo.reset()
        modules = [torch.nn.Sequential(torch.nn.Linear(8, 8 + i), torch.nn.ReLU(), torch.nn.Linear(8 + i, 3)).eval() for i in range(4)]
        compiled = [torch.compile(m, backend="cleave", options={"quiet": True}) for m in modules]
        wrong = []

        def work(i):
            try:
                with torch.no_grad():
                    for turn in range(20):
                        which = (i + turn) % len(modules)
                        x = torch.full((4, 8), float(i + 1))
                        if not torch.allclose(compiled[which](x), modules[which](x), atol=1e-5):
                            wrong.append((i, which))
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_modes_and_budgets(self):
        x = torch.randn(64, 64)
        f = lambda x: (x @ x).softmax(-1)
        for options in ({"mode": "reduce-overhead"}, {"options": {"budget": "3c"}}):
            got, _ = self.run_quietly(self.compiled(f, **options), x)
            torch.testing.assert_close(got, f(x), rtol=1e-4, atol=1e-5)

    def test_changed_parameters_are_seen_unless_frozen(self):
        module = torch.nn.Linear(4, 4).eval()
        x = torch.randn(2, 4)
        compiled = self.compiled(module)
        self.run_quietly(compiled, x)
        with torch.no_grad():
            module.weight.zero_()
        got, _ = self.run_quietly(compiled, x)
        torch.testing.assert_close(got, module.bias.detach().expand(2, 4))
        frozen = self.compiled(torch.nn.Linear(4, 4).eval(), options={"freeze": True, "quiet": True})
        got, said = self.run_quietly(frozen, x)
        self.assertEqual(said, "")

    def test_training_is_left_to_eager(self):
        module = torch.nn.Linear(4, 4)
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            loss = self.compiled(module)(torch.randn(2, 4)).sum()
            loss.backward()
        self.assertIn("left to eager", err.getvalue())
        self.assertIsNotNone(module.weight.grad)

    def test_wrong_options(self):
        for options, said in (({"mode": "fastest"}, "fastest"), ({"options": {"speed": 9}}, "speed"), ({"options": {"quiet": 1}}, "quiet"),
                              ({"options": {"freeze": "no"}}, "freeze"), ({"options": {"budget": "fast"}}, "budget")):
            with self.subTest(said), self.assertRaisesRegex(Exception, said):
                self.run_quietly(self.compiled(torch.nn.ReLU(), **options), torch.randn(2))


if __name__ == "__main__":
    unittest.main()
