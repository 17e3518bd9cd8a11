"""PyTorch: torch.export programs, operators one by one. Skipped where torch is not installed."""

import copy
import io
import os
import tempfile
import threading
import unittest

import numpy as np

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    raise unittest.SkipTest("torch is not installed")

import cleave
from torch.utils import _pytree as pytree
from cleave import fx

torch.manual_seed(0)


def fast(**more):
    return dict(deterministic=True, threads=1, **more)


class Attention(torch.nn.Module):
    def __init__(self, dim=32, heads=4, causal=True):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.norm = torch.nn.LayerNorm(dim)
        self.heads, self.causal = heads, causal

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(o.transpose(1, 2).reshape(b, s, d))


class Conv(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1),
            torch.nn.Conv2d(8, 8, 3, padding="same", groups=4), torch.nn.SiLU(), torch.nn.AvgPool2d(2, ceil_mode=True),
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5), torch.nn.LogSoftmax(-1))

    def forward(self, x):
        return self.net(x)


class Modules(unittest.TestCase):
    def check(self, module, *args, atol=2e-5, **options):
        module = module.eval() if isinstance(module, torch.nn.Module) else module
        with torch.no_grad():
            want = module(*copy.deepcopy(args))
        result = cleave.optimize(module, args, **fast(**options))
        torch.testing.assert_close(result(*args), want, rtol=2e-5, atol=atol)
        return result

    def test_threads_compile_at_once(self):
        failed = []

        def one():
            try:
                program = cleave.compile(lambda x: x * 2 + 1, (torch.ones(3),))
                torch.testing.assert_close(program(torch.ones(3)), torch.full((3,), 3.0))
            except Exception as error:  # noqa: BLE001 - an exception of a thread would be lost
                failed.append(repr(error))

        threads = [threading.Thread(target=one) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        one()
        self.assertEqual(failed, [])

    def test_attention_with_dynamic_batch_and_sequence(self):
        module = Attention().eval()
        b, s = torch.export.Dim("b", max=8), torch.export.Dim("s", max=64)
        result = self.check(module, torch.randn(2, 9, 32), dynamic_shapes=({0: b, 1: s},))
        compiled = cleave.compile(module, (torch.randn(2, 9, 32),), dynamic_shapes=({0: b, 1: s},), threads=1)
        for shape in ((2, 9), (3, 17), (5, 2)):
            x = torch.randn(*shape, 32)
            with torch.no_grad():
                torch.testing.assert_close(result(x), module(x), rtol=2e-5, atol=2e-5)
                torch.testing.assert_close(compiled(x), module(x), rtol=2e-5, atol=2e-5)
        self.assertEqual((result.compilations, compiled.compilations), (1, 1))

    def test_a_convolutional_network(self):
        self.check(Conv(), torch.randn(2, 3, 21, 17))

    def test_a_transposed_convolution_of_open_axes(self):
        from torch.export import Dim
        for options in ({}, {"padding": 1, "output_padding": 1}, {"dilation": 2}):
            module = torch.nn.ConvTranspose2d(2, 3, 2 + 2 * ("padding" in options), 2, **options).eval()
            f = cleave.compile(module, (torch.randn(3, 2, 7, 6),), dynamic_shapes=({0: Dim("a"), 2: Dim("c"), 3: Dim("d")},))
            for shape in ((3, 2, 7, 6), (1, 2, 1, 3), (5, 2, 4, 9)):
                x = torch.randn(*shape)
                torch.testing.assert_close(f(x), module(x).detach(), rtol=1e-4, atol=1e-5)

    def test_structured_arguments_and_results(self):
        def f(pair, *, scale):
            return {"sum": pair[0] + pair[1] * scale, "both": (pair[0] * 2, pair[1])}

        args = ((torch.randn(3, 4), torch.randn(3, 4)),)
        result = cleave.optimize(f, args, {"scale": torch.tensor(2.0)}, **fast())
        got, want = result(*args, scale=torch.tensor(2.0)), f(*args, scale=torch.tensor(2.0))
        torch.testing.assert_close(got["sum"], want["sum"])
        torch.testing.assert_close(got["both"][0], want["both"][0])
        self.assertIs(got["both"][1], args[0][1], "an input that is returned stays the same tensor")
        for wrong, scale, text in [((args[0][:1],), torch.tensor(2.0), r"`pair` is \(tensor,\), .* for \(tensor, tensor\)"),
                                   ((list(args[0]),), torch.tensor(2.0), r"`pair` is \[tensor, tensor\]"),
                                   (((args[0][0], None),), torch.tensor(2.0), "`pair` is None, .* a tensor"), (args, "2", "`scale`: a str is no array")]:
            with self.assertRaisesRegex(cleave.InvalidError, text):
                result(*wrong, scale=scale)

    def test_results_that_are_not_computed(self):
        x, zeros = torch.randn(3, 4), torch.zeros(2)
        module = torch.nn.Linear(4, 4).eval()
        for f, want in ((lambda x: x.to(torch.float32), x), (lambda x: (x, 3, zeros), (x, 3, zeros)),
                        (lambda x: {"w": module.weight, "x": x}, {"w": module.weight, "x": x})):
            for program in (cleave.compile(f, (x,)), cleave.optimize(f, (x,), **fast()).program):
                self.assertEqual(program.outputs, [])
                torch.testing.assert_close(program(x), want)
        self.assertIs(cleave.compile(lambda x: x.to(torch.float32), (x,))(x), x)

    def test_results_that_are_sizes(self):
        n = torch.export.Dim("n", max=64)
        f = lambda x, y: (x * 2, x.shape[0], 2 * y.shape[0] + 1, x.shape[0] / 3, x.shape[0] > 4, x.shape[1])
        program = cleave.compile(f, (torch.ones(3, 4), torch.ones(4)), dynamic_shapes=({0: n}, {0: n + 1}))
        alone = cleave.compile(lambda x: x.shape[0] // 2, (torch.ones(6, 4),), dynamic_shapes=({0: 2 * n},))
        for rows in (2, 4, 7):
            x, y = torch.randn(rows, 4), torch.ones(rows + 1)
            got, want = program(x, y), f(x, y)
            torch.testing.assert_close(got[0], want[0])
            self.assertEqual(got[1:], want[1:])
            self.assertEqual([type(v) for v in got[1:]], [type(v) for v in want[1:]])
            self.assertEqual(program(x.numpy(), y.numpy())[1:], want[1:])
            self.assertEqual(alone(torch.ones(2 * rows, 4)), rows)

    def test_example_arguments_are_asked_for(self):
        for take in cleave.optimize, cleave.compile:
            with self.assertRaises(cleave.InvalidError) as caught:
                take(torch.nn.Linear(4, 4).eval())
            self.assertIn("(module, (x,))", caught.exception.hint)

    def test_buffers_that_change(self):
        class Counter(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(4))

            def forward(self, x):
                self.total.add_(x.sum(0))
                return x * 2

        module = Counter()
        result = cleave.optimize(module, (torch.ones(3, 4),), **fast())
        module.total.zero_()
        result(torch.ones(3, 4))
        torch.testing.assert_close(module.total, torch.full((4,), 3.0))
        result(torch.ones(3, 4))
        torch.testing.assert_close(module.total, torch.full((4,), 6.0), msg="the buffer is read again at each call")

    def test_inputs_that_change(self):
        def f(x, y):
            x[1:].mul_(2)
            x += y
            return x, x.sum(), y

        x, y = torch.randn(3, 4), torch.randn(4)
        want_x = x.clone()
        want = f(want_x, y)
        result = cleave.optimize(f, (torch.randn(3, 4), y), **fast())
        got = result(x, y)
        torch.testing.assert_close(x, want_x)
        torch.testing.assert_close(got, want)
        self.assertIs(got[2], y)
        wide = torch.randn(4, 4)
        with self.assertRaisesRegex(cleave.InvalidError, "share memory"):
            result(wide[:3], wide[2])

    def test_what_comes_in_as_numpy_goes_out_as_numpy(self):
        def f(x, y):
            x.add_(y)
            return {"x": x, "y": y, "z": x * y}

        program = cleave.compile(f, (torch.ones(3), torch.ones(3)), threads=1)
        for make in (lambda *v: torch.tensor(v), lambda *v: np.array(v, np.float32)):
            x, y = make(1.0, 2.0, 3.0), make(2.0, 2.0, 2.0)
            got = program(x, y)
            self.assertIs(got["x"], x, "an argument that is changed and returned is that argument")
            self.assertIs(got["y"], y)
            self.assertEqual([type(v) for v in got.values()], [type(x)] * 3)
            self.assertEqual((x.tolist(), got["z"].tolist()), ([3, 4, 5], [6, 8, 10]))
        both = np.ones(4, np.float32)
        with self.assertRaisesRegex(cleave.InvalidError, "share memory"):
            program(both[1:], both[:3])
        for array in (torch.ones(3).to_sparse(), torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8)):
            with self.assertRaises(cleave.UnsupportedError):
                program(array, torch.ones(3))

    def test_arguments_that_change_places(self):
        def swap(x, y):
            old = x.clone()
            x.copy_(y)
            y.copy_(old)
            return x - y

        program = cleave.compile(swap, (torch.ones(2), torch.ones(2)), threads=1)
        x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
        torch.testing.assert_close(program(x, y), torch.tensor([2.0, 3.0]))
        self.assertEqual((x.tolist(), y.tolist()), ([3, 5], [1, 2]))

    def test_a_buffer_that_changes_is_no_argument(self):
        class Sum(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(4))

            def forward(self, x):
                self.total += 1
                return x * 2

        module = Sum()
        program = cleave.compile(module, (torch.zeros(4),), threads=1)
        with self.assertRaisesRegex(cleave.InvalidError, "`total` and the argument `x` share memory"):
            program(module.total)

    def test_an_output_that_comes_twice_is_one_tensor(self):
        def f(x):
            y = x * 2
            return y, y, y + 1

        a, b, c = cleave.optimize(f, (torch.ones(3),), **fast())(torch.ones(3))
        self.assertIs(a, b)
        torch.testing.assert_close(c, torch.full((3,), 3.0))

    def test_the_forms_of_dynamic_shapes(self):
        def f(x, pair, *, scale):
            return x * pair["w"] * scale

        export, auto = torch.export, torch.export.Dim.AUTO
        rows = export.Dim("rows", min=1, max=64)
        args, kwargs = (torch.randn(5, 4), {"w": torch.randn(5, 4)}), {"scale": torch.randn(4)}
        forms = [{"x": {0: rows}, "pair": {"w": {0: rows}}, "scale": None},  # by name
                 {"x": (rows, None), "pair": {"w": [rows, None]}, "scale": {}},  # by axis
                 {"x": {0: auto}, "pair": {"w": {0: auto}}, "scale": None}]
        collection = export.ShapesCollection()
        collection[args[0]], collection[args[1]["w"]] = {0: export.Dim.DYNAMIC}, {0: export.Dim.DYNAMIC}
        for dynamic_shapes in [*forms, collection]:
            with self.subTest(dynamic_shapes):
                program = cleave.compile(f, args, kwargs, dynamic_shapes=dynamic_shapes, threads=1)
                for n in (5, 9):
                    x, w, s = torch.randn(n, 4), torch.randn(n, 4), torch.randn(4)
                    torch.testing.assert_close(program(x, {"w": w}, scale=s), f(x, {"w": w}, scale=s))
                self.assertEqual(program.compilations, 1)
        program = cleave.compile(lambda a, b: a + b, (torch.randn(5, 4), torch.randn(5, 4)), dynamic_shapes=({0: rows}, {0: rows}))
        with self.assertRaisesRegex(cleave.InvalidError, "64"):
            program(torch.randn(65, 4), torch.randn(65, 4))
        with self.assertRaises(cleave.InvalidError):
            program(torch.randn(6, 4), torch.randn(7, 4))

    def test_what_the_example_decided_about_sizes_is_asked_at_each_call(self):
        # Equality, order, remainders, the number of parts: all that torch.export has seen hold and the graph does not say.
        auto = torch.export.Dim.AUTO
        rows, both = ({0: auto},), ({0: auto, 1: auto},)

        def nested(pair, *more, k):
            return pair["a"][0] * 2 if more[0].shape[0] > k.shape[0] else k

        def even(x):
            torch._check(x.shape[0] % 2 == 0)
            return x * 2

        def of(*shapes):
            return tuple(torch.arange(float(np.prod(shape))).reshape(shape) for shape in shapes)

        cases = [  # program, dynamic_shapes, example, calls that are as the example was, others: a call and what is said
            (lambda x, y: x * 2 if x.shape[0] == y.shape[0] else x * 3, ({0: auto}, {0: auto}), of(5, 7), [of(3, 4)],
             [(of(3, 3), r"`x.shape\[0\] != y.shape\[0\]`; here x.shape\[0\] is 3, y.shape\[0\] is 3")]),
            (lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3, rows, of(10), [of(4), of(0)], [(of(3), r"x.shape\[0\] % 2 == 0")]),
            (lambda x, y: x + 1 if x.shape[0] < y.shape[0] else x - 1, ({0: auto}, {0: auto}), of(5, 7), [of(3, 4)], [(of(3, 3), "<")]),
            (lambda x: x[:x.shape[1]], both, of((6, 10)), [of((3, 4))], [(of((13, 4)), r"x.shape\[1\] > x.shape\[0\]")]),
            (lambda x: torch.tensor_split(x, 3, 0), rows, of((10, 6)), [of((13, 6))],
             [(of((n, 6)), r"here x.shape\[0\] is|`x_0` is 0, outside its range 1") for n in (0, 2, 3, 257)]),
            (lambda x: x.split(4, 0), rows, of((10, 6)), [of((12, 6))], [(of((15, 6)), "== 3"), (of((3, 6)), "outside its range 8")]),
            (lambda x: x.chunk(2, 0), rows, of((10, 6)), [of((7, 6))], [(of((1, 6)), "== 2"), (of((0, 6)), "== 2")]),
            (even, rows, of(6), [of(8)], [(of(7), "% 2 == 0")])]
        for f, shapes, example, alike, others in cases:
            module = torch.nn.Module()
            module.forward = f
            exported = torch.export.export(module, example, dynamic_shapes=shapes)
            forms = [exported]
            if f is even:
                asserted = torch.export.export(module, example, dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True)
                file = io.BytesIO()
                torch.export.save(exported, file)
                file.seek(0)
                forms += [torch.export.load(file), asserted, module]
            for program in [cleave.compile(form, example, dynamic_shapes=shapes if form is module else None, threads=1, search=False)
                            for form in forms]:
                for call in [example, *alike]:
                    torch.testing.assert_close(program(*call), f(*call))
                for call, said in others:
                    with self.assertRaisesRegex(cleave.InvalidError, said) as caught:
                        program(*call)
                    self.assertEqual(caught.exception.code, "CLV2014")
        a, b, c = of(5, 8, 7)
        program = cleave.compile(nested, ({"a": [a]}, b), {"k": c}, dynamic_shapes=({"a": [{0: auto}]}, ({0: auto},), {0: auto}), search=False)
        got = program({"a": [np.ones(3, np.float32)]}, np.ones(4, np.float32), k=np.ones(3, np.float32))
        self.assertEqual(got.tolist(), [2, 2, 2])
        with self.assertRaisesRegex(cleave.InvalidError, r"here more\[0\].shape\[0\] is 4, k.shape\[0\] is 4|here k.* is 4, more.* is 4"):
            program({"a": [np.ones(3, np.float32)]}, np.ones(4, np.float32), k=np.ones(4, np.float32))

    def test_places_and_amounts_that_dimensions_give(self):
        ints = lambda x, to: (x * 40).clamp(-99, 99).round().to(to)
        rough = lambda x: torch.where(x > 1, torch.nan, x.round())
        cases = [  # program of x: f32[n, 6], the rows that it serves; others eager refuses, or tracing did for all
            *((lambda x, a=a, v=v: F.pad(x, a(x.shape[0]), value=v), (0, 1, 2, 8, 9)) for a, v in (
                (lambda n: (0, 0, 0, n), 0.0), (lambda n: (0, 0, n // 2, 3), 1.5), (lambda n: (1, 2, n % 3, 8 - n), 2.5), (lambda n: (0, 0, 8 - n, 1), -1.0))),
            (lambda x: x[x.shape[0] // 2] * x[0], (1, 2, 9)), (lambda x: x[x.shape[0] - 1], (1, 9)), (lambda x: x[-1 - x.shape[0] // 2], (1, 2, 9)),
            (lambda x: F.pad(x.T, (x.shape[0], 1), mode="replicate"), (1, 2, 9)), (lambda x: F.pad(x.T, (x.shape[0] // 2, 1), mode="reflect"), (2, 3, 9)),
            (lambda x: F.pad(x.T, (1, 2), mode="replicate"), (1, 9)), (lambda x: F.pad(x.T, (1, 2), mode="circular"), (2, 9)),
            (lambda x: F.pad(x.T, (1, 2), mode="reflect"), (3, 9)),
            *((lambda x, f=f, make=make: f(make(x), 0), (0, 1, 2, 9)) for f in (torch.cummax, torch.cummin) for make in (
                lambda x: x, rough, lambda x: x.half(), lambda x: x > 0, *(lambda x, to=to: ints(x, to) for to in (torch.int8, torch.int64)),
                lambda x: ints(x.abs(), torch.uint8), lambda x: torch.where(x > 0, -2**63, 3)))]
        for at, (f, rows) in enumerate(cases):
            program = cleave.compile(f, (torch.randn(5, 6),), dynamic_shapes=({0: torch.export.Dim.AUTO},), threads=1, search=False)
            for n in rows:
                x = torch.randn(n, 6)
                with self.subTest(case=at, rows=n):
                    torch.testing.assert_close(program(x), f(x), equal_nan=True)
            if rows[0]:
                with self.assertRaises(cleave.InvalidError, msg=f"case {at}"):
                    program(torch.randn(rows[0] - 1, 6))
        n = torch.export.Dim("n", max=64)
        halved = lambda x: x.view(x.shape[0] // 2, 12)
        program = cleave.compile(halved, (torch.randn(8, 6),), dynamic_shapes=({0: 2 * n},), threads=1, search=False)
        self.assertEqual(program(torch.ones(6, 6)).shape, (3, 12))
        for f, dim, hint in ((halved, torch.export.Dim.AUTO, r"2 \* torch.export.Dim"), (lambda x: x[x.shape[0] // 2], n, "Dim.AUTO"),
                             (lambda x: x[x.shape[0] % 7 - 3], torch.export.Dim.AUTO, "torch.compile")):
            with self.assertRaises(cleave.Error) as caught:
                cleave.compile(f, (torch.randn(8, 6),), dynamic_shapes=({0: dim},))
            self.assertRegex(caught.exception.hint, hint)

    def test_extents_of_0_and_1(self):
        # torch.export writes 2.. for what it has not looked at, and lets 0 and 1 pass at the call.
        def f(x):
            return x.softmax(-1).sum(0) + (x @ x.T).sum()

        for how in (torch.export.Dim.AUTO, torch.export.Dim.DYNAMIC, torch.export.Dim("n")):
            program = cleave.compile(f, (torch.randn(5, 4),), dynamic_shapes=({0: how},), threads=1)
            for n in (0, 1, 2, 7):
                x = torch.randn(n, 4)
                torch.testing.assert_close(program(x), f(x))
        with self.subTest("an extremum over extents that are computed"):
            program = cleave.compile(lambda x: x.reshape(-1).max(), (torch.randn(5, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
            torch.testing.assert_close(program(x), x.max())
        # Of nothing there is no extremum.
        for f in (lambda x: x.amax(0), lambda x: x.min(0).indices, lambda x: x.argmax(0), lambda x: x[:, 0].max()):
            for how in (torch.export.Dim.AUTO, torch.export.Dim("x_0")):
                program = cleave.compile(f, (torch.randn(5, 4),), dynamic_shapes=({0: how},), threads=1)
                for n in (1, 3):
                    x = torch.randn(n, 4)
                    torch.testing.assert_close(program(x), f(x))
                with self.assertRaisesRegex(cleave.InvalidError, "`x_0` is 0, outside its range 1"):
                    program(torch.randn(0, 4))

    def test_dimensions_have_the_names_that_the_user_gave(self):
        export = torch.export
        rows, half, auto = export.Dim("rows", max=64), export.Dim("half", max=16), export.Dim.AUTO

        def f(x, pair):
            return x + 1, pair["a"][::2] * 2, pair["b"].relu()

        args = (torch.randn(5, 4), {"a": torch.randn(6, 3), "b": torch.randn(7, 3)})
        program = cleave.compile(f, args, dynamic_shapes={"x": (rows, None), "pair": {"a": {0: 2 * half}, "b": {0: auto}}}, threads=1)
        self.assertEqual([shape for _, _, shape in program.inputs], [["rows", 4], ["2*half", 3], ["pair_b_0", 3]])
        for got, want in zip(program(*args), f(*args)):
            torch.testing.assert_close(got, want)
        for at, bad, said in ((0, torch.randn(65, 4), "`rows` is 65, outside its range 0..64"), (1, torch.randn(34, 3), "`half` is 17"),
                              (1, torch.randn(7, 3), r"`pair_a`: its axis 0 has the extent 7, which `2\*half` is for no `half`")):
            x, a, b = args[0], args[1]["a"], args[1]["b"]
            with self.subTest(said), self.assertRaisesRegex(cleave.InvalidError, said):
                program(bad if at == 0 else x, {"a": bad if at == 1 else a, "b": b})
        exported = export.export(torch.nn.ReLU(), (torch.randn(5, 4),), dynamic_shapes=({0: rows},))
        self.assertEqual(cleave.compile(exported).inputs[0][2][0], "input_0")

    def test_windows_pads_and_scatters_of_open_extents(self):
        def f(x, at):
            image = x[None, None]
            pools = F.avg_pool2d(image, 3, 2, 1, ceil_mode=True), F.avg_pool2d(image, 3, 2, 1, True, False), F.max_pool2d(image, 3, 2, 1)
            pads = [F.pad(image, (2, 1, 1, 2), mode=mode) for mode in ("reflect", "replicate", "circular")]
            return [*pools, *pads, x.scatter(0, at, 9.0)]

        auto = torch.export.Dim.AUTO
        x, at = torch.randn(9, 8), torch.tensor([[4, 0], [2, 2]])
        program = cleave.compile(f, (x, at), dynamic_shapes=({0: auto, 1: auto}, {0: auto}), threads=1, search=False)
        for shape in ((9, 8), (5, 7), (6, 3)):
            x = torch.randn(shape)
            for got, want in zip(program(x, at[:shape[0] - 4]), f(x, at[:shape[0] - 4])):
                torch.testing.assert_close(got, want)
        with self.assertRaises(cleave.InvalidError) as caught:
            cleave.compile(lambda x: x.view(-1, 3) * 2, (torch.randn(6, 4),), dynamic_shapes=({0: auto},))
        self.assertRegex(str(caught.exception), "`aten.view`.*x_0")
        self.assertIn("2 * torch.export.Dim", caught.exception.hint)

    def test_arguments_are_checked(self):
        def f(x, n, *, a, b):
            return x * n + a - b

        x, a, b = torch.randn(3), torch.randn(3), torch.randn(3)
        program = cleave.compile(f, (x, 2), {"a": a, "b": b})
        torch.testing.assert_close(program(x, 2, b=b, a=a), f(x, 2, a=a, b=b), msg="keywords in another order")
        for call in (lambda: program(x, 3, a=a, b=b), lambda: program(x, 2, a=a), lambda: program(x, 2, a=a, c=b), lambda: program(x, 2, a, b),
                     lambda: program([x], 2, a=a, b=b), lambda: program(x.double(), 2, a=a, b=b)):
            with self.assertRaises(cleave.InvalidError):
                call()

    def test_half_precision(self):
        for dtype in (torch.float16, torch.bfloat16):
            module = Attention().to(dtype).eval()
            x = torch.randn(2, 9, 32, dtype=dtype)
            result = cleave.optimize(module, (x,), **fast())
            with torch.no_grad():
                want = module(x)
            self.assertEqual(result(x).dtype, dtype)
            torch.testing.assert_close(result(x), want, rtol=3e-2, atol=3e-2)

    def test_an_exported_program_and_gradients_ignored(self):
        module = Attention().eval()
        x = torch.randn(1, 4, 32, requires_grad=True)
        result = cleave.optimize(torch.export.export(module, (x,)), (x,), **fast())
        torch.testing.assert_close(result(x), module(x).detach(), rtol=2e-5, atol=2e-5)
        rows = torch.export.Dim("rows", min=1, max=9)
        program = cleave.compile(torch.export.export(module, (x.detach().expand(2, 4, 32),), dynamic_shapes=({0: rows},)))
        for n in (2, 9):
            x = torch.randn(n, 4, 32)
            torch.testing.assert_close(program(x), module(x).detach(), rtol=2e-5, atol=2e-5)
        with self.assertRaisesRegex(cleave.InvalidError, "9"):
            program(torch.randn(10, 4, 32))

    def test_what_is_refused_is_named(self):
        with self.assertRaises(cleave.UnsupportedError) as caught:
            cleave.optimize(lambda x: torch.fft.fft(x).real, (torch.randn(4, 8),), **fast())
        self.assertIn("fft", str(caught.exception))
        self.assertEqual((caught.exception.code, caught.exception.node), ("CLV8002", "_fft_r2c"))
        self.assertIn("torch.compile", caught.exception.hint)
        with self.assertRaises(cleave.UnsupportedError):
            cleave.optimize(torch.nn.Dropout(0.5).train(), (torch.randn(4),), **fast())
        with self.assertRaises(cleave.InvalidError):
            cleave.optimize(lambda x: x * 2 if x.sum() > 0 else x, (torch.randn(4),), **fast())


_made = {}


def r(*shape):
    """The same random tensor for the same shape, made outside of any tracing."""
    if shape not in _made:
        _made[shape] = torch.randn(*shape)
    return _made[shape]


def changed(x, change):
    y = x.clone()
    change(y)
    return y


x34, y34, x5 = r(3, 4), torch.randn(3, 4), r(2, 3, 4, 5, 6)
positive = y34[x34 > 0]
ints = torch.tensor([[3, -7, 0, 12], [5, 5, -1, 2]])
ends = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1.5, -1.5, 1e-20, -3e38])
OPERATORS = {
    "add alpha": lambda: torch.add(x34, y34, alpha=2),
    "int and float": lambda: ints + x34[:2],
    "rsub": lambda: 3 - x34,
    "true division of ints": lambda: ints / 4,
    "floor division": lambda: ints // 4,
    "remainder": lambda: torch.remainder(ints, 5),
    "trunc division": lambda: torch.div(x34, 0.3, rounding_mode="trunc"),
    "pow": lambda: x34.abs() ** 1.7,
    "pow by ints": lambda: ints ** 3,
    "comparison of mixed types": lambda: ints > 1.5,
    "bools": lambda: (x34 > 0) & ~(y34 > 0) | (x34 > y34),
    "where": lambda: torch.where(x34 > 0, x34, 0.0),
    "masked_fill": lambda: x34.masked_fill(y34 > 0, float("-inf")).softmax(-1),
    "clamp": lambda: x34.clamp(-0.5, 0.25),
    "clamp by tensors": lambda: torch.clamp(x34, min=y34),
    "hardtanh": lambda: F.hardtanh(x34),
    "gelu": lambda: F.gelu(x34) + F.gelu(x34, approximate="tanh"),
    "softplus": lambda: F.softplus(30 * x34, beta=2, threshold=10),
    "leaky": lambda: F.leaky_relu(x34, 0.2) + F.elu(x34, 1.5),
    "round and trunc": lambda: torch.round(3 * x34) + torch.trunc(3 * x34),
    "arange": lambda: torch.arange(1, 10, 3) + ints[:, :3],
    "linspace": lambda: torch.linspace(2.5, -48.9, 47, dtype=torch.int64) + torch.linspace(-1, 1, 47),
    "tril": lambda: torch.tril(x5, 1) - torch.triu(x5, -1),
    "slices": lambda: x5[:, 1:, -3:-1, ::2, :100],
    "select": lambda: x5[:, -1] + x5[0, 0],
    "split": lambda: torch.split(x5, [1, 4], 3)[1] + torch.chunk(x5, 2, 0)[0][..., 1:, :],
    "unbind": lambda: torch.unbind(x34, 1)[2],
    "cat": lambda: torch.cat([x34, y34, x34], 1),
    "stack": lambda: torch.stack([x34, y34], 1),
    "repeat": lambda: x34.repeat(2, 1, 3),
    "repeat_interleave": lambda: x34.repeat_interleave(3, 0),
    "flip": lambda: x34.flip(0, 1),
    "pad": lambda: F.pad(x34, (1, 2, 0, -1), value=7.0),
    "embedding": lambda: F.embedding(torch.tensor([[0, 2], [1, 1]]), x34),
    "gather": lambda: torch.gather(x5[0], 2, torch.tensor([[[[0, 3, 1], [2, 2, 0]]]]).expand(3, 4, 2, 3)),
    "index": lambda: x5[:, torch.tensor([0, -1])],
    "index pairs": lambda: x5[0, torch.tensor([0, 2, 1]), torch.tensor([1, -1, 3])],
    "index_select": lambda: torch.index_select(x34, 1, torch.tensor([3, 0])),
    "sums": lambda: x5.sum((1, -1), keepdim=True) + x5.mean() + x5.amax(0),
    "max with indices": lambda: x34.max(1).values + x34.min(1).indices,
    "argmax": lambda: x34.argmax() + x34.argmin(1),
    "any and all": lambda: (x34 > 1).any(1) ^ (x34 > -1).all(1),
    "var": lambda: x5.var((1, 2)) + x5.std() + torch.var_mean(x5, 2, correction=0)[0].sum(),
    "axes of scalars": lambda: x34.sum().cumsum(0) + x34.sum().max(0).values + x34.sum().min(0).indices + x34.sum().argmax(0)
        + torch.index_select(x34.sum(), 0, torch.tensor([0])).sum(),
    "cumsum": lambda: x34.cumsum(0) + x34.cumsum(1),
    "topk": lambda: x34.topk(2, 1).values,
    "logsumexp": lambda: torch.logsumexp(x34, 1) + F.log_softmax(x34, 0)[:, 0],
    "norms": lambda: F.layer_norm(x5, (5, 6)) + F.rms_norm(x5, (6,), r(6)),
    "group norm": lambda: F.group_norm(torch.cat([x5, x5[:, :1]], 1), 2, torch.ones(4) * 2, torch.ones(4)),
    "batch norm": lambda: F.batch_norm(x5, torch.zeros(3), torch.ones(3), r(3), r(3)),
    "batch statistics": lambda: F.batch_norm(x5, None, None, r(3), r(3), training=True) + F.instance_norm(x5, eps=1e-3),
    "vector norms": lambda: torch.linalg.vector_norm(x5, dim=(1, -1), keepdim=True) + torch.norm(x5, p="fro")
        + sum(torch.linalg.vector_norm(x5, p, dim=2, keepdim=True) for p in (0, 1, 3.5, float("inf"), -float("inf"))),
    "vector norms of scalars": lambda: sum(torch.linalg.vector_norm(-x34[0, 0], p) for p in (0, 1, 2, 3)),
    "norms of 16 bits": lambda: (torch.linalg.vector_norm((1000 * x34).half(), dim=1) < 60000).float(),
    "triplet margin": lambda: F.triplet_margin_loss(x34, y34, r(3, 4) * 0.5),
    "matmuls": lambda: x34 @ y34.T + (x5 @ r(6, 3)).sum() + torch.mv(x34, y34[0])[:, None],
    "einsum": lambda: torch.einsum("abcde,bf,e->acf", x5, y34, x5[0, 0, 0, 0]),
    "addmm": lambda: torch.addmm(x34, x34, r(4, 4), beta=0.5, alpha=2),
    "baddbmm": lambda: torch.baddbmm(torch.ones(1), x5[0, 0:1, 0], x5[1, 0:1, 0].transpose(1, 2)) + torch.bmm(x5[0, 0:1, 0], x5[1, 0:1, 0].transpose(1, 2)),
    "conv1d": lambda: F.conv1d(x34[None], r(5, 3, 2), r(5), dilation=2),
    "conv3d": lambda: F.conv3d(x5, r(4, 3, 2, 2, 2), stride=(1, 2, 1)),
    "pools": lambda: F.max_pool2d(x5[0], 2, 1, 1).mean() + F.avg_pool2d(x5[0], 3, 2, 1, True, False).sum(),
    "avg pool with padding": lambda: F.avg_pool2d(x5[0], 3, 2, 1, ceil_mode=True) + F.avg_pool2d(x5[0], 3, 2, 1, True, False)
        + F.avg_pool2d(x5[0], (3, 2), 2, (1, 0), True)[..., :1] + F.avg_pool2d(x5[0], 3, 2, 1, True, True, 5),
    "mirrored pads": lambda: [F.pad(x5[0], pad, mode=mode) for mode in ("reflect", "replicate", "circular") for pad in ((2, 1, 0, 3), (4, 0, 1, 1))],
    "sdpa with a mask": lambda: F.scaled_dot_product_attention(x5[0], x5[0], x5[0], attn_mask=r(5, 5)),
    "sdpa rows without keys": lambda: F.scaled_dot_product_attention(x5[0], x5[0], x5[0], attn_mask=torch.tensor([[True] * 5] * 4 + [[False] * 5])),
    "sdpa gqa": lambda: F.scaled_dot_product_attention(x5[0].repeat(1, 2, 1, 1), x5[0], x5[0], enable_gqa=True, scale=0.3),
    "inplace": lambda: x34.clone().add_(1).mul_(y34).relu_(),
    "slices that change": lambda: changed(x5, lambda y: (y[:, 1:, ::2].add_(1), y[0, 0].zero_(), y[..., -1].fill_(3))),
    "picks that change": lambda: changed(x34, lambda y: (y.__setitem__(torch.tensor([2, 0]), y34[:2]), y.masked_fill_(y34 > 1, 0),
                                                         y.__setitem__(y34 < -1, 9.0), y.index_add_(1, torch.tensor([1, 1]), y34[:, :2]))),
    "diagonals": lambda: x5[0].diagonal(1, 1, 3) + torch.diag(x34[0], -1)[:, 1:].sum() + changed(x34, lambda y: y.fill_diagonal_(7)).sum()
        + torch.diagonal_scatter(x34, y34[0, :3], 1).sum() + torch.trace(x34),
    "scatters": lambda: x34.scatter(0, torch.tensor([[1, 0, 2], [2, 1, 2]]), y34) + x34.scatter_add(1, ints[:1, 2:3] * 0 + 3, y34)
        + x34.scatter_reduce(0, torch.tensor([[1, 1, 0, 0]] * 3), y34, "amax", include_self=False),
    "index_put": lambda: x5.index_put((torch.tensor([1, 0, 1]), torch.tensor([2, 0, 2])), x5[0], accumulate=True)
        + x5.index_put((torch.tensor([1, -1]),), torch.ones(1)),
    "masks that put": lambda: changed(x34, lambda y: y.__setitem__(x34 > 0, positive)) + changed(
        x34, lambda y: y.__setitem__(torch.tensor([True, False, True]), y34[1])) + x34.masked_scatter(y34 > 0, y34),
    "puts and joins": lambda: x34.put(torch.tensor([1, -2, 1]), y34[0, :3], accumulate=True)
        + x34.index_reduce(1, torch.tensor([0, 2, 0]), y34[:, :3], "prod"),
    "statistics of norms": lambda: sum(v.sum() for v in torch.native_layer_norm(x34, (4,), None, None, 1e-5)),
    "indices apart": lambda: x5[torch.tensor([1, 0, 1]), :, torch.tensor([3, -1, 0])],
    "sorting": lambda: x34.sort(1, descending=True).values + x34.argsort(0) + x34.median(1, keepdim=True).values
        + x34.kthvalue(2, 0).indices + x34.median(),
    "strides": lambda: x34.as_strided((2, 2), (1, 5), 1) + x34.as_strided_scatter(y34[:2, :2], (2, 2), (1, 5), 2)[:2, 1:3],
    "searching": lambda: torch.bucketize(x34, torch.tensor([-1.0, 0, 1])) + torch.searchsorted(x34.sort(1).values, y34, right=True),
    "rolls": lambda: x34.roll(1, 0) + x34.roll((2, -1), (1, 0)) + torch.fmod(3 * x34, y34) + torch.fmod(ints[:, :1], 4).sum(),
    "unfold": lambda: x5.unfold(3, 2, 2).sum(-1) + F.unfold(x5[0], 2, stride=2).sum(),
    "arcs": lambda: torch.atan2(x34, y34) + x34.atan() + (x34 / 9).asin() + (x34 / 9).acos() + torch.hypot(x34, y34),
    "hyperbolic": lambda: x34.sinh() + x34.cosh() + x34.asinh() + (x34.abs() + 1).acosh() + (x34 / 9).atanh() + x34.abs().log10(),
    "bits": lambda: (ints & 7) + (ints << 3) + (ints >> 2) + ~ints + ((ints.to(torch.int8) << 6) & 127),
    "signs": lambda: torch.copysign(x34, y34) + torch.fmax(x34, y34) + torch.signbit(-0.0 * x34.abs()) + ~ints[:1],
    "distances": lambda: torch.cdist(x34, y34).sum() + torch.dist(x34, y34) + F.pairwise_distance(x34, y34) + F.bilinear(x34, y34, r(2, 4, 4))[:, 0],
    "transposed convolutions": lambda: F.conv_transpose2d(x5[0], r(4, 2, 3, 2), r(4), stride=2, padding=1, output_padding=1, groups=2)
        + F.conv_transpose2d(x5[0], r(4, 4, 3, 2), stride=(2, 2), padding=(1, 1), output_padding=1, dilation=1)[:, :, :, :],
    "largest of windows": lambda: sum(v.sum() for v in F.max_pool2d(x5[0], 2, 1, 1, return_indices=True)) + F.max_pool3d(x5, 2).sum()
        + F.max_pool1d(x34, 2, return_indices=True)[1],
    "adaptive pools": lambda: F.adaptive_avg_pool2d(x5[0], (3, 4)) + sum(v.float() for v in F.adaptive_max_pool2d(x5[0], (3, 4), True)),
    "resizing": lambda: F.interpolate(x5[0], scale_factor=2, mode="bilinear") + F.interpolate(x5[0], size=(10, 12), mode="nearest"),
    "infinities and NaN": lambda: [ends.sign().double(), ends // ends[:, None], torch.div(ends, 2.5, rounding_mode="floor"),
                                   torch.div(1.5, ends, rounding_mode="floor"), (-1.0 / ends).acosh(), ends % ends[:, None]],
    "casts": lambda: (x34 * 3).to(torch.int64) + x34.double().to(torch.float32).bool(),
}


class Operators(unittest.TestCase):
    def test_each_equals_eager(self):
        names, several = list(OPERATORS), 12  # several at once: exporting takes longer than anything else
        for first in range(0, len(names), several):
            part = names[first:first + several]
            with self.subTest(part):
                # The tensors of the closures become constants; one input is added.
                program = lambda x, part=part: [pytree.tree_map(lambda v: v + x, OPERATORS[name]()) for name in part]
                zero = torch.zeros(())
                results = zip(part, program(zero), cleave.compile(program, (zero,), threads=1, search=False)(zero))
                for name, want, got in results:
                    with self.subTest(name):
                        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5, equal_nan=True)

    def test_circular_pads_that_cut(self):
        # What a negative amount leaves goes round.
        for amounts in ((-1, 2), (2, -1), (-2, 4), (3, -2), (-1, -1), (0, -2)):
            module = torch.nn.Module()
            module.forward = lambda x, amounts=amounts: F.pad(x, amounts, mode="circular")
            for shapes in (None, ({2: torch.export.Dim.AUTO},)):
                program = cleave.compile(module, (torch.zeros(1, 1, 6),), dynamic_shapes=shapes, threads=1, search=False)
                for n in (6,) if shapes is None else (6, 7, 9):
                    x = torch.arange(float(n)).view(1, 1, n)
                    self.assertTrue(torch.equal(program(x), F.pad(x, amounts, mode="circular")), (amounts, n))

    def test_integers_of_64_bits(self):
        # A literal of a graph is a real of 53 bits; larger integers are constants.
        a, c = torch.tensor([5, -7]), torch.tensor([True, False])
        for k in (2**63 - 1, 2**63 - 512, -2**63, -(2**63 - 1), 2**62, 2**53 + 1):
            for f in (lambda c, a: torch.where(c, a, k), lambda c, a: a + k, lambda c, a: torch.full_like(a, k),
                      lambda c, a: torch.clamp(a, max=k), lambda c, a: a == k, lambda c, a: a * 0 + torch.tensor(k)):
                program = cleave.compile(f, (c, a), threads=1, search=False)
                self.assertTrue(torch.equal(program(c, a), f(c, a)), k)
        graph = cleave.Graph("far")
        x = graph.input("x", (2,), "i64")
        self.assertEqual(graph.op("add", x, 2**62).dtype, "i64")
        for number in (2**53 + 1, 2**63 - 1, 2**63):
            with self.assertRaisesRegex(cleave.InvalidError, "CLV1004"):
                graph.op("add", x, number)
            with self.assertRaisesRegex(cleave.InvalidError, "CLV1004"):
                graph.literal(number, "i64")
        with self.assertRaisesRegex(cleave.InvalidError, "CLV1004"):
            graph.literal(1e19, "i64")


table = torch.arange(20.0).reshape(5, 4)
# The function, arguments that eager takes, arguments of the same shapes that it refuses.
REFUSED_BY_DATA = {
    "index": (lambda x, i: x[i], [1, -5], [1, 5]),
    "a computed index": (lambda x, i: x[:, i * 2], [1, -2], [1, -3]),
    "embedding": (lambda x, i: F.embedding(i.to(torch.int32), x), [4, 0], [4, -1]),
    "gather": (lambda x, i: torch.gather(x, 1, i[:, None]), [3, 0], [3, 4]),
    "index_select": (lambda x, i: x.index_select(1, i), [3, 0], [-1, 0]),
    "scatter": (lambda x, i: x.scatter(0, i[:, None] + 1, 7.0), [3, -1], [4, -1]),
    "index_put": (lambda x, i: x.index_add(0, i, x[:2]), [3, 4], [3, 5]),
    "put": (lambda x, i: x.put(i, x[0, :2]), [19, -20], [20, 0]),
    "cross entropy": (lambda x, i: F.cross_entropy(x[:2], i), [3, -100], [4, 0]),
    "floor division": (lambda x, i: (i + 9) // i, [3, -2], [3, 0]),
    "a computed divisor": (lambda x, i: torch.remainder(i, i * i) + torch.fmod(i, i), [3, -2], [3, 0]),
}


class Data(unittest.TestCase):
    def test_what_eager_refuses_is_refused(self):
        def joined(x, *indices):
            return [f(x, i) for (f, _, _), i in zip(REFUSED_BY_DATA.values(), indices)]

        good = [torch.tensor(g) for _, g, _ in REFUSED_BY_DATA.values()]
        torch._dynamo.reset()
        compiled = torch.compile(joined, backend="cleave", options={"quiet": True})
        program = cleave.compile(joined, (table, *good), threads=1, search=False)
        with tempfile.TemporaryDirectory() as folder:
            optimised = cleave.optimize(REFUSED_BY_DATA["a computed index"][0], (table, good[1]), **fast())
            loaded = cleave.load(optimised.export(os.path.join(folder, "p")))
        self.assertEqual(len(loaded.outputs), 1)
        torch.testing.assert_close(loaded(table, good[1]), table[:, good[1] * 2])
        with self.assertRaises(IndexError):
            loaded(table, torch.tensor(REFUSED_BY_DATA["a computed index"][2]))
        with torch.no_grad():
            for call in (compiled, program):
                for got, want in zip(call(table, *good), joined(table, *good)):
                    torch.testing.assert_close(got, want)
                for at, (name, (f, _, bad)) in enumerate(REFUSED_BY_DATA.items()):
                    with self.subTest(name):
                        wrong = [*good[:at], torch.tensor(bad), *good[at + 1:]]
                        with self.assertRaises((IndexError, RuntimeError)) as eager:
                            f(table, wrong[at])
                        with self.assertRaises(type(eager.exception)) as ours:
                            call(table, *wrong)
                        self.assertIsInstance(ours.exception, cleave.InvalidError)

    def test_what_is_not_known_is_checked(self):
        wide = torch.arange(20.0).reshape(10, 2)
        for f, checked in ((lambda x, i: x[torch.sort(wide, dim=0, stable=True).indices[i, 0]], 2),  # of 10 places, and what lies there
                           (lambda x, i: x[torch.topk(wide, 3, dim=0).indices[i, 0]], 2),
                           (lambda x, i: x[(i % 7 + 2**31).to(torch.int32) % 2**30], 1),  # it wraps
                           (lambda x, i: x[(i % 7 + 250).to(torch.int8).to(torch.int64)], 1)):
            program = fx.export(f, (table, torch.arange(2)))
            flags = [name for name, _, _ in program.graph.outputs() if name.startswith("check__")]
            self.assertEqual(len(program.looks) + len(flags), checked)

    def test_what_is_known_needs_no_check(self):
        def f(x, i):
            n = torch.arange(x.shape[0])
            return (x[n] + x[torch.tensor([0, 1, 2, -1, 4])] + x[i % 5] + x[i.clamp(-5, 4)] + x[x.argmax(0)[:1]] + x[x.sort(0).indices[:, 0]]
                    + x[torch.where(i > 2, i.new_full((), 2), n // 2)] + x[torch.minimum(i.abs() % 7, n)])

        rows = torch.export.Dim("rows", min=5, max=9)
        for shapes in (None, (None, None), ({0: rows}, {0: rows})):
            program = fx.export(f, (table, torch.arange(5)), None, shapes) if shapes is None or shapes[0] is None else fx.export(
                lambda x, i: x[torch.arange(x.shape[0])], (table, torch.arange(5)), None, shapes)
            self.assertEqual((program.looks, [name for name, _, _ in program.graph.outputs()]), ([], ["out0"]))


if __name__ == "__main__":
    unittest.main()
