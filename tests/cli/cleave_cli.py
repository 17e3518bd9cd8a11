"""What the tests of the command share: running it, and small inputs."""

import json
import math
import os
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLEAVE = os.environ.get("CLEAVE", str(ROOT / "build/bin/cleave"))

TINY = """graph tiny {
  dim S in 0..64
  input Q: f32[2, S, 8]
  input K: f32[2, S, 8]
  input V: f32[2, S, 8]
  const W: f32[8, 16] = normal(seed=3, scale=0.25)
  P = softmax(mul(contract("b s d, b l d -> b s l", Q, K), 0.5), axis=-1)
  O = contract("b s l, b l d -> b s d", P, V)
  output Y = contract("b s d, d n -> b s n", O, W)
}
"""


class CliTest(unittest.TestCase):
    """One temporary folder a test; the cache of the machine's measurement is shared by all."""

    cache = tempfile.gettempdir() + f"/cleave-cli-test-cache-{os.getuid()}"

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def enterContext(self, context):  # of unittest since Python 3.11
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def file(self, name, content):
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        return str(path)

    def npy(self, name, shape, values=None):
        """An array of f32 that counts from 0, or has the values given."""
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({''.join(f'{n}, ' for n in shape)})}}".encode()
        header += b" " * (117 - len(header)) + b"\n"
        return self.file(name, b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header +
                         struct.pack(f"<{math.prod(shape)}f", *(values or range(math.prod(shape)))))

    def cleave(self, *arguments, stdin=None, timeout=120, environment=None):
        # What a test tunes is remembered in the test alone.
        env = dict(os.environ, CLEAVE_CACHE_DIR=self.cache, CLEAVE_DB=str(self.folder / "tunings.db"), NO_COLOR="1")
        env.update(environment or {})
        return subprocess.run([CLEAVE, *map(str, arguments)], input=stdin, capture_output=True, text=True,
                              timeout=timeout, cwd=self.folder, env=env)

    def ok(self, *arguments, **options):
        done = self.cleave(*arguments, **options)
        self.assertEqual(done.returncode, 0, f"cleave {arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def fails(self, code, text, *arguments, **options):
        done = self.cleave(*arguments, **options)
        self.assertEqual(done.returncode, code, f"cleave {arguments}\n{done.stdout}\n{done.stderr}")
        self.assertIn(text, done.stderr)
        return done

    def json(self, *arguments, **options):
        return json.loads(self.ok(*arguments, "--json", **options))


def main():
    unittest.main()
