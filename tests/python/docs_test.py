"""The Python snippets of the README and the documents run, those of one file in order and in one interpreter."""

import os
import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def snippets():
    """{file: its blocks}"""
    out = {}
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        blocks = re.findall(r"^```python\n(.*?)^```$", file.read_text(), re.M | re.S)
        if blocks:
            out[file] = blocks
    return out


class Snippets(unittest.TestCase):
    def test_they_run(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            torch = None
        here, found = os.getcwd(), snippets()
        self.assertGreaterEqual(len(found[ROOT / "docs/python.md"]), 3)
        for file, blocks in found.items():
            with self.subTest(file.name), tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                os.symlink(ROOT / "examples", "examples")
                try:
                    names = {}
                    for block in blocks:
                        if torch is None and "torch" in block:
                            continue
                        exec(compile(block, str(file), "exec"), names)
                finally:
                    os.chdir(here)


if __name__ == "__main__":
    unittest.main()
