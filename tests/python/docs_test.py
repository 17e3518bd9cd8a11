"""The Python snippets of the README and the documents run, those of one file in order and in one interpreter."""

import os
import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def snippets(text):
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


def run(file, blocks):
    """Beside the examples, in a folder of its own. Without PyTorch what needs it is left out."""
    try:
        import torch  # noqa: F401, PLC0415
    except ImportError:
        blocks = [b for b in blocks if "torch" not in b]
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.symlink(ROOT / "examples", "examples")
        try:
            names = {}
            for block in blocks:
                exec(compile(block, str(file), "exec"), names)
        finally:
            os.chdir(here)


class Snippets(unittest.TestCase):
    def test_they_run(self):
        count = 0
        for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
            text = file.read_text()
            blocks = snippets(text)
            self.assertEqual(len(blocks), len(re.findall(r"^\s*```\s*(?:python|py)\b", text, re.M)), f"{file.name}: a block is not closed")
            with self.subTest(file.name):
                run(file, blocks)
            count += len(blocks)
        self.assertGreaterEqual(count, 4)

    def test_a_broken_one_is_seen(self):
        text = (ROOT / "docs/python.md").read_text()
        for right, wrong in [("cleave.optimize(", "cleave.optimise("), ("g.rms_norm(x, axes=[-1]", "g.rms_norm(x, axis=[-1]")]:
            self.assertIn(right, text)
            block = next(b for b in snippets(text) if right in b)
            with self.subTest(wrong), self.assertRaises(Exception):
                run("python.md", ["import cleave, numpy as np\n", block.replace(right, wrong)])


if __name__ == "__main__":
    unittest.main()
