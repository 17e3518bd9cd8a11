"""The wheel that `make wheel` leaves in build/dist, in a virtual environment of its own. Skipped where there is none."""

import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHEELS = sorted((ROOT / "build/dist").glob("cleave-*.whl"), key=lambda p: p.stat().st_mtime)


@unittest.skipUnless(WHEELS, "`make wheel` was not run")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        at = Path(cls.folder.name) / "venv"
        subprocess.run([sys.executable, "-m", "venv", at], check=True, capture_output=True)
        cls.python = at / "bin/python"
        install = [cls.python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", WHEELS[-1]]
        subprocess.run(install, check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_python(self, code, packages=False):
        """Prints of the code, run by the new environment, with this interpreter's packages behind its own or without."""
        if packages:
            code = f"import sys; sys.path.append({sysconfig.get_paths()['purelib']!r})\n{code}"
        done = subprocess.run([self.python, "-I", "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=200,
                              cwd=self.folder.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def test_what_it_holds(self):
        names = set(zipfile.ZipFile(WHEELS[-1]).namelist())
        for name in ("cleave/__init__.py", "cleave/py.typed", "cleave/_native.pyi", "cleave/aten.py", "cleave_leir/__init__.py"):
            self.assertIn(name, names)
        self.assertTrue(any(n.startswith("cleave/_native.") and n.endswith(".so") for n in names))
        self.assertTrue(any(n.startswith("cleave/libcleave.so") for n in names))
        stub = zipfile.ZipFile(WHEELS[-1]).read("cleave/_native.pyi").decode()
        for word in ("class GraphBuilder", "class Program", "def optimize"):
            self.assertIn(word, stub)

    def test_it_imports_alone(self):
        code = "import cleave, sys; print(cleave.__version__, 'torch' in sys.modules, 'numpy' in sys.modules, cleave.__file__)"
        version, torch, numpy, file = self.run_python(code)
        self.assertEqual((torch, numpy), ("False", "False"))
        self.assertTrue(file.startswith(self.folder.name), file)
        self.assertIn(f"-{version}-", WHEELS[-1].name)

    def test_it_compiles_and_runs(self):
        code = """import numpy as np, cleave
g = cleave.Graph("g")
g.output(g.softmax(g.input("X", ("S", 4), "f32"), axis=1))
print(*cleave.compile(g)(np.zeros((2, 4), np.float32)).ravel())"""
        self.assertEqual(self.run_python(code, packages=True), ["0.25"] * 8)

    def test_torch_finds_the_backend(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("torch is not installed")
        code = """import torch
f = torch.compile(lambda x: x.softmax(-1), backend="cleave", options={"quiet": True})
with torch.no_grad(): print(*f(torch.zeros(4)).tolist())"""
        self.assertEqual(self.run_python(code, packages=True), ["0.25"] * 4)


if __name__ == "__main__":
    unittest.main()
