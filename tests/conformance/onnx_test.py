"""The node tests that Debian's libonnx-testdata holds, through the compiled pipeline: enough of them pass, none fails, and
what is refused is refused by name. A test with a wrong expectation is noticed."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNNER = os.environ["ONNX_CONFORMANCE"]
DATA = Path("/usr/share/libonnx-testdata/data/node")


def conformance(data, code):
    done = subprocess.run([sys.executable, ROOT / "tools/conformance", "onnx", "--data", data, "--json", "--runner", RUNNER],
                          capture_output=True, text=True, timeout=900)
    if done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


@unittest.skipUnless(DATA.is_dir(), "libonnx-testdata is not installed")
class NodeTests(unittest.TestCase):
    def test_all(self):
        result = conformance(DATA, 0)
        self.assertGreaterEqual(result["passed"], 550)
        self.assertEqual(result["failed"], [])
        self.assertEqual(result["passed"] + sum(result["refused"].values()), result["tests"])
        for name in ("LSTM", "Loop", "NonZero", "type STRING"):
            self.assertTrue(any(name in reason for reason in result["refused"]), name)

    def test_what_is_wrong_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            at = Path(folder)
            shutil.copytree(DATA / "test_add", at / "wrong")
            shutil.copytree(DATA / "test_tanh", at / "right")
            data = at / "wrong/test_data_set_0"
            shutil.copy(data / "input_0.pb", data / "output_0.pb")
            shutil.copytree(DATA / "test_sub", at / "torn")
            (at / "torn/model.onnx").write_bytes((at / "torn/model.onnx").read_bytes()[:40])
            result = conformance(at, 1)
            self.assertEqual((result["passed"], result["failed"]), (1, ["torn", "wrong"]))


if __name__ == "__main__":
    unittest.main()
