"""Installs the build into a fresh prefix, builds the C++ and the C example from it alone, and runs both."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["CLEAVE_BUILD"])


def snippets(file, language):
    """The blocks of this language in a document."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / file).read_text(), re.M | re.S)


def snippet(file, language):
    (block,) = snippets(file, language)
    return block


def run(command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=280, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


class InstalledPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.at = Path(cls.folder.name)
        run(["cmake", "--install", BUILD, "--prefix", cls.at / "first"])
        # An installation can be moved.
        (cls.at / "first").rename(cls.at / "prefix")
        cls.prefix = cls.at / "prefix"
        cls.lib = next(cls.prefix.glob("lib*"))
        # Where the system has no compiler by the usual names, the one that built this is it.
        names = cls.at / "bin"
        names.mkdir()
        for name, own in (("cc", "clang-19"), ("c++", "clang++-19")):
            if not shutil.which(name):
                (names / name).symlink_to(shutil.which(own))
        cls.path = f"{os.environ['PATH']}:{names}"
        cls.environment = dict(os.environ, PATH=cls.path, PKG_CONFIG_PATH=str(next(cls.prefix.rglob("pkgconfig"))),
                               LD_LIBRARY_PATH=str(next(cls.prefix.rglob("libcleave.so")).parent))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_cpp_then_c(self):
        # The commands of docs/library.md, where the package is installed here.
        shutil.copytree(ROOT / "examples/cpp", self.at / "examples/cpp")
        shutil.copytree(ROOT / "examples/c", self.at / "examples/c")
        cpp, c = (block.replace("/opt/cleave/lib/pkgconfig", self.environment["PKG_CONFIG_PATH"]).replace("/opt/cleave", str(self.prefix))
                  for block in snippets("library.md", "sh"))
        out = run(["sh", "-ec", cpp], cwd=self.at, env=self.environment)
        self.assertIn("row 0 is 15.5", out)
        artefact = self.at / "out/attention"
        self.assertTrue((artefact / "manifest.json").exists())
        out = run(["sh", "-ec", c], cwd=self.at, env=self.environment)
        self.assertIn("O[0] = 1", out.splitlines())
        # The C of docs/standalone.md, on the artefact's own library.
        include, body = snippet("standalone.md", "c").split("\n\n", 1)
        (self.at / "main.c").write_text(f"""#include <stdio.h>
{include}
static float Q[2 * 32 * 16], K[2 * 32 * 16], V[2 * 32 * 16], O[2 * 32 * 16];
int main(void) {{
  for (int i = 0; i < 2 * 32 * 16; ++i) V[i] = 3;
  {body}
  printf("%g\\n", O[0]);
  return status;
}}
""")
        optimise, compile_it = snippet("standalone.md", "sh").splitlines()
        self.assertIn("-o out/attention", optimise)  # which the C++ example made
        run(["sh", "-ec", compile_it], cwd=self.at, env=dict(os.environ, PATH=self.path))
        self.assertEqual(run([self.at / "main"], cwd=self.at).strip(), "3")
        # An artefact that is not there: a status and a text, no crash.
        done = subprocess.run([self.at / "examples/c/run_artefact", self.at / "nothing"], env=self.environment,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("error[CLV3001]", done.stderr)

    def test_the_program_of_the_documents(self):
        (self.at / "rows.cpp").write_text(snippet("library.md", "cpp"))
        flags = run(["pkg-config", "--cflags", "--libs", "cleave"], env=self.environment).split()
        run(["clang++-19", "-std=c++20", self.at / "rows.cpp", "-o", self.at / "rows", *flags])
        out = run([self.at / "rows"], env=self.environment)
        self.assertEqual(out, "5 rows of 0.0625\n700 rows of 0.0625\n1 compilation\n")
        lines = [line.strip() for line in (ROOT / "examples/cpp/CMakeLists.txt").read_text().splitlines()]
        for line in snippet("library.md", "cmake").splitlines():
            self.assertIn(line.replace("program", "attention"), lines)

    def test_the_command_is_there_and_only_our_names_are_exported(self):
        self.assertTrue((self.prefix / "bin/cleave").exists())
        names = run(["nm", "-DC", "--defined-only", next(self.prefix.rglob("libcleave.so"))])
        for line in names.splitlines():
            name = line.split(maxsplit=2)[2]
            own = "cleave" in name or name.startswith("std::") or " std::" in name
            self.assertTrue(own and "llvm" not in name and "protobuf" not in name, name)
            self.assertNotIn("cleave::graph::", name)


if __name__ == "__main__":
    unittest.main()
