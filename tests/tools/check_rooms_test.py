"""tools/check_rooms finds each kind of violation in a small made-up tree, and accepts the tree without it."""

import importlib.machinery
import importlib.util
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOADER = importlib.machinery.SourceFileLoader("check_rooms", str(ROOT / "tools" / "check_rooms"))
SPEC = importlib.util.spec_from_loader("check_rooms", LOADER)
check_rooms = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(check_rooms)

TABLE = """
room(base LIBS Threads::Threads)
room(types USES base)
room(graph USES types LIBS ${X})   # a comment with room(fake USES nothing)
room(emit/c USES types)
room(driver USES graph emit/c)
"""
ARCHITECTURE = """
| room | uses | what |
|---|---|---|
| base | - | ground |
| types | base | dtypes |
| graph | types | graphs |
| emit/c | types | C |
| driver | graph, emit/c | all |
| cli | driver | the command |
"""


class CheckRooms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.write("src/CMakeLists.txt", TABLE)
        self.write("ARCHITECTURE.md", ARCHITECTURE)
        self.write("src/base/id.hpp", "#pragma once\n")
        self.write("src/types/dtype.hpp", '#include "base/id.hpp"\n')
        self.write("src/graph/graph.hpp", '#include "types/dtype.hpp"\n#include "base/id.hpp"\n#include <vector>\n')
        self.write("src/emit/c/emit.cpp", '#include "types/dtype.hpp"\n')
        self.write("src/cli/main.cpp", '#include <CLI/CLI.hpp>\n#include "graph/graph.hpp"\n')

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def errors(self):
        return check_rooms.check(self.root)[0]

    def test_accepts_direct_and_transitive_use(self):
        self.assertEqual(self.errors(), [])

    def test_refuses_an_include_against_the_arrow(self):
        self.write("src/types/bad.cpp", '\n#include "graph/graph.hpp"\n')
        self.assertEqual(len(self.errors()), 1)
        self.assertIn("src/types/bad.cpp:2: room `types` may not include `graph/graph.hpp`", self.errors()[0])

    def test_refuses_a_sibling_that_is_not_used(self):
        self.write("src/emit/c/bad.cpp", '#include "graph/graph.hpp"\n')
        self.assertIn("it does not use `graph`", self.errors()[0])

    def test_refuses_a_circle(self):
        self.write("src/CMakeLists.txt", TABLE.replace("room(types USES base)", "room(types USES base graph)"))
        self.write("ARCHITECTURE.md", ARCHITECTURE.replace("| types | base |", "| types | base graph |"))
        self.assertTrue(any("in a circle" in e for e in self.errors()))

    def test_refuses_an_unknown_room_in_the_table(self):
        self.write("src/CMakeLists.txt", TABLE.replace("room(types USES base)", "room(types USES base gone)"))
        self.assertTrue(any("`gone`, which is no room" in e for e in self.errors()))

    def test_refuses_a_folder_outside_the_table(self):
        self.write("src/stray/a.cpp", "")
        self.assertIn("src/stray/a.cpp: its folder is no room", self.errors()[0])

    def test_refuses_an_architecture_table_that_differs(self):
        self.write("ARCHITECTURE.md", ARCHITECTURE.replace("| graph | types |", "| graph | base |"))
        self.assertIn("ARCHITECTURE.md: `graph` uses", self.errors()[0])
        self.write("ARCHITECTURE.md", ARCHITECTURE.replace("| graph | types | graphs |\n", ""))
        self.assertIn("no row for room `graph`", self.errors()[0])
        self.write("ARCHITECTURE.md", ARCHITECTURE + "| attic | - | old |\n")
        self.assertIn("`attic` is no room", self.errors()[0])

    def test_refuses_quarantined_headers(self):
        self.write("src/graph/a.cpp", "#include <regex>\n")
        self.write("src/graph/b.cpp", '#include "llvm/IR/Module.h"\n')
        self.assertEqual(len(self.errors()), 2)

    def test_refuses_missing_files_and_files_beyond_the_cap(self):
        self.write("src/graph/a.cpp", '#include "graph/gone.hpp"\n')
        self.write("src/graph/b.cpp", "\n" * 801)
        self.assertIn("does not exist", self.errors()[0])
        self.assertIn("801 lines", self.errors()[1])

    def test_the_real_tree_keeps_to_its_table(self):
        self.assertEqual(check_rooms.check(ROOT)[0], [])


if __name__ == "__main__":
    unittest.main()
