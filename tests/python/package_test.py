"""The Python package without PyTorch: graphs, programs, results, errors."""

import copy
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

import cleave
from cleave import _arrays, leir

ROOT = Path(__file__).resolve().parents[2]
SOFTMAX = """graph rows {
  dim S in 0..64
  input X: f32[S, 16]
  scalar a: f32
  output Y = softmax(mul(X, a), axis=-1)
}
"""


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def small(**more):
    return dict(budget="4c", threads=1, **more)


def onnx_relu() -> bytes:
    """relu of x: f32[3], written as protobuf writes it: (field number, content)."""
    def message(*fields):
        out = b""
        for number, content in fields:
            if isinstance(content, int):
                out += bytes([number << 3, content])
            else:
                content = content.encode() if isinstance(content, str) else content
                out += bytes([number << 3 | 2, len(content)]) + content
        return out

    def value(name):
        return message((1, name), (2, message((1, message((1, 1), (2, message((1, message((1, 3))))))))))

    node = message((1, "x"), (2, "y"), (4, "Relu"))
    graph = message((1, node), (2, "g"), (11, value("x")), (12, value("y")))
    return message((1, 8), (7, graph), (8, message((1, ""), (2, 17))))


class Graphs(unittest.TestCase):
    def test_built_by_operators(self):
        g = cleave.Graph("mlp")
        x = g.input("X", ("S", 8), "f32")
        w = g.constant("W", np.arange(24, dtype=np.float32).reshape(8, 3) / 10)
        g.output(g.relu(x @ w + 1) * 2 - g.mean(x, axes=[-1], keepdims=True), "Y")
        program = cleave.compile(g, threads=1)
        for rows in (1, 5, 0):
            x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
            want = np.maximum(x @ (np.arange(24, dtype=np.float32).reshape(8, 3) / 10) + 1, 0) * 2 - x.mean(-1, keepdims=True)
            np.testing.assert_allclose(program(x), want, rtol=1e-5, atol=1e-5)
        self.assertEqual(program.compilations, 2, "one for all rows, and the unfused schedule for none")

    def test_its_text_is_read_again(self):
        g = cleave.Graph("t")
        g.output(g.softmax(g.input("X", (4, "N"), "f32"), axis=1))
        again = cleave.Graph.parse(str(g))
        self.assertEqual(str(again), str(g))
        self.assertEqual(again.inputs, [("X", "f32", [4, "N"])])
        self.assertEqual(again.dims[0][0], "N")

    def test_it_is_saved_with_its_constants(self):
        w = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
        g = cleave.Graph("t")
        g.output(g.input("X", ("S", 64)) @ g.constant("W", w) + g.constant("b", np.arange(32, dtype=np.float32)), "Y")
        with self.assertRaisesRegex(cleave.InvalidError, "is in the file `W.npy`, and a text alone has no files"):
            cleave.Graph.parse(str(g))
        x = np.ones((3, 64), np.float32)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(g.save(Path(folder) / "t.graph"), folder + "/t.graph")
            again = cleave.Graph.load(folder + "/t.graph")
            other = cleave.Graph("other")
            other.output(other.input("X", (64, 32)) * other.constant("W", w + 1))
            other.save(folder + "/other.graph")  # not over the constants of the first
            other.save(folder + "/new/other.graph")
            np.testing.assert_array_equal(cleave.compile(folder + "/t.graph")(x), cleave.compile(g)(x))
            again.save(folder + "/t.graph")  # over the files that it was read from
            text = Path(folder, "t.graph").read_text()
            np.testing.assert_array_equal(cleave.compile(cleave.Graph.parse(text, folder=folder))(x), cleave.compile(g)(x))
            with self.assertRaisesRegex(cleave.InvalidError, "cannot be written"):
                g.save(folder + "/t.graph/t.graph")

    def test_comparisons_are_values_without_a_truth_value(self):
        g = cleave.Graph("t")
        x = g.input("X", (4,))
        for ask in (lambda: bool(x > 0), lambda: 0 < x < 1, lambda: not x, lambda: x in [x + 1]):
            with self.assertRaisesRegex(cleave.InvalidError, "no truth value") as caught:
                ask()
            self.assertIn("g.where(", caught.exception.hint)
        for ask in (int, float, len, list):
            self.assertRaises(TypeError, ask, x)
        g.output(g.where(x == 2, 10.0, g.where(x != 3, x, 30.0)), "Y")
        np.testing.assert_array_equal(cleave.compile(g)(np.arange(4, dtype=np.float32)), [0, 1, 10, 30])
        self.assertFalse(x == None)  # noqa: E711 - what is no number and no value is not the same
        self.assertIn(x, {x: 1})

    def test_a_text_with_an_error_is_no_missing_file(self):
        for text in ("graph { }", "graph x", "grph {}", "graph g { output }"):
            with self.assertRaisesRegex(cleave.InvalidError, r"CLV1001.*\n") as caught:
                cleave.compile(text)
        for path in ("nowhere.graph", "graphs/nowhere.graph", "graph"):
            with self.assertRaises(cleave.InvalidError) as caught:
                cleave.compile(path)
            self.assertEqual(caught.exception.code, "CLV3001")

    def test_faults_name_code_node_and_hint(self):
        with self.assertRaises(cleave.InvalidError) as caught:
            cleave.Graph.parse("graph g {\n  input X: f32[4]\n  output Y = frobnicate(X)\n}\n")
        self.assertEqual(caught.exception.code, "CLV2001")
        self.assertIn("frobnicate", str(caught.exception))
        self.assertTrue(caught.exception.hint)
        self.assertIsInstance(caught.exception, ValueError)
        g = cleave.Graph("g")
        x = g.input("X", (4, 5), "f32")
        with self.assertRaises(cleave.Error):
            g.softmax(x, axis=7)
        with self.assertRaises(cleave.InvalidError):
            g.output(g.add(x, cleave.Graph("other").input("Y", (4, 5), "f32")))
        with self.assertRaises(cleave.InvalidError):
            cleave.Graph("empty").native()


class Programs(unittest.TestCase):
    def setUp(self):
        self.program = cleave.compile(cleave.Graph.parse(SOFTMAX), threads=2)

    def test_scalars_strides_and_given_memory(self):
        x = np.random.default_rng(0).standard_normal((16, 10)).astype(np.float32)
        np.testing.assert_allclose(self.program(x.T, a=2.0), softmax(2 * x.T), rtol=1e-5)
        flipped = np.ascontiguousarray(x.T)[::-1]
        np.testing.assert_allclose(self.program(flipped, a=2.0), softmax(2 * flipped), rtol=1e-5)
        out = np.full((10, 16), np.nan, np.float32)
        self.assertIs(self.program(x.T, a=1.0, out=out), out)
        np.testing.assert_allclose(out, softmax(x.T), rtol=1e-5)

    def test_nothing_is_copied(self):
        # In place: what is read is the caller's memory, and what is written too.
        x = np.zeros((4, 16), np.float32)
        out = self.program(x, a=1.0, out=x)
        self.assertIs(out, x)
        np.testing.assert_allclose(x, np.full((4, 16), 1 / 16), rtol=1e-6)

    def test_an_output_is_a_value_and_a_name(self):
        graph = cleave.Graph("swapped")
        x = graph.input("x", (3,))
        for arguments in (("y", x * 2.0), (3.0,), (cleave.Graph("other").input("x", (3,)), "y"), (x * 2.0, x), (x * 2.0, 3)):
            with self.assertRaises(cleave.InvalidError):
                graph.output(*arguments)

    def test_large_results_begin_a_line(self):
        graph = cleave.Graph("lines")
        x = graph.input("x", (3, 200_000))
        graph.output(x * 2.0, "y")
        given = np.arange(600_000, dtype=np.float32).reshape(3, -1)
        result = cleave.compile(graph, threads=1, search=False)(given)
        self.assertEqual(result.ctypes.data % 64, 0)
        self.assertTrue(result.flags.c_contiguous and result.flags.writeable)
        np.testing.assert_array_equal(result, given * 2)

    def test_arrays_that_are_not_aligned(self):
        x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
        crooked = np.frombuffer(b"?" + x.tobytes(), np.float32, offset=1).reshape(4, 16)
        packed = np.zeros(4, dtype=[("flag", "u1"), ("row", "f4", (16,))])["row"]  # rows are no whole elements apart
        packed[:] = x
        for array in (crooked, packed):
            self.assertFalse(array.flags.aligned)
            np.testing.assert_array_equal(self.program(array, a=1.0), self.program(x, a=1.0))
            with self.assertRaisesRegex(cleave.InvalidError, "`out` is (not aligned|read-only)"):
                self.program(x, a=1.0, out=array)
        with self.assertRaisesRegex(cleave.InvalidError, "an array of `out` is not aligned to its elements"):
            self.program(x, a=1.0, out=np.frombuffer(bytearray(1 + x.nbytes), np.float32, offset=1).reshape(4, 16))
        sums = leir.parse("in A f32[4,16];out C f32[4];B^{4}_{tx=0}L^{16}_{a=0}[C^{f32,g}_{tx}=C^{f32,g}_{tx}+A^{f32,g}_{tx,a};];")
        np.testing.assert_allclose(sums.run({"A": crooked})["C"], x.sum(1), rtol=1e-5)

    def test_inputs_by_name(self):
        program = cleave.compile("graph g {\n  dim S in 0..9\n  input A: f32[S]\n  input B: f32[S]\n  scalar a: f32\n"
                                 "  output Y = sub(mul(A, a), B)\n}\n")
        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        for call in (lambda: program(x, y, a=2), lambda: program(x, B=y, a=2), lambda: program(B=y, a=2, A=x)):
            np.testing.assert_array_equal(call(), 2 * x - y)
        for call, text in ((lambda: program(x, a=2, b=y), "`b` is no input, scalar or open dimension"),
                           (lambda: program(A=x, a=2), "the input `B` is missing; the program has 2 inputs \\(A, B\\)"),
                           (lambda: program(x, A=x, a=2), "the input `A` is given twice"),
                           (lambda: program(x, y, B=y, a=2), "the input `B` is given twice"),
                           (lambda: program(x, a=2), "1 arrays are given, the program has 2 inputs"),
                           (lambda: program(x, y, y, a=2), "3 arrays are given, the program has 2 inputs")):
            with self.assertRaisesRegex(cleave.InvalidError, text):
                call()
        with self.assertRaises(cleave.InvalidError) as caught:
            program(x, y, scale=2, a=2)
        self.assertEqual(caught.exception.hint, "its inputs are A, B; its scalars are a; its open dimensions are S")

    def test_a_wrong_out_is_called_an_output(self):
        x = np.ones((4, 16), np.float32)
        one = np.empty((1, 16), np.float32)
        for out, text in ((np.empty((5, 16), np.float32), "output `Y`: it has the shape"),
                          (np.empty((4, 16), np.float64), "output `Y`: it has the type"),
                          (np.lib.stride_tricks.as_strided(one, (4, 16), (0, 4)), "output `Y`: its elements share memory")):
            with self.assertRaisesRegex(cleave.InvalidError, text) as caught:
                self.program(x, a=1.0, out=out)
            self.assertEqual((caught.exception.code, caught.exception.node), ("CLV7012", "Y"))

    def test_outputs_that_share_memory(self):
        g = cleave.Graph.parse("""graph two {
  input A: f32[4, 6]
  output O = mul(A, 2.0)
  output P = sum(A, axes=[0])
}""")
        program, a = cleave.compile(g), np.arange(24, dtype=np.float32).reshape(4, 6)
        both = np.empty((5, 6), np.float32)
        with self.assertRaisesRegex(cleave.InvalidError, "output `P`: it shares memory with `O`, another output"):
            program(a, out=[both[:4], both[3]])
        program(a, out=[both[:4], both[4]])
        np.testing.assert_array_equal(both, np.vstack([a * 2, a.sum(0)]))
        wide = np.empty((4, 7), np.float32)  # beside one another, row by row
        program(a, out=[wide[:, :6], np.empty(6, np.float32)])
        np.testing.assert_array_equal(wide[:, :6], a * 2)

    def test_arrays_of_others(self):
        class Foreign:  # nothing but the protocol
            def __init__(self, array):
                self.array, self.asked = array, 0

            def __dlpack__(self, **how):
                self.asked += 1
                return self.array.__dlpack__(**how)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        memory = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
        want = softmax(memory[::2])
        x = Foreign(memory[::2])
        np.testing.assert_allclose(self.program(x, a=1.0), want, rtol=1e-5)
        self.assertEqual(x.asked, 1)
        self.program(x, a=1.0, out=Foreign(memory[::2]))  # into memory that is not dense
        np.testing.assert_allclose(memory[::2], want, rtol=1e-5)
        try:
            import array_api_strict as xp
        except ImportError:
            return
        np.testing.assert_allclose(self.program(xp.asarray(memory), a=1.0), softmax(memory), rtol=1e-5)

    def test_read_only_inputs(self):
        x = np.zeros((3, 16), np.float32)
        x.flags.writeable = False
        np.testing.assert_allclose(self.program(x, a=1.0), 1 / 16)

    def test_wrong_arguments(self):
        x = np.zeros((4, 16), np.float32)
        for call in (lambda: self.program(x), lambda: self.program(x, x, a=1.0), lambda: self.program(x, a=1.0, b=2.0),
                     lambda: self.program(x.astype(np.float64), a=1.0), lambda: self.program(x[:, :5], a=1.0),
                     lambda: self.program(np.zeros((65, 16), np.float32), a=1.0)):
            with self.assertRaises(cleave.InvalidError):
                call()

    def test_arrays_that_cannot_be_read_are_refused_by_name(self):
        x = np.zeros((4, 16), np.float32)
        fixed = x.copy()
        fixed.flags.writeable = False
        for array, text in ((x.astype(">f4"), ">f4"), (x.astype(object), "object"), (np.full((4, 16), "a"), "<U1"), ({"a": 1}, "a dict is no array")):
            with self.subTest(text), self.assertRaisesRegex(cleave.Error, text):
                self.program(array, a=1.0)
        for out, text in ((fixed, "read-only"), ([1], "int"), ([x, x], "2 arrays"), (x.astype(">f4"), ">f4")):
            with self.subTest(text), self.assertRaisesRegex(cleave.InvalidError, text):
                self.program(x, a=1.0, out=out)
        with self.assertRaisesRegex(cleave.InvalidError, "`a` is 'x'"):
            self.program(x, a="x")

    def test_types_that_there_are_not_are_refused_by_name(self):
        x = np.zeros((4, 16), np.float32)
        for dtype, name in ((np.uint64, "u64"), (np.complex64, "c64")):
            with self.assertRaisesRegex(cleave.UnsupportedError, f"arrays of {name} ") as caught:
                self.program(x.astype(dtype), a=1.0)
            self.assertEqual(caught.exception.code, "CLV6006")
            self.assertEqual(caught.exception.node, name)
            self.assertIn("f32", caught.exception.hint)
            with self.assertRaisesRegex(cleave.UnsupportedError, f"arrays of {name} "):
                cleave.Graph("g").constant("W", x.astype(dtype))

    def test_narrow_integers_wrap_as_numpys(self):
        for dtype, name in ((np.int8, "i8"), (np.int16, "i16"), (np.uint8, "u8"), (np.uint16, "u16"), (np.uint32, "u32")):
            g = cleave.Graph("narrow")
            x, y = g.input("X", (37,), name), g.input("Y", (37,), name)
            w = g.constant("W", np.arange(37, dtype=dtype))
            g.output(x * y + w, "sum")
            g.output(g.max(x, y), "max")
            g.output(g.lt(x, y), "less")
            g.output(g.cast(x, dtype="f32"), "real")
            program = cleave.compile(g)
            rng, limits = np.random.default_rng(1), np.iinfo(dtype)
            a, b = (rng.integers(limits.min, limits.max, 37, dtype=dtype, endpoint=True) for _ in range(2))
            got = program(a, b)
            want = (a * b + np.arange(37, dtype=dtype), np.maximum(a, b), a < b, a.astype(np.float32))
            for one, other in zip(got, want):
                self.assertEqual(one.dtype, other.dtype)
                np.testing.assert_array_equal(one, other, err_msg=name)

    def test_current_thread_settings(self):
        program, x, seen = cleave.compile(cleave.Graph.parse(SOFTMAX)), np.zeros((2, 16), np.float32), []
        pool = lambda threads: seen.append(threads)
        with patch.object(_arrays, "pool", pool), patch.object(_arrays, "_torch", lambda: None):
            for count in ("3", "5"):  # as they are at each call
                with patch.dict(os.environ, OMP_NUM_THREADS=count):
                    program(x, a=1.0)
            torch = SimpleNamespace(get_num_threads=lambda: 7, Tensor=int)
            with patch.object(_arrays, "_torch", lambda: torch):
                program(x, a=1.0)
            self.program(x, a=1.0)  # made for two
        self.assertEqual(seen, [3, 5, 7, 2])

    def test_several_threads_call_at_once(self):
        x = [np.random.default_rng(i).standard_normal((7, 16)).astype(np.float32) for i in range(8)]
        wrong = []

        def work(i):
            for _ in range(50):
                if not np.allclose(self.program(x[i], a=1.0), softmax(x[i]), atol=1e-6):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class Results(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seen = []
        cls.result = cleave.optimize(SOFTMAX, dims={"S": "0..64@12"}, callback=cls.seen.append, **small())

    def test_it_runs_at_any_extent_of_the_range(self):
        for rows in (12, 3, 0, 64):
            x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
            want = softmax(x) if rows else x
            np.testing.assert_allclose(self.result(x, a=1.0), want, rtol=1e-5, atol=1e-7)
        self.assertLessEqual(self.result.compilations, 2)

    def test_dimensions_that_no_shape_tells_are_given(self):
        text = """graph counted {
  dim L in 1..100
  input x: f32[2]
  scalar a: f32
  output y = mul(add(iota(shape=[L, 1], axis=0, dtype=f32), x), a)
}
"""
        program, x = cleave.compile(text), np.array([0.5, 1.5], np.float32)
        for length in (7, 100):
            want = 3 * (np.arange(length, dtype=np.float32)[:, None] + x)
            np.testing.assert_array_equal(program(x, a=3.0, L=length), want)
        with self.assertRaisesRegex(cleave.InvalidError, "`L` has no value"):
            program(x, a=3.0)
        with self.assertRaisesRegex(cleave.InvalidError, "`M` is no input, scalar or open dimension"):
            program(x, a=3.0, L=7, M=1)

    def test_what_it_says(self):
        r = self.result
        self.assertGreaterEqual(r.speedup, 1.0)
        self.assertIn(r.status, ("complete", "budget"))
        self.assertLess(r.error["max_rel"], 1e-5)
        self.assertIn("unfused", r.explain())
        self.assertGreater(len(r.candidates), 0)
        self.assertEqual(r.coverage, 1.0)
        self.assertEqual(r.left_out, {})
        self.assertLessEqual(r.memory["workspace"], r.memory["without_reuse"])
        self.assertTrue(all("seconds" in c for c in self.seen))
        self.assertEqual(r.details["schema"], "cleave.result/1")
        for stage in ("graph", "stabilised", "itgraph", "tile", "vec", "llvm", "asm"):
            self.assertTrue(r.source(stage))
        with self.assertRaisesRegex(cleave.InvalidError, "no LEIR can be made.*`S` is open"):
            r.source("leir")
        with self.assertRaisesRegex(cleave.InvalidError, "graph, stabilised, itgraph, tile, leir, vec, llvm, asm"):
            r.source("nonsense")

    def test_wrong_kinds_of_arguments_are_named(self):
        def on(build):
            g = cleave.Graph("g")
            return lambda: build(g, g.input("X", ("S", 8), np.float32))

        program = leir.parse("in A f32[4];out C f32[4];B^{4}_{tx=0}[C^{f32,g}_{tx}=A^{f32,g}_{tx}+1;];")
        for call in (lambda: cleave.Graph(5), on(lambda g, x: g.input("Y", 5)), on(lambda g, x: g.input("Y", (1.5,))),
                     on(lambda g, x: g.input("Y", (-1,))), on(lambda g, x: g.input("Y", (1,), "f99")), on(lambda g, x: g.input(3, (1,))),
                     on(lambda g, x: g.dim("S", "a")), on(lambda g, x: g.constant("c", "abc")), on(lambda g, x: g.softmax(x, axis=2**70)),
                     on(lambda g, x: g.softmax(x, axis={})), on(lambda g, x: g.sum(x, axes=[0.5])), on(lambda g, x: g.cast(x, dtype="f99")),
                     on(lambda g, x: x @ 3), on(lambda g, x: g.literal("a")), on(lambda g, x: g.output(3)), on(lambda g, x: g.output(x, 5)),
                     on(lambda g, x: g.add(x, "y")), lambda: cleave.load(5), lambda: cleave.Graph.load(5), lambda: cleave.Graph.parse(5),
                     lambda: cleave.Graph.from_onnx(5), lambda: self.result.source(5), lambda: self.result.export(None),
                     lambda: self.result.report(5), lambda: cleave.compile(SOFTMAX, np.ones((4, 16), np.float32)),
                     lambda: cleave.compile(SOFTMAX, None), lambda: leir.parse(5), lambda: leir.parse("", dims={"N": "x"}),
                     lambda: leir.parse("", dialect="x"), lambda: program.run(5), lambda: program.run({"A": "a"}),
                     lambda: program.run({"A": np.ones(4, ">f4")}), lambda: program.run({"A": np.ones(4, np.complex64)}),
                     lambda: program.verify(5)):
            with self.assertRaises(cleave.Error) as caught:
                call()
            self.assertNotIn("incompatible function arguments", str(caught.exception))
        g = cleave.Graph("g")  # numpy's numbers and types are as good as Python's
        x = g.input("X", (np.int64(4), 8), np.float32)
        g.output(g.softmax(g.cast(x * np.float32(2), dtype=np.dtype("float64")), axis=np.int64(1)), "Y")
        self.assertEqual((g.inputs, g.outputs), ([("X", "f32", [4, 8])], [("Y", "f64", [4, 8])]))

    def test_what_cannot_be_pickled_says_so(self):
        for thing in (self.result, self.result.program, cleave.Graph.parse(SOFTMAX)):
            with self.assertRaisesRegex(cleave.UnsupportedError, "cannot be pickled") as caught:
                pickle.dumps(thing)
            self.assertTrue(caught.exception.hint)
        self.assertIs(copy.deepcopy({"p": self.result.program})["p"], self.result.program)

    def test_the_folder_is_loaded_again(self):
        with tempfile.TemporaryDirectory() as folder:
            self.result.export(folder + "/art")
            x = np.ones((12, 16), np.float32)
            np.testing.assert_array_equal(cleave.load(folder + "/art")(x, a=1.0), self.result(x, a=1.0))
            with self.assertRaises(cleave.Error):
                cleave.load(folder)

    def test_artefacts_of_the_command_with_open_dimensions(self):
        command = os.environ.get("CLEAVE")
        if not command:
            self.skipTest("CLEAVE names the command")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "g.graph").write_text(SOFTMAX)
            subprocess.run([command, "optimize", folder + "/g.graph", "--dim", "S=0..64@12", "--deterministic", "-q", "-o", folder + "/art"],
                           check=True, capture_output=True)
            program = cleave.load(folder + "/art")
        self.assertEqual(program.inputs, [("X", "f32", ["S", 16])])
        for rows in (1, 12, 64):
            x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
            np.testing.assert_allclose(program(x, a=1.0), softmax(x), rtol=1e-5, atol=1e-7)
        self.assertEqual(program.compilations, 1)

    def test_the_report(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.result.report(Path(folder, "r.html"))
            self.assertEqual(Path(folder, "r.html").read_text(encoding="utf-8"), text)
            with self.assertRaises(cleave.InvalidError):
                self.result.report(Path(folder, "nowhere", "r.html"))
        self.assertIn("<html", text)
        self.assertNotIn("http:", text.replace("http://www.w3.org", ""))

    def test_unknown_dimensions_targets_and_things(self):
        with self.assertRaises(cleave.InvalidError):
            cleave.optimize(SOFTMAX, dims={"T": 4}, **small())
        with self.assertRaises(cleave.Error):
            cleave.optimize(SOFTMAX, dims={"S": 4}, target="tpu", **small())
        with self.assertRaises(cleave.InvalidError):
            cleave.optimize(7)
        with self.assertRaises(cleave.Error):
            cleave.optimize("nowhere.graph")

    def test_options_that_make_no_sense_are_refused_by_name(self):
        wrong = [("rtol", -1), ("rtol", float("nan")), ("atol", float("inf")), ("atol", "0"), ("seed", "a"), ("seed", -1), ("threads", 0),
                 ("threads", 2.5), ("budget", "fast"), ("budget", -1), ("budget", True), ("deterministic", 1), ("callback", 3), ("cache_dir", 3),
                 ("dims", 3), ("dims", {"S": 2.5}), ("dims", {"S": "1..x"}), ("dims", {"S": "1..80"}), ("dims", {"S": "8..1"}),
                 ("dims", {"S": "1..8@9"}), ("dims", {"S": None}), ("kwargs", {"a": 1}), ("dynamic_shapes", {"X": {0: 1}})]
        for name, value in wrong:
            with self.subTest(**{name: value}), self.assertRaisesRegex(cleave.InvalidError, name):
                cleave.optimize(SOFTMAX, **{"dims": {"S": 4}, name: value})
        x = np.zeros((4, 16), np.float32)
        for args in ((x, x), (x[:, :3],), (x[0],), (3,)):
            with self.assertRaises(cleave.InvalidError):
                cleave.compile(SOFTMAX, args)
        for search in (0, None):
            with self.assertRaisesRegex(cleave.InvalidError, "search"):
                cleave.compile(SOFTMAX, search=search)

    def test_dimensions_without_ranges(self):
        program = cleave.compile("""graph m {
  dim A
  dim B
  dim C
  input X: f32[A, B, C]
  T = exp(X)
  output Y = mul(T, sigmoid(T))
}""")
        for shape in ((2, 9, 8), (1, 1, 5000), (70, 3, 2), (0, 4, 4)):
            t = np.exp(np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape))
            np.testing.assert_allclose(program(np.log(t)), t / (1 + np.exp(-t)), rtol=1e-5)

    def test_ranges_of_dimensions(self):
        x = np.ones((8, 16), np.float32)
        for dims in ({"S": "2..8@4"}, {"S": "2..8"}):
            for program in (cleave.compile(SOFTMAX, dims=dims), cleave.optimize(SOFTMAX, dims=dims, **small()).program):
                for rows in (2, 8):
                    np.testing.assert_allclose(program(x[:rows], a=1.0), 1 / 16, rtol=1e-6)
                with self.assertRaisesRegex(cleave.InvalidError, r"`S` is 1, outside its range 2\.\.8"):
                    program(x[:1], a=1.0)
        for given, text in (("5..2", "its range ends before it begins"), ("1..4@9", r"its typical value lies outside 1\.\.4"),
                            ("0..65", r"is not within 0\.\.64"), (65, r"is not within 0\.\.64")):
            with self.assertRaisesRegex(cleave.InvalidError, text):
                cleave.compile(SOFTMAX, dims={"S": given})
        self.assertIn("exp", cleave.optimize(SOFTMAX, dims={"S": 4}, **small()).source("leir"))
        for given in (8, "8", np.int64(8)):
            program = cleave.compile(SOFTMAX, dims={"S": given})
            np.testing.assert_allclose(program(x, a=1.0), 1 / 16, rtol=1e-6)
            self.assertEqual(program.dims, [])
            with self.assertRaises(cleave.InvalidError):
                program(x[:4], a=1.0)

    def test_an_onnx_file(self):
        if not (ROOT / "examples/gpt2_block.weights").exists():
            self.skipTest("`make weights` was not run")
        self.assertTrue(cleave.Graph.load(ROOT / "examples/gpt2_block.onnx").inputs)

    def test_an_onnx_model_in_memory(self):
        class Model:  # as onnx.ModelProto is
            def __init__(self, data):
                self.data = data

            def SerializeToString(self):
                if self.data is None:
                    raise ValueError("too large")
                return self.data

        data = onnx_relu()
        x = np.array([-1, 2, 3], np.float32)
        for model in (data, bytearray(data), memoryview(data), Model(data)):
            np.testing.assert_array_equal(cleave.compile(model)(x), [0, 2, 3])
        np.testing.assert_array_equal(cleave.optimize(Model(data), **small())(x), [0, 2, 3])
        self.assertEqual(cleave.Graph.from_onnx(data).inputs, [("x", "f32", [3])])
        for model, code in ((data[:-3], "CLV3004"), (b"", "CLV3004"), (Model(None), "CLV8001")):
            with self.assertRaises(cleave.InvalidError) as caught:
                cleave.compile(model)
            self.assertEqual(caught.exception.code, code)
        here = ROOT / "tests/data"
        outside = (here / "gpt2_block_dynamic.onnx").read_bytes()  # its weights lie in a file that is not there
        for folder in ("", here):
            with self.assertRaises(cleave.InvalidError) as caught:
                cleave.Graph.from_onnx(outside, folder=folder)
            self.assertEqual(caught.exception.code, "CLV3006")


class Package(unittest.TestCase):
    def test_it_imports_without_torch(self):
        code = "import sys\nsys.modules['torch'] = None\nimport cleave\nprint(cleave.__version__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_parts_are_imported_when_they_are_asked_for(self):
        code = ("import sys, cleave\nassert not {'torch', 'numpy', 'cleave.leir', 'cleave.backend'} & set(sys.modules)\n"
                "cleave.leir.parse\nassert not hasattr(cleave, 'nothing')\nsys.modules['torch'] = None\n"
                "try: cleave.backend\nexcept AttributeError as error: print(error)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertRegex(done.stdout, "cleave.backend cannot be imported: .*torch", done.stderr)

    def test_interrupts_keep_the_best(self):
        code = (
            "import os, signal, threading, cleave\n"
            "threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            f"r = cleave.optimize({str(ROOT / 'examples/attention.graph')!r}, budget='600s', threads=1)\n"
            "print('status', r.status)\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
        self.assertIn("status interrupted", done.stdout, done.stderr)


    def test_interrupts_end_a_compilation(self):
        code = (
            "import os, signal, tempfile, threading, cleave\n"
            f"g = cleave.Graph.load({str(ROOT / 'examples/attention.graph')!r})\n"
            "cleave.compile(g)\n"
            "def press():\n"
            "    while True: os.kill(os.getpid(), signal.SIGINT); threading.Event().wait(1)\n"
            "threading.Timer(0.02, press).start()\n"
            "os.environ['CLEAVE_CACHE_DIR'] = tempfile.mkdtemp()\n"
            "try:\n"
            "    cleave.compile(g)\n"
            "    print('compiled')\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n"
            "os._exit(0)\n")
        done = subprocess.run([sys.executable, "-u", "-c", code], capture_output=True, text=True, timeout=200)
        self.assertEqual(done.stdout, "interrupted\n", done.stderr)

    def test_no_index_reads_outside_of_memory(self):
        # The table fills one page between two that nobody may read.
        code = (
            "import ctypes, mmap, numpy as np, cleave\n"
            "memory = mmap.mmap(-1, 3 * mmap.PAGESIZE)\n"
            "at = ctypes.addressof(ctypes.c_char.from_buffer(memory))\n"
            "protect = ctypes.CDLL(None, use_errno=True).mprotect\n"
            "for page in (0, 2): assert protect(ctypes.c_void_p(at + page * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0\n"
            "floats = np.frombuffer(memory, np.float32, mmap.PAGESIZE // 4, mmap.PAGESIZE)\n"
            "floats[:] = np.arange(floats.size)\n"
            "for width, dtype in ((1, 'i64'), (4, 'i64'), (32, 'i32'), (1024, 'i32')):\n"
            "    table = floats.reshape(-1, width)\n"
            "    rows, bits = len(table), int(dtype[1:])\n"
            "    ends = [-2**(bits - 1), -rows - 1, -rows, -1, 0, rows - 1, rows, 2**31 - 1, 2**(bits - 1) - 1]\n"
            "    index = np.array(ends * 5, f'int{bits}')\n"
            "    g = cleave.Graph('g')\n"
            "    x, i = g.input('X', table.shape, 'f32'), g.input('I', index.shape, dtype)\n"
            "    g.output(g.gather(x, i, axis=0))\n"
            "    g.output(g.mul(g.gather(x, i, axis=0), 2.0))\n"
            "    wide = index.astype(object)\n"
            "    want = table[np.clip(np.where(wide < 0, wide + rows, wide), 0, rows - 1).astype(np.int64)]\n"
            "    for search in (True, False):\n"
            "        y, twice = cleave.compile(g, threads=1, search=search)(table, index)\n"
            "        assert (y == want).all() and (twice == 2 * want).all(), (width, dtype)\n"
            "print('inside', flush=True)\n"
            "import os; os._exit(0)\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stdout), (0, "inside\n"), done.stderr)

    def test_children_of_a_process_with_threads(self):
        code = (
            "import os, numpy as np, cleave\n"
            "g = cleave.Graph('g')\n"
            "g.output(g.softmax(g.input('X', (512, 512), 'f32'), axis=1))\n"
            "p = cleave.compile(g, threads=3)\n"
            "p(np.ones((512, 512), np.float32))\n"
            "child = os.fork()\n"
            "y = p(np.ones((512, 512), np.float32))\n"
            "assert abs(y.sum() - 512) < 1e-2\n"
            "if child: assert os.waitpid(child, 0)[1] == 0; print('both')\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout, "both\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
