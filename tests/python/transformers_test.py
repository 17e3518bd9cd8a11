"""Networks of the transformers package: one layer of each through torch.compile, and one through cleave.optimize, agree with
eager, with other batches and lengths through the same compilation. `tools/conformance models` runs more of them. Skipped where
the package is not installed."""

import sys
import unittest
from pathlib import Path

try:
    import torch  # noqa: F401
    import transformers
except ImportError:
    raise unittest.SkipTest("torch and transformers are not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from suites import models  # noqa: E402

transformers.logging.set_verbosity_error()


class Networks(unittest.TestCase):
    def test_torch_compile(self):
        for name in models.NAMES:
            with self.subTest(name):
                result = models.check(name, "compile", "float32", layers=1)
                self.assertTrue(result["ok"], result)

    def test_half_precision(self):
        result = models.check("llama", "compile", "bfloat16", layers=1)
        self.assertTrue(result["ok"], result)

    def test_optimize(self):
        result = models.check("bert", "optimize", "float32", layers=1)
        self.assertTrue(result["ok"], result)


if __name__ == "__main__":
    unittest.main()
