"""How programs that were made of PyTorch are called: arguments as Python binds them, what is kept in the artefact folder."""

import collections
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy as np

try:
    import torch
except ImportError:
    raise unittest.SkipTest("torch is not installed")

import cleave

X, Y = torch.arange(3.0), torch.ones(3)
Pair = collections.namedtuple("Pair", "a b")


def compiled(f, args, kwargs=None, **more):
    return cleave.compile(f, args, kwargs, threads=1, search=False, **more)


def both(x, y, flag=False):
    return x - y * 2


def numbers(x, k=2, *, s=1.5, mode="a"):
    return x * k * s


def masked(x, mask=None):
    return x if mask is None else x * mask


def many(x, *more, k=1, **rest):
    return x * k + sum(more) + rest["z"] * 2 - rest.get("w", 0)


def nested(pair, scale):
    return pair["a"][0] * scale - pair["b"]


class Module(torch.nn.Module):
    def forward(self, x, y, *, scale=None):
        return x - y if scale is None else x - y * scale


def called(*args, **kwargs):
    return args, kwargs


# function, how it is compiled, calls that are taken, calls that are not: what the message says of them, and which argument it names
CALLS = [
    (both, called(X, Y), [called(y=Y, x=X), called(X, y=Y), called(X, Y, flag=False), called(X, Y, False), called(flag=False, y=Y, x=X)],
     [(called(X, Y, flag=True), "`flag` is True, .* False, its default", "flag"), (called(X), "`y` is missing", "y"), (called(y=Y), "`x` is missing", "x"),
      (called(X, Y, z=1), "`z` is none", "z"), (called(X, Y, x=X), "`x` is given twice", "x"), (called(X, Y, False, 1), "4 arguments .* 3", ""),
      (called(), "`x` is missing", "x"), (called(X, None), "`y` is None, .* a tensor", "y"), (called(X, "1"), "`y`: a str is no array", "y"),
      (called(X, [1.0]), r"`y` is \[1.0\], .* a tensor", "y"), (called(X, Y, X), "`flag` is a tensor, .* False", "flag")]),
    (both, called(y=Y, x=X), [called(X, Y), called(x=X, y=Y), called(X, Y, False)], [(called(X), "`y` is missing", "y")]),
    (both, called(X, Y, False), [called(X, Y), called(X, y=Y, flag=False), called(X, Y, np.bool_(False))], [(called(X, Y, 0), "`flag` is 0, .* False", "flag")]),
    (numbers, called(X, 3, s=2.0), [called(X, k=3, s=2.0), called(X, 3, s=2.0, mode="a"), called(k=3, x=X, s=np.float64(2)), called(X, np.int64(3), s=2.0)],
     [(called(X, s=2.0), "`k` is 2, .* 3", "k"), (called(X, 3), "`s` is 1.5, .* 2.0", "s"), (called(X, 4, s=2.0), "`k` is 4, .* 3", "k"),
      (called(X, 3, s=2.0, mode="b"), "`mode` is 'b', .* 'a', its default", "mode"), (called(X, 3.0, s=2.0), "`k` is 3.0, .* 3", "k"),
      (called(X, Y, s=2.0), "`k` is a tensor, .* 3", "k"), (called(X, 3, 2.0), "3 arguments .* 2", "")]),
    (numbers, called(X, float("nan")), [called(X, k=float("nan"))], [(called(X, 1.0), "`k` is 1.0, .* nan", "k")]),
    (masked, called(X), [called(X, None), called(x=X, mask=None)], [(called(X, Y), "`mask` is a tensor, .* None, its default", "mask")]),
    (masked, called(X, Y), [called(mask=Y, x=X)], [(called(X), "`mask` is missing: .* tensor", "mask"), (called(X, None), "`mask` is None, .* tensor", "mask")]),
    (many, called(X, Y, Y, z=Y, k=2), [called(X, Y, Y, k=2, z=Y), called(X, Y, Y, z=Y, k=2)],
     [(called(X, Y, z=Y, k=2), r"1 arguments are given for `\*more`, .* 2", "more"), (called(X, Y, Y, z=Y, w=Y, k=2), "`w` is none", "w"),
      (called(X, Y, Y, k=2), "`z` is missing", "z"), (called(X, Y, Y, z=Y), "`k` is 1, .* 2", "k")]),
    (nested, called({"a": [X], "b": Y}, Y), [called({"b": Y, "a": [X]}, Y), called(scale=Y, pair={"b": Y, "a": [X]})],
     [(called({"a": [X]}, Y), r"`pair` is {'a': \[tensor\]}, .*'b': tensor", "pair"), (called({"a": (X,), "b": Y}, Y), "`pair` is", "pair"),
      (called({"a": ["x"], "b": Y}, Y), "`pair`: a str", "pair"), (called(X, Y), "`pair` is a tensor, .*'a'", "pair")]),
    (Module().eval(), called(X, Y, scale=Y), [called(scale=Y, y=Y, x=X), called(X, scale=Y, y=Y)], [(called(X, Y), "`scale` is missing", "scale")]),
    (lambda x, /, y: x - y, called(X, Y), [called(X, y=Y)], [(called(x=X, y=Y), "`x` is (given by name|missing)", "x")]),
]


class Calls(unittest.TestCase):
    def test_arguments_bind_as_python_binds_them(self):
        for f, (args, kwargs), taken, refused in CALLS:
            program = compiled(f, args, kwargs)
            for args, kwargs in [(args, kwargs), *taken]:
                with self.subTest(f, args=args, kwargs=kwargs):
                    torch.testing.assert_close(program(*args, **kwargs), f(*args, **kwargs), equal_nan=True)
            for (args, kwargs), said, name in refused:
                with self.subTest(f, args=args, kwargs=kwargs), self.assertRaisesRegex(cleave.InvalidError, said) as caught:
                    program(*args, **kwargs)
                self.assertEqual((caught.exception.code, caught.exception.node), ("CLV8001", name))
                self.assertTrue(caught.exception.hint)

    def test_an_exported_program_has_the_names_of_its_arguments(self):
        module = Module().eval()
        program = compiled(torch.export.export(module, (X, Y), {"scale": Y}), ())
        for args, kwargs in (called(X, Y, scale=Y), called(y=Y, x=X, scale=Y)):
            torch.testing.assert_close(program(*args, **kwargs), module(*args, **kwargs))
        for (args, kwargs), said in ((called(X, scale=Y), "`y` is missing"), (called(X, Y, scale=Y, z=1), "`z` is none"), (called(X, Y), "`scale` is missing")):
            with self.assertRaisesRegex(cleave.InvalidError, said):
                program(*args, **kwargs)

    def test_inputs_of_graphs_are_named_too(self):
        graph = compiled("graph t {\n  input X: f32[3]\n  input W: f32[3]\n  scalar a: f32\n  output Y = add(mul(X, a), W)\n}\n", ())
        x = X.numpy()
        self.assertEqual(graph(x, x, a=np.float32(2)).tolist(), [0, 3, 6])
        for (args, kwargs), name in ((called(x, a=1.0), "W"), (called(a=1.0), "X"), (called(x, a=1.0, X=x), "X"), (called(x, x), "a"), (called(x, x, a=1.0, b=2), "b"),
                                     (called(x, "x", a=1.0), "W"), *((called(x, x, a=bad), "a") for bad in ("2", b"2", None, 2j, 10**400, [1.0], x, X))):
            with self.subTest(args=args, kwargs=kwargs), self.assertRaisesRegex(cleave.InvalidError, f"`{name}`") as caught:
                graph(*args, **kwargs)
            self.assertEqual(caught.exception.node, name)
            self.assertTrue(caught.exception.hint)

    def test_memory_that_is_written(self):
        with torch.inference_mode():
            inference = torch.ones(3)
        fixed = np.ones(3, np.float32)
        fixed.flags.writeable = False
        one, line = np.zeros(1, np.float32), np.arange(5, dtype=np.float32)
        apart = np.lib.stride_tricks.as_strided
        graph = compiled("graph t {\n  input X: f32[3]\n  output Y = mul(X, X)\n  output Z = neg(X)\n}\n", ())
        spare = np.empty(3, np.float32)
        for out in ((spare, np.empty(6, np.float32)[::2]), (torch.empty(3), spare), (torch.empty(3, requires_grad=True), spare), (inference, spare)):
            got = graph(fixed, out=out)
            self.assertTrue(got[0] is out[0] and got[1] is out[1])
            self.assertEqual([v.detach().tolist() if isinstance(v, torch.Tensor) else v.tolist() for v in out], [[1, 1, 1], [-1, -1, -1]])
        graph(line[:3], out=(line[1:4], spare))  # over an input: it is read before
        self.assertEqual((line.tolist(), spare.tolist()), ([0, 0, 1, 4, 4], [0, -1, -2]))
        bad = [(spare, spare), (line[:3], line[2:]), (apart(one, (3,), (0,)), spare), (torch.zeros(1).expand(3), spare), (np.broadcast_to(one, (3,)), spare),
               (fixed, spare), (torch._neg_view(torch.zeros(3)), spare), ([0] * 3, spare), (np.empty(3), spare), (np.empty(4, np.float32), spare), (spare,)]
        for out in bad:
            with self.subTest(out), self.assertRaises(cleave.InvalidError) as caught:
                graph(X, out=out)
            self.assertRegex(caught.exception.code, "CLV")
            self.assertTrue(caught.exception.node)

        def change(x):
            x.add_(1)
            return x * 2

        program = compiled(change, (torch.ones(3),))
        for x in (fixed, inference, torch.ones(1).expand(3), np.broadcast_to(one, (3,)), apart(one, (3,), (0,))):
            with self.subTest(x), self.assertRaisesRegex(cleave.InvalidError, "the program changes `x`") as caught:
                program(x)
            self.assertEqual((caught.exception.code, caught.exception.node), ("CLV8001", "x"))
        with torch.inference_mode():
            program(inference)
        self.assertEqual((inference.tolist(), fixed.tolist(), one.tolist()), ([2, 2, 2], [1, 1, 1], [0]))
        for x in (fixed, inference, torch.ones(1).expand(3)):  # only read
            compiled(both, (X, Y))(x, Y)

    def test_ranges_of_dims(self):
        Dim = torch.export.Dim
        for f, dim, low, serves in ((lambda x: x * 2, Dim("n", min=0, max=9), 0, (0, 1, 2)), (lambda x: x * 2, Dim("n", min=1, max=9), 1, (1, 2)),
                                    (lambda x: x * 2, Dim("n", max=9), 0, (0, 1)), (lambda x: x * 2, Dim("n", min=2, max=9), 2, (2, 9)),
                                    (lambda x: x * 2, Dim.AUTO(min=2, max=9), 2, (2, 9)), (lambda x: x * 2, Dim.AUTO, 0, (0, 1)),
                                    (lambda x: x.topk(1, 0).values, Dim("n", min=2, max=99), 2, (2, 7)), (lambda x: x.topk(1, 0).values, Dim("n", max=99), 1, (1, 7)),
                                    (lambda x: x.topk(2, 0).values, Dim.AUTO, 2, (2, 7)), (lambda x: x.amax(0), Dim("n", min=0, max=9), 1, (1, 7))):
            program = compiled(f, (torch.randn(5, 4),), dynamic_shapes=({0: dim},))
            for n in serves:
                x = torch.randn(n, 4)
                torch.testing.assert_close(program(x), f(x))
            if low:
                with self.assertRaisesRegex(cleave.InvalidError, rf"outside its range {low}\.\.") as caught:
                    program(torch.randn(low - 1, 4))
                self.assertIn("torch.export.Dim", caught.exception.hint)
        with self.assertRaisesRegex(cleave.UnsupportedError, "`k` is a number that is open"):
            compiled(lambda x, k: x * k, (X, 3), dynamic_shapes=(None, Dim.DYNAMIC))

    def test_messages_name_no_options_of_the_command(self):
        text = "graph t {\n  dim L in 0..9\n  input X: f32[L, 4]\n  Y, Z = topk(X, k=1, axis=0)\n  output O = Y\n}\n"
        for take in (lambda: compiled(text, (torch.randn(5, 4),)), lambda: cleave.optimize(text, threads=1)):
            with self.assertRaises(cleave.Error) as caught:
                take()
            self.assertNotRegex(f"{caught.exception} {caught.exception.hint}", r"--[a-z]")
            self.assertRegex(f"{caught.exception} {caught.exception.hint}", "dims")

    def test_a_shape_is_a_size(self):
        f = lambda x: (x.shape, {"s": x.size(), "t": tuple(x.shape)}, x * 2)
        program = compiled(f, (torch.ones(3, 4),), dynamic_shapes=({0: torch.export.Dim("n")},))
        shape, more, _ = program(torch.ones(5, 4))
        self.assertEqual([(type(v), v) for v in (shape, more["s"], more["t"])], [(torch.Size, (5, 4)), (torch.Size, (5, 4)), (tuple, (5, 4))])


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("kept", torch.ones(4))
        self.lin = torch.nn.Linear(4, 4)

    def forward(self, x, *, pair=None, k=1, how=torch.relu):
        self.total.add_(x.sum(0))
        return {"y": self.lin(x) * k + pair["b"] - pair["a"], "n": x.shape[0], "third": x.shape[0] / 3, "shape": x.shape, "x": x, "kept": self.kept}


class Folders(unittest.TestCase):
    def saved(self, f, args, kwargs=None, **more):
        with tempfile.TemporaryDirectory() as folder:
            result = cleave.optimize(f, args, kwargs, budget="2c", threads=1, deterministic=True, **more)
            return result, cleave.load(result.export(os.path.join(folder, "p")))

    def test_a_module_comes_back_with_its_call(self):
        module, n = Counter().eval(), torch.export.Dim("n", max=64)
        pair = {"a": torch.ones(4), "b": torch.zeros(4)}
        result, loaded = self.saved(module, (torch.randn(5, 4),), {"pair": pair, "k": 2}, dynamic_shapes={"x": {0: n}, "pair": {"a": None, "b": None}, "k": None})
        self.assertEqual([name for name, _, _ in loaded.inputs if name in ("total", "x")], ["total", "x"])
        self.assertIn("lin_weight", result.source("graph"))
        with torch.no_grad():
            for rows in (7, 1):
                x = torch.randn(rows, 4)
                want = Counter.forward(module, x, pair=pair, k=2)
                for got in (loaded(x, k=2, pair={"b": pair["b"], "a": pair["a"]}), result(x, pair=pair, k=2)):
                    torch.testing.assert_close(got, want)
                    self.assertIs(got["x"], x)
                    self.assertEqual([type(v) for v in got.values()], [type(v) for v in want.values()])
        for (args, kwargs), said in ((called(x), "`pair` is missing|`pair` is None"), (called(x, pair=pair), "`k` is 1, .* 2"), (called(x, pair=pair, k=2, z=1), "`z` is none"),
                                     (called(x, pair=pair, k=2, how=5), "`how` is 5"), (called(torch.ones(65, 4), pair=pair, k=2), "65")):
            with self.assertRaisesRegex(cleave.InvalidError, said):
                loaded(*args, **kwargs)

    def test_what_is_asked_at_each_call_comes_back(self):
        auto = torch.export.Dim.AUTO
        _, loaded = self.saved(lambda x, i: (x[i] * 2, x.shape[0]) if x.shape[0] > i.shape[0] else x, (torch.randn(5, 4), torch.tensor([1, 2])),
                               dynamic_shapes=({0: auto}, {0: auto}))
        x = torch.randn(3, 4)
        torch.testing.assert_close(loaded(x, torch.tensor([0])), (x[:1] * 2, 3))
        self.assertEqual(type(loaded(x.numpy(), np.array([0]))[0]), np.ndarray)
        with self.assertRaisesRegex(cleave.InvalidError, r"here x.shape\[0\] is 3, i.shape\[0\] is 3|i.shape\[0\] is 3, x.shape\[0\] is 3"):
            loaded(x, torch.tensor([0, 1, 2]))
        with self.assertRaises(IndexError):
            loaded(x, torch.tensor([7]))

    def test_what_cannot_be_written_is_said(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            _, loaded = self.saved(lambda p: p.a * p.b, (Pair(X, Y),))
        self.assertIn("cannot be written", " ".join(str(w.message) for w in said))
        torch.testing.assert_close(loaded(X, Y), X * Y)

    def test_a_process_without_torch_takes_the_arrays(self):
        with tempfile.TemporaryDirectory() as folder:
            cleave.optimize(lambda x: (x * 2, x.shape[0]), (X,), budget="2c", threads=1).export(folder + "/p")
            code = f"import sys; sys.modules['torch'] = None; import cleave, numpy as np; print(cleave.load({folder + '/p'!r})(np.ones(3, np.float32)).tolist())"
            got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            self.assertEqual(got.stdout.strip(), "[2.0, 2.0, 2.0]")
            with open(folder + "/p/call.json", "w") as file:
                file.write("{")
            with self.assertRaisesRegex(cleave.InvalidError, "call.json"):
                cleave.load(folder + "/p")


class Conditions(unittest.TestCase):
    def test_a_condition_that_came_with_a_file_is_arithmetic(self):
        from cleave import aten_guards

        given = [torch.zeros(4, 3)]
        for code, value in (("given[0].shape[0] % 2 == 0", True), ("math.floor(given[0].shape[0] / 3)", 1),
                            ("given[0].stride()[0] if given[0].shape[1] > 1 else 0", 3)):
            self.assertEqual(aten_guards.value(code, given), value)
        for code in ("given.__class__", "().__class__.__bases__", "[x for x in given]", "given[0].data_ptr()", "(lambda: 0)()",
                     "torch.load('x')", "math.__loader__", "f'{given}'", "given[0].shape[0].__class__"):
            with self.assertRaisesRegex(cleave.InvalidError, "no condition on sizes"):
                aten_guards.value(code, given)


if __name__ == "__main__":
    unittest.main()
