"""cleave.leir: programs of the loop-equation language in Python. Needs the extension module, and numpy for arrays."""

import importlib.util
import unittest

import cleave
from cleave import leir

ROWS = "in A f32[2,3];\nout C f32[2];\nB^{2}_{tx=0}L^{3}_{a=0}[C^{f32,g}_{tx}=C^{f32,g}_{tx}+A^{f32,g}_{tx,a};];\n"


class Leir(unittest.TestCase):
    def test_parse_prints_the_canonical_form(self):
        p = leir.parse(ROWS.replace("=", " = "))
        self.assertEqual(p.text(), ROWS)
        self.assertEqual(p.text(compact=True), ROWS.split(";\n", 2)[2].strip())
        self.assertEqual(leir.parse(p.text()).key, p.key)

    def test_errors_have_a_caret(self):
        with self.assertRaises(cleave.InvalidError) as e:
            leir.parse(ROWS.replace("[C", "C"), name="rows")
        self.assertIn("rows:3:", str(e.exception))
        self.assertIn("^", str(e.exception))
        p = leir.parse(ROWS.replace("_{tx,a}", "_{tx,a+1}"))
        for _ in range(2):  # the answer stays
            with self.assertRaises(cleave.InvalidError) as e:
                p.check()
            self.assertEqual(e.exception.code, "CLV8026")
            self.assertIn("^^^", str(e.exception))
        with self.assertRaises(ValueError):
            leir.parse(ROWS, dialect="other")

    def test_check_knows_the_variables(self):
        p = leir.parse(ROWS).check()
        self.assertEqual(p.variables[1], leir.Variable("C", "out", "f32", (2,)))

    def test_lower_and_raise(self):
        p = leir.parse(ROWS)
        self.assertIn("int leir_run(", p.lower("c"))
        self.assertIn("threadIdx", p.lower("cuda"))
        self.assertIn("T.parallel(2)", p.lower("tir"))
        self.assertIn('thread="threadIdx.x"', p.lower("tir", target="cuda"))
        self.assertIn("sum(A, axes=[1])", str(p.raise_()))
        with self.assertRaises(cleave.InvalidError):
            p.lower("rust")
        serial = "in A f32[6];out C f32[6];L^{6}_{a=0}[C^{f32,g}_{a}=if_then_else(a<1,0,C^{f32,g}_{a-1})*2+A^{f32,g}_{a};];"
        with self.assertRaises(cleave.Error) as e:
            leir.parse(serial).raise_()
        self.assertIn("an earlier iteration of `a`", str(e.exception))

    def test_bench(self):
        times = leir.parse(ROWS).bench(pairs=3)
        self.assertEqual(sorted(times), ["c", "c_compile", "jit", "jit_compile"])
        self.assertGreater(times["jit"], 0)

    def test_verify(self):
        p = leir.parse(ROWS)
        same = p.verify(str(p))
        self.assertEqual((same.verdict, same.bitwise), ("equal", True))
        wrong = p.verify(str(p).replace("A^{f32,g}_{tx,a}", "A^{f32,g}_{tx,0}"))
        self.assertEqual(wrong.verdict, "different")
        self.assertIn("C[", wrong.reason)

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")
    def test_run(self):
        import numpy

        a = numpy.arange(6, dtype="f4").reshape(2, 3)
        p = leir.parse(ROWS)
        for via in ("interpreter", "jit", "c"):
            numpy.testing.assert_array_equal(p.run({"A": a}, via=via)["C"], [3, 12])
            numpy.testing.assert_array_equal(p.run({"A": a[:, ::-1] * 2}, via=via)["C"], [6, 24])
        with self.assertRaises(cleave.InvalidError) as e:
            p.run({"A": a.T})
        self.assertIn("has the shape [3,2]", str(e.exception))
        with self.assertRaises(cleave.InvalidError):
            p.run({"Z": a})
        half = leir.parse(ROWS.replace("f32", "f16").replace("out C f16", "out C bool")
                              .replace("C^{f16,g}_{tx}=C^{f16,g}_{tx}+", "C^{bool,g}_{tx}=1<"))  # fmt: skip
        self.assertEqual(half.run({"A": a.astype("f2")})["C"].tolist(), [True, True])

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")
    def test_run_takes_what_it_gives_of_every_type(self):
        import numpy

        def copy(source, target):
            return leir.parse(f"in A {source}[4];out C {target}[4];L^{{4}}_{{a=0}}[C^{{{target},g}}_{{a}}=A^{{{source},g}}_{{a}};];")

        values = {t: numpy.array([0, 1, 5, 2 ** (int(t[1:]) - (t[0] == "i")) - 1], dtype=f"{t[0]}{int(t[1:]) // 8}")
                  for t in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")}  # fmt: skip
        values |= {t: numpy.array([0, 1, -5.5, numpy.inf], dtype=f"f{int(t[1:]) // 8}") for t in ("f16", "f32", "f64")}
        values["bool"] = numpy.array([0, 1, 1, 0], dtype=bool)
        values["bf16"] = numpy.array([0, 0x3F80, 0xC0B0, 0x7F80], dtype="u2")  # the same as of the others
        for via in ("interpreter", "jit"):
            for name, array in values.items():
                out = copy(name, name).run({"A": array}, via=via)["C"]
                self.assertEqual(out.dtype, array.dtype, name)
                numpy.testing.assert_array_equal(out, array, name)
                numpy.testing.assert_array_equal(copy(name, name).run({"A": out[::-1]}, via=via)["C"], array[::-1], name)
            wide = copy("f64", "u64").run({"A": numpy.full(4, 1.8e19)}, via=via)["C"]
            self.assertEqual((wide.dtype, int(wide[0])), (numpy.uint64, 18 * 10**18))
            numpy.testing.assert_array_equal(copy("f64", "f64").run({"A": wide}, via=via)["C"], numpy.full(4, 1.8e19))
            bits = values["bf16"]
            for name in ("f32", "bf16"):
                out = copy(name, "f32").run({"A": bits.view("V2")}, via=via)["C"]
                numpy.testing.assert_array_equal(out, values["f32"], name)
        if importlib.util.find_spec("ml_dtypes"):
            import ml_dtypes

            out = copy("bf16", "bf16").run({"A": bits.view(ml_dtypes.bfloat16)})["C"]
            numpy.testing.assert_array_equal(out, bits)
        if importlib.util.find_spec("torch"):
            import torch

            for name, array in values.items():
                if name != "bf16":
                    numpy.testing.assert_array_equal(copy(name, name).run({"A": torch.from_numpy(array)})["C"], array, name)
            for tensor in (torch.from_numpy(bits), torch.from_numpy(bits).view(torch.bfloat16)):
                numpy.testing.assert_array_equal(copy("bf16", "bf16").run({"A": tensor})["C"], bits)


if __name__ == "__main__":
    unittest.main()
