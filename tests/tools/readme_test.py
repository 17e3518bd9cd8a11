"""The README's example is true: its commands run, and the outputs that it calls exact are what the command prints.

A ```sh block holds commands (one a line); those of `make` are left to other tests. `--budget 60s` becomes `--deterministic`,
which verifies what the cost model likes best and times nothing. A block
```text exact that follows is an excerpt: its lines occur in the first command's output in this order, `...` standing for
any number of lines. Other ```text blocks depend on the machine.
"""

import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLEAVE = Path(os.environ.get("CLEAVE", ROOT / "build/bin/cleave"))
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks():
    """[(commands, exact excerpt or None)] in the order of the README."""
    out = []
    for kind, info, body in BLOCK.findall((ROOT / "README.md").read_text()):
        if kind == "sh":
            out.append(([line for line in body.splitlines() if line and not line.startswith("make")], None))
        elif kind == "text" and info.strip() == "exact":
            out[-1] = (out[-1][0], body)
    return out


def first_difference(excerpt, output):
    """The first line of the excerpt that is not where it should be, or None."""
    lines, at, gap = output.splitlines(), 0, True
    for wanted in excerpt.splitlines():
        if wanted.strip() == "...":
            gap = True
            continue
        found = next((i for i in range(at, len(lines) if gap else min(at + 1, len(lines))) if lines[i] == wanted), None)
        if found is None:
            return wanted
        at, gap = found + 1, False
    return None


class Readme(unittest.TestCase):
    def test_says_the_two_commands(self):
        text = (ROOT / "README.md").read_text()
        self.assertIn("make demo", text)
        self.assertIn("make test", text)

    def test_has_an_example_through_every_stage(self):
        commands = "\n".join(line for lines, _ in blocks() for line in lines)
        for stage in ["graph", "stabilised", "itgraph", "tile", "vec", "asm"]:
            self.assertRegex(commands, rf"--stage {stage}\b")
        for verb in ["optimize", "run", "check", "bench"]:
            self.assertIn(f"cleave {verb} ", commands)
        self.assertGreaterEqual(sum(excerpt is not None for _, excerpt in blocks()), 2)

    def test_names_files_that_exist(self):
        text = (ROOT / "README.md").read_text()
        for name in re.findall(r"\]\(([^)#]+)\)|(examples/[\w.]+)", text):
            name = name[0] or name[1]
            if "://" not in name:
                self.assertTrue((ROOT / name).exists(), name)

    def test_finds_an_excerpt_that_is_wrong(self):
        self.assertIsNone(first_difference("a\nb\n...\nd\n", "x\na\nb\nc\nd\n"))
        self.assertEqual(first_difference("a\nc\n", "a\nb\nc\n"), "c")
        self.assertEqual(first_difference("b\n...\na\n", "a\nb\n"), "a")

    @unittest.skipUnless(CLEAVE.exists(), "the command is not built")
    def test_shows_commands_that_run_and_print_what_it_says(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "examples").symlink_to(ROOT / "examples")
            for commands, excerpt in blocks():
                for number, line in enumerate(commands):
                    words = shlex.split(line, comments=True)
                    self.assertEqual(words[0], "build/bin/cleave", line)
                    words[0] = str(CLEAVE)
                    if "--budget" in words:
                        at = words.index("--budget")
                        words[at : at + 2] = ["--deterministic"]
                    if words[1] != "check":
                        words += ["--cache-dir", folder + "/cache"]
                    with self.subTest(command=line):
                        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=110)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        self.assertGreater(len(done.stdout), 0)
                        if excerpt and number == 0:
                            self.assertIsNone(first_difference(excerpt, done.stdout))


if __name__ == "__main__":
    unittest.main()
