"""Installs the build into a fresh prefix, builds the C++ and the C example from it alone, and runs both."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["CLEAVE_BUILD"])


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
        cls.environment = dict(os.environ, PKG_CONFIG_PATH=str(next(cls.prefix.rglob("pkgconfig"))),
                               LD_LIBRARY_PATH=str(next(cls.prefix.rglob("libcleave.so")).parent))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_cpp_then_c(self):
        run(["cmake", "-S", ROOT / "examples/cpp", "-B", self.at / "cpp", f"-DCMAKE_PREFIX_PATH={self.prefix}"])
        run(["cmake", "--build", self.at / "cpp"])
        artefact = self.at / "artefact"
        out = run([self.at / "cpp/attention", artefact, "20c"], env=self.environment)
        self.assertIn("row 0 is 15.5", out)
        self.assertTrue((artefact / "manifest.json").exists())

        run(["make", "-C", ROOT / "examples/c", f"BUILD={self.at}"], env=self.environment)
        out = run([self.at / "run_artefact", artefact], env=self.environment)
        self.assertEqual(out.strip(), "O[0] = 1")
        # An artefact that is not there: a status and a text, no crash.
        done = subprocess.run([self.at / "run_artefact", self.at / "nothing"], env=self.environment,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("error[CLV3001]", done.stderr)

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
