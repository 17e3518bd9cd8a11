"""tools/make_weights writes exactly what its recipe says, the same every time."""

import importlib.machinery
import importlib.util
import struct
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOADER = importlib.machinery.SourceFileLoader("make_weights", str(ROOT / "tools" / "make_weights"))
SPEC = importlib.util.spec_from_loader("make_weights", LOADER)
make_weights = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(make_weights)


class MakeWeights(unittest.TestCase):
    def test_places_tensors_at_aligned_offsets_with_their_range(self):
        with tempfile.TemporaryDirectory() as folder:
            recipe = Path(folder) / "m.weights.txt"
            recipe.write_text("# comment\na 17 0.5 0\nb 1000 0.25 1 # gain\n")
            rows, size = make_weights.read_recipe(recipe)
            self.assertEqual([(r[0], r[4]) for r in rows], [("a", 0), ("b", 128)])
            data = make_weights.write(recipe).read_bytes()
            self.assertEqual(len(data), size)
            a = struct.unpack_from("<17f", data, 0)
            b = struct.unpack_from("<1000f", data, 128)
            self.assertTrue(all(-0.5 <= x < 0.5 for x in a))
            self.assertTrue(all(0.75 <= x < 1.25 for x in b))
            self.assertGreater(max(b) - min(b), 0.45)
            self.assertAlmostEqual(sum(b) / 1000, 1.0, delta=0.03)

    def test_a_tensor_depends_on_its_name_only(self):
        self.assertEqual(make_weights.tensor("w", 8, 1, 0), make_weights.tensor("w", 16, 1, 0)[:32])
        self.assertNotEqual(make_weights.tensor("w", 8, 1, 0), make_weights.tensor("v", 8, 1, 0))
        # Frozen: the committed model's reference values belong to these numbers.
        self.assertEqual(list(make_weights.uniform("w", 4)), FROZEN)


FROZEN = [-28541, -29414, -15971, -6318]

if __name__ == "__main__":
    unittest.main()
