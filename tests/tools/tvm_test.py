"""TVM script of LEIR programs builds and computes the same, where apache-tvm is installed."""

import importlib.util
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

PROGRAM = """in A f32[6,8];
in D f32[8,5];
out C f32[6,5];
out E f32[6];
B^{6}_{tx=0}L^{5}_{a=0}L^{8}_{c=0}[F^{f32,g}_{tx,a}=F^{f32,g}_{tx,a}+A^{f32,g}_{tx,c}*D^{f32,g}_{c,a};];
B^{6}_{tx=0}L^{5}_{a=0}[E^{f32,g}_{tx}=max(E^{f32,g}_{tx},F^{f32,g}_{tx,a});];
P^{6}_{a=0}V^{5}_{c=0}[C^{f32,g}_{a,c}=if_then_else(c<=a&F^{f32,g}_{a,c}>0,exp(F^{f32,g}_{a,c}-E^{f32,g}_{a}),c-a);];
"""


@unittest.skipUnless(importlib.util.find_spec("tvm") and importlib.util.find_spec("numpy"), "apache-tvm is not installed")
class Tvm(unittest.TestCase):
    def test_a_program_builds_and_is_equal(self):
        import numpy as np
        from suites import tvm_run

        rng = np.random.default_rng(1)
        a, d = rng.standard_normal((6, 8)).astype("f4"), rng.standard_normal((8, 5)).astype("f4")
        f = a.astype("f8") @ d.astype("f8")
        e = f.max(axis=1)
        i, j = np.indices(f.shape)
        c = np.where((j <= i) & (f > 0), np.exp(f - e[:, None]), j - i)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "prog.leir").write_text(PROGRAM)
            np.savez(folder / "inputs.npz", A=a, D=d)
            np.savez(folder / "outputs.npz", C=c, E=e)
            self.assertIsNone(tvm_run.run_folder(os.environ["CLEAVE"], folder))
            np.savez(folder / "outputs.npz", C=c + 1e-3, E=e)
            self.assertIn("output C", tvm_run.run_folder(os.environ["CLEAVE"], folder))


if __name__ == "__main__":
    unittest.main()
