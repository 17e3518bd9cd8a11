"""The documents are true: every fenced block is run by a test, and what indented blocks show of the languages and of the
command exists."""

import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLEAVE = Path(os.environ.get("CLEAVE", ROOT / "build/bin/cleave"))
DOCUMENTS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").rglob("*.md"))

# The test that runs the fenced blocks of a language in a document.
RUN_BY = {
    ("README.md", "sh"): "tests/tools/readme_test.py",
    ("README.md", "text exact"): "tests/tools/readme_test.py",
    ("README.md", "text"): "",  # depends on the machine
    ("docs/python.md", "python"): "tests/python/docs_test.py",
    ("docs/library.md", "sh"): "tests/install/install_test.py",
    ("docs/library.md", "cpp"): "tests/install/install_test.py",
    ("docs/library.md", "cmake"): "tests/install/install_test.py",
    ("docs/standalone.md", "sh"): "tests/install/install_test.py",
    ("docs/standalone.md", "c"): "tests/install/install_test.py",
    ("docs/leir.md", "text"): "tests/cli/leir_test.py",
    ("docs/suite.md", "json"): "tests/cli/algebra_test.py",
}


def fences(text):
    """The info strings of a document's fenced blocks."""
    return re.findall(r"^ *```(.*)$", text, re.M)[::2]


def indented(text):
    """Blocks of lines that are indented by four, outside of fences and lists."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [re.sub(r"^    ", "", b, flags=re.M) for b in re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", text, re.M)]


def commands(text):
    """(verb, options) of each command line of ours in a document's blocks."""
    lines = "\n".join(indented(text) + re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)).splitlines()
    for line in lines:
        for part in re.split(r"&&|\|", line):
            found = re.match(r"\s*(?:build/bin/)?cleave (\w+)(.*)", part)
            if found:
                yield found.group(1), re.findall(r"(?<!\S)--[\w-]*\w", found.group(2).split("#")[0])


class Documents(unittest.TestCase):
    def test_every_fenced_block_is_run_by_a_test(self):
        for file in DOCUMENTS:
            name = str(file.relative_to(ROOT))
            for language in fences(file.read_text()):
                self.assertIn((name, language), RUN_BY, f"{name} has a block of `{language}` that no test runs")
        for (name, language), test in RUN_BY.items():
            self.assertIn(language, fences((ROOT / name).read_text()), f"{name} has no block of `{language}`")
            if test:
                self.assertIn(Path(name).name.split(".")[0].lower(), (ROOT / test).read_text().lower(), f"{test} does not speak of {name}")

    @unittest.skipUnless(CLEAVE.exists(), "the command is not built")
    def test_commands_have_the_verbs_and_options_that_are_shown(self):
        helps, seen = {}, 0
        for file in DOCUMENTS:
            for verb, options in commands(file.read_text()):
                if verb not in helps:
                    done = subprocess.run([CLEAVE, verb, "-h"], capture_output=True, text=True, timeout=60)
                    self.assertEqual(done.returncode, 0, f"{file.name}: cleave {verb}")
                    helps[verb] = done.stdout
                    for action in re.findall(r"^  (\w+) ", done.stdout, re.M):  # verbs of verbs
                        helps[verb] += subprocess.run([CLEAVE, verb, action, "-h"], capture_output=True, text=True, timeout=60).stdout
                for option in options:
                    seen += 1
                    self.assertTrue(re.search(rf"{option}\b", helps[verb]), f"{file.name}: cleave {verb} {option}")
        self.assertGreater(seen, 10)

    @unittest.skipUnless(CLEAVE.exists(), "the command is not built")
    def test_graphs_that_are_shown_are_read(self):
        graphs = 0
        for file in DOCUMENTS:
            for block in indented(file.read_text()):
                if not re.match(r"graph \w+ \{", block) or not re.search(r"^\}$", block, re.M):
                    continue
                done = subprocess.run([CLEAVE, "show", "-"], input=block, capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, f"{file.name}:\n{block}\n{done.stderr}")
                graphs += 1
        self.assertGreaterEqual(graphs, 1)

    def test_faults_in_documents_are_seen(self):
        self.assertEqual(fences("a\n```python\nx\n```\nb\n```sh\ny\n```\n"), ["python", "sh"])
        self.assertEqual(list(commands("a:\n\n    cleave run out --dim S=3 | cat\n\nb\n\n```sh\nbuild/bin/cleave show x --nonsense\n```\n")),
                         [("run", ["--dim"]), ("show", ["--nonsense"])])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
