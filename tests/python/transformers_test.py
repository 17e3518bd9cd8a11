"""Networks of the transformers package, one layer deep: through torch.compile and cleave.optimize they agree with eager, with
other batches and lengths through the same compilation. `tools/conformance models` runs more of them. Skipped where
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
    def agrees(self, *arguments):
        result = models.check(*arguments, layers=1, points=((2, 9), (3, 17)))
        self.assertTrue(result["ok"], result)

    def test_torch_compile(self):
        self.agrees("gpt2", "compile", "float32")
        self.agrees("mixtral", "compile", "float32")

    def test_half_precision(self):
        self.agrees("llama", "compile", "bfloat16")

    def test_optimize(self):
        self.agrees("bert", "optimize", "float32")


if __name__ == "__main__":
    unittest.main()
