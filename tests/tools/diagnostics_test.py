"""Every message of src/base/diagnostics.def has a test that names it: by code name or by number."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Diagnostics(unittest.TestCase):
    def test_every_code_is_named_by_a_test(self):
        table = (ROOT / "src/base/diagnostics.def").read_text()
        codes = re.findall(r"^DIAGNOSTIC\((\w+),\s*(\d+)", table, re.M)
        self.assertGreater(len(codes), 40)
        here = pathlib.Path(__file__)
        tests = "".join(
            p.read_text()
            for p in sorted((ROOT / "tests").rglob("*"))
            if p.suffix in (".cpp", ".hpp", ".py") and p != here
        )
        missing = [
            name
            for name, number in codes
            if not re.search(rf"\b{name}\b|CLV0*{number}\b", tests)
        ]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
