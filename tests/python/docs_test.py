"""The snippets of docs/python.md run, in order, in one interpreter."""

import os
import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Snippets(unittest.TestCase):
    def test_they_run(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            torch = None
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            os.symlink(ROOT / "examples", "examples")
            try:
                names = {}
                blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S)
                self.assertGreaterEqual(len(blocks), 3)
                for block in blocks:
                    if torch is None and "torch" in block:
                        continue
                    exec(compile(block, "docs/python.md", "exec"), names)
            finally:
                os.chdir(here)


if __name__ == "__main__":
    unittest.main()
