"""`cleave leir`: its verbs on texts and folders, what they print, and their exit codes."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest
import zipfile

CLEAVE = os.environ["CLEAVE"]
ROWS = "in A f32[2,3];\nout C f32[2];\nB^{2}_{tx=0}L^{3}_{a=0}[C^{f32,g}_{tx}=C^{f32,g}_{tx}+A^{f32,g}_{tx,a};];\n"


def run(*arguments, text=None):
    return subprocess.run([CLEAVE, "leir", *arguments], input=text, capture_output=True, text=True, timeout=120, check=False)


def npy(values, shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values)


def npz(path, compression=zipfile.ZIP_STORED, **arrays):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, (values, shape) in arrays.items():
            archive.writestr(f"{name}.npy", npy(values, shape))


class Leir(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def case(self, outputs, compression=zipfile.ZIP_STORED):
        (self.folder / "prog.leir").write_text(ROWS)
        npz(self.folder / "inputs.npz", compression, A=([1, 2, 3, 4, 5, 6], (2, 3)))
        npz(self.folder / "outputs.npz", compression, C=(outputs, (2,)))
        return str(self.folder)

    def test_parse_prints_the_canonical_form(self):
        spaced = ROWS.replace("=", " = ").replace("+", " + ")
        r = run("parse", "-", text=spaced)
        self.assertEqual((r.returncode, r.stdout), (0, ROWS), r.stderr)
        self.assertEqual(run("parse", "-", "--compact", text=ROWS).stdout, ROWS.split(";\n", 2)[2])

    def test_errors_have_a_caret(self):
        r = run("check", "-", text=ROWS.replace("_{tx,a}", "_{tx,a+1}"))
        self.assertEqual(r.returncode, 3)
        self.assertIn("error[CLV8026]", r.stderr)
        self.assertIn("^^^", r.stderr)
        self.assertIn("<stdin>:3:", r.stderr)
        r = run("check", "-", "--json", text="L")
        self.assertEqual(json.loads(r.stdout)["schema"], "cleave.error/1")

    def test_messages_show_bytes_and_ways_out(self):
        # Known variables are written with their type.
        text = "in A f32[4];\nin N i32[] range 1..4;\nout C f32[4];\nL^{%s}_{a=0}[C^{f32,g}_{a}=%s;];\n"
        self.assertIn("hint: write `N^{i32,g}`\n", run("check", "-", text=text % ("N", "1")).stderr)
        self.assertIn("hint: write `A^{f32,g}_{..}`\n", run("check", "-", text=text % ("4", "A_{a}")).stderr)
        # What is no character is escaped, and the caret stands under it.
        line = b"L^{4}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a}\xff\x1b;];"
        r = subprocess.run([CLEAVE, "leir", "check", "-"], input=b"in A f32[4];\nout C f32[4];\n# \xc3\xa9\n" + line,
                           capture_output=True, timeout=120, check=False)  # fmt: skip
        shown = r.stderr.decode("utf-8").split("\n")
        self.assertIn("0xff", shown[0])
        self.assertEqual(shown[1], "  L^{4}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a}\\xff\\x1b;];")
        self.assertEqual(shown[2], "  " + " " * line.index(b"\xff") + "^^^^")

    def test_raise_prints_a_graph_that_is_equal(self):
        r = run("raise", "-", "--check", text=ROWS)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("sum(A, axes=[1])", r.stdout)
        self.assertIn("# the graph equals the program", r.stdout)
        r = run("raise", "-", "--json", "--check", text=ROWS)
        self.assertEqual(json.loads(r.stdout)["verdict"], "the graph equals the program")
        r = run("raise", "-", text="in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C^{f32,g}_{a}=if_then_else(a<1,0,C^{f32,g}_{a-1})*2+A^{f32,g}_{a};];\n")
        self.assertEqual(r.returncode, 3)
        self.assertIn("error[CLV8050]: no graph can be made: `C^{f32,g}_{a}=", r.stderr)
        self.assertIn("^^^", r.stderr)

    def test_raise_compares_what_is_stored_where_types_overflow(self):
        for dtype, large in (("bf16", "3e38"), ("f16", "6e4")):
            text = f"in A {dtype}[4];\nout C {dtype}[4];\nout E {dtype}[4];\nL^{{4}}_{{a=0}}[C^{{{dtype},g}}_{{a}}=A^{{{dtype},g}}_{{a}}*0+(a+1)*{large};];\n"
            text += f"L^{{4}}_{{a=0}}[E^{{{dtype},g}}_{{a}}=1/C^{{{dtype},g}}_{{a}}+A^{{{dtype},g}}_{{a}};];\n"
            r = run("raise", "-", "--check", text=text)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn("# the graph equals the program", r.stdout)

    def test_programs_are_optimised_like_graphs(self):
        file = self.folder / "rows.leir"
        file.write_text(ROWS.replace("[2,3]", "[64,96]").replace("[2]", "[64]").replace("^{2}", "^{64}").replace("^{3}", "^{96}"))
        r = subprocess.run([CLEAVE, "optimize", str(file), "--budget", "2c", "--threads", "1", "--json", "--no-cache"],
                           capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertTrue(json.loads(r.stdout)["schema"].startswith("cleave.result/"))
        r = run("bench", str(file), "--raised", "--pairs", "3", "--budget", "2c", "--json", "--cache-dir", str(self.folder))
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertGreater(json.loads(r.stdout)["raised_ms"], 0)

    def test_check_prints_shapes(self):
        r = run("check", "-", "--json", text=ROWS)
        self.assertEqual(json.loads(r.stdout)["variables"][1]["shape"], [2])
        self.assertNotEqual(run("check", "-", "--key", text=ROWS).stdout, "")

    def test_known_variables_may_come_from_a_file(self):
        known = self.folder / "known.json"
        known.write_text(json.dumps([{"name": "A", "role": "in", "dtype": "f32", "shape": [2, 3]},
                                     {"name": "C", "role": "out", "dtype": "f32", "shape": [2]}]))  # fmt: skip
        body = ROWS.split(";\n", 2)[2]
        self.assertEqual(run("check", "-", "--known", str(known), text=body).returncode, 0)
        self.assertIn("CLV8035", run("check", "-", text=body).stderr)
        known.write_text("{}")
        self.assertIn("CLV8010", run("check", "-", "--known", str(known), text=body).stderr)

    def test_run_compares_with_stored_outputs(self):
        for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            for via in ("interpreter", "jit"):
                r = run("run", self.case([6, 15], compression), "--check", "--via", via)
                self.assertEqual(r.returncode, 0, r.stderr)
                self.assertIn("equal to the stored outputs", r.stdout)
                r = run("run", self.case([6, 15.01], compression), "--check", "--via", via)
                self.assertEqual(r.returncode, 4)
                self.assertIn("CLV8042", r.stderr)

    def test_integers_are_printed_and_compared_in_full(self):
        big = 2**53 + 1
        text = "out C i64[2];\nout D u64[2];\nL^{2}_{a=0}[C^{i64,g}_{a}=%d-a;D^{u64,g}_{a}=C^{i64,g}_{a}*2047;];\n" % big
        self.assertIn(f"C i64[2]: {big} {big - 1}\n", run("run", "-", text=text).stdout)
        self.assertIn(f"D u64[2]: {big * 2047} {(big - 1) * 2047}\n", run("run", "-", text=text).stdout)
        # 64 unsigned bits in files, and stored outputs that differ in the last of them.
        folder = self.folder
        (folder / "prog.leir").write_text("in A u64[2];\nout C u64[2];\nL^{2}_{a=0}[C^{u64,g}_{a}=A^{u64,g}_{a}+1;];\n")
        header = npy([], (2,)).replace(b"<f4", b"<u8")

        def store(name, variable, values):
            with zipfile.ZipFile(folder / name, "w") as archive:
                archive.writestr(f"{variable}.npy", header + struct.pack("<2Q", *values))

        store("inputs.npz", "A", (2**64 - 2, 5))
        for last, code in ((6, 0), (7, 4)):
            store("outputs.npz", "C", (2**64 - 1, last))
            for via in ("interpreter", "jit"):
                r = run("run", str(folder), "--check", "--via", via, "--outputs", str(folder / "y.npz"))
                self.assertEqual(r.returncode, code, r.stderr)
        self.assertIn("element 1 is 6, expected is 7", r.stderr)
        store("outputs.npz", "C", (2**64 - 2, 6))
        self.assertIn(f"element 0 is {2**64 - 1}, expected is {2**64 - 2}", run("run", str(folder), "--check").stderr)
        store("outputs.npz", "C", (2**64 - 1, 6))
        self.assertEqual(run("run", str(folder), "--outputs", str(folder / "y.npz")).returncode, 0)
        with zipfile.ZipFile(folder / "y.npz") as archive:
            self.assertEqual(struct.unpack("<2Q", archive.read("C.npy")[-16:]), (2**64 - 1, 6))
            self.assertIn(b"'<u8'", archive.read("C.npy"))

    def test_steps_are_bounded_however_a_program_runs(self):
        endless = "out C f32[1];\nL^{1000000000}_{a=0}L^{1000000000}_{c=0}L^{1}_{d=0}[C^{f32,g}_{d}=1;];\n"
        for via in ("interpreter", "jit", "c", "cuda"):
            r = run("run", "-", "--via", via, "--max-steps", "100000", text=endless)
            self.assertEqual(r.returncode, 3, via)
            self.assertRegex(r.stderr, r"error\[CLV8043\]: the program takes (more than 1|up to [0-9]{19,})[0]* steps; the limit is 100000\n", via)
            self.assertEqual(run("run", "-", "--via", via, "--max-steps", "60", text=ROWS).returncode, 0, via)
        for via in ("jit", "c"):  # far beyond the limit that holds without the option
            self.assertIn("error[CLV8043]", run("run", "-", "--via", via, text=endless).stderr)
        file = self.folder / "endless.leir"
        file.write_text(endless)
        self.assertIn("error[CLV8043]", run("verify", str(file), str(file)).stderr)

    def test_help_of_each_verb_leads_with_its_own_example(self):
        for verb in ("parse", "check", "run", "lower", "raise", "bench", "verify", "grammar"):
            self.assertTrue(run(verb, "-h").stdout.startswith(f"Example:\n  cleave leir {verb} "), verb)

    def test_dimensions_that_leave_nothing_are_refused_by_name(self):
        text = "in N i64[];\nin A f32[N];\nout C f32[N];\nP^{N^{i64,g}}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a};];\n"
        r = run("run", "-", "--dim", "N=0", text=text)
        self.assertEqual(r.returncode, 3)
        self.assertIn("the extent of `a`: it is 0, so the loop never runs", r.stderr)
        self.assertNotIn("never written", run("run", "-", "--dim", "N=-3", text=text).stderr)

    def test_dimensions_keep_to_what_is_declared(self):
        text = "in N %s;\nin A f32[9];\nout C f32[9];\nP^{9}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a}*N^{%s,g};];\n"
        for dtype, declared, value, why in (("i64", " range 1..9", 12, "has the value 12, declared are 1..9"),
                                            ("i8", "", 300, "has the value 300, which no i8 has"),
                                            ("u64", "", -1, "has the value -1, which no u64 has")):  # fmt: skip
            program = text % (dtype + "[]" + declared, dtype)
            for verb in ("check", "run", "lower"):
                r = run(verb, "-", f"--dim=N={value}", text=program)
                self.assertEqual(r.returncode, 3, r.stderr)
                self.assertIn(f"error[CLV8040]: input `N`: {why}", r.stderr)
            self.assertEqual(run("run", "-", "--dim", "N=9", text=program).returncode, 0)

    def test_run_writes_what_it_reads(self):
        out = self.folder / "y.npz"
        r = run("run", self.case([6, 15]), "--outputs", str(out), "--errors", str(self.folder / "e.npz"), "--f64")
        self.assertEqual(r.returncode, 0, r.stderr)
        with zipfile.ZipFile(out) as archive:
            self.assertIsNone(archive.testzip())
            self.assertEqual(struct.unpack("<2d", archive.read("C.npy")[-16:]), (6, 15))

    def test_run_refuses_damaged_archives(self):
        folder = self.case([6, 15])
        whole = (self.folder / "inputs.npz").read_bytes()
        for length in (0, 10, len(whole) // 2, len(whole) - 30):
            (self.folder / "inputs.npz").write_bytes(whole[:length])
            r = run("run", folder)
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertIn("error[CLV3020]", r.stderr)

    def test_dimensions_are_bound(self):
        text = "in A f32[N];in N i64[];out C f32[N];L^{N^{i64,g}}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a};];"
        self.assertIn("CLV8036", run("check", "-", text=text).stderr)
        r = run("run", "-", "--dim", "N=4", text=text)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("C f32[4]", r.stdout)
        self.assertEqual(run("run", "-", "--dim", "N", text=text).returncode, 2)

    def test_says_what_failed_in_every_way_to_run(self):
        divide = "in A i32[2];\nin D i32[2] range 0..0;\nout C i32[2];\nP^{2}_{a=0}[C^{i32,g}_{a}=A^{i32,g}_{a}//D^{i32,g}_{a};];\n"
        outside = "in A f32[2];\nin I i64[2] range 5..5;\nout C f32[2];\nP^{2}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{I^{i64,g}_{a}-4};];\n"
        outside = outside.replace("range 5..5", "range 7..7")
        for via in ("interpreter", "jit", "c", "cuda"):
            r = run("run", "-", "--via", via, text=divide)
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertIn("error[CLV8044]: a division by 0 in `C^{i32,g}_{a}", r.stderr, via)
            self.assertNotIn("out of bounds", r.stderr, via)
            r = run("run", "-", "--via", via, text=outside)
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertNotIn("division", r.stderr, via)

    def test_dims_beside_files_and_sizes_that_no_memory_has(self):
        text = "in N i64[];\nin A f32[N];\nout C f32[N];\nP^{N^{i64,g}}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a}*2;];\n"
        case = pathlib.Path(self.case([6, 15])) / "inputs.npz"
        with zipfile.ZipFile(case) as z:
            self.assertIn("A.npy", z.namelist())
        huge = "in A f32[4000000000];\nout C f32[4000000000];\nP^{4000000000}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a};];\n"
        for via in ("interpreter", "jit"):
            r = run("run", "-", "--via", via, text=huge)
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertIn("bytes of variables", r.stderr)
        r = run("run", "-", "--dim", "N=4", text=text)
        self.assertEqual(r.returncode, 0, r.stderr)
        r = run("check", "-", text="in A f32[2];\nout C f32[2];\nP^{2}_{a=0}[C^{f32,g}_{a}=cbrt(A^{f32,g}_{a});];\n")
        self.assertIn("is no function", r.stderr)

    def test_writes_that_are_not_proved_are_checked(self):
        text = "in N i64[] range 1..9;\nout C f32[5];\nL^{5}_{a=0}[C^{f32,g}_{a}=0;];\nL^{N^{i64,g}}_{a=0}[C^{f32,g}_{a}=1;];\n"
        header = npy([], (1,)).replace(b"<f4", b"<i8").replace(b"(1,)", b"()  ")
        for n, code in ((5, 0), (6, 3)):
            with zipfile.ZipFile(self.folder / "n.npz", "w") as archive:
                archive.writestr("N.npy", header + struct.pack("<q", n))
            for via in ("interpreter", "jit", "c", "cuda"):
                r = run("run", "-", "--via", via, "--inputs", str(self.folder / "n.npz"), text=text)
                self.assertEqual(r.returncode, code, r.stderr)
                self.assertIn("warning[CLV8033]", r.stderr, via)
                self.assertEqual("error[CLV8041]: `C^{f32,g}_{a}` is out of bounds" in r.stderr, code != 0, r.stderr)
        # An extent that a condition chooses.
        text = "out C f32[2];\nL^{2}_{a=0}L^{if_then_else(a<1,1,2)}_{d=0}[C^{f32,g}_{a}=C^{f32,g}_{a}+d+1;];\n"
        for via in ("interpreter", "jit", "c", "cuda"):
            self.assertIn("C f32[2]: 1 3\n", run("run", "-", "--via", via, text=text).stdout, via)

    def test_verify_takes_every_mix_of_precisions(self):
        program = "in A {0}[2,3];\nout C {0}[2,3];\nB^{{2}}_{{tx=0}}L^{{3}}_{{a=0}}[M^{{{1},l}}=A^{{{0},g}}_{{tx,a}}*3;C^{{{0},g}}_{{tx,a}}=M^{{{1},l}}/7;];\n"
        for outer in ("f64", "f32", "f16", "bf16"):
            for one, other in (("f64", "f64"), ("f64", "f32"), ("f32", "f64"), ("f32", "f32")):
                with tempfile.TemporaryDirectory() as folder:
                    original = pathlib.Path(folder) / "a.leir"
                    original.write_text(program.format(outer, one))
                    r = run("verify", str(original), "-", "--json", text=program.format(outer, other))
                    self.assertEqual(r.returncode, 0, (outer, one, other, r.stdout, r.stderr))
                    found = json.loads(r.stdout)
                    self.assertEqual(found["verdict"], "equal")
                    if one == other:
                        self.assertTrue(found["bitwise"])
                    elif outer == "f64":
                        self.assertFalse(found["bitwise"])

    def test_verify_tells_rewritings_from_others(self):
        original = self.folder / "original.leir"
        original.write_text(ROWS)
        body = ROWS.split(";\n", 2)[2]
        # Without a header, its loops exchanged: what a model may answer.
        r = run("verify", str(original), "-", text="L^{3}_{a=0}L^{2}_{c=0}[C^{f32,g}_{c}=C^{f32,g}_{c}+A^{f32,g}_{c,a};];")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("equal, bit for bit (3 draws", r.stdout)
        r = run("verify", str(original), "-", "--json", text=body.replace("A^{f32,g}_{tx,a}", "A^{f32,g}_{tx,a}*1.001"))
        found = json.loads(r.stdout)
        self.assertEqual((r.returncode, found["schema"], found["verdict"]), (4, "cleave.leir.verify/1", "different"))
        self.assertIn("C[", found["reason"])
        r = run("verify", str(original), "-", text=body.replace("tx,a", "tx,a+1"))
        self.assertEqual(r.returncode, 3)
        self.assertIn("error[CLV8026]", r.stderr)
        r = run("verify", str(original), "-", text=ROWS.replace("A f32[2,3]", "A f32[2,4]"))
        self.assertEqual(r.returncode, 3)
        self.assertIn("in A f32[2,4]", r.stderr)

    def test_bench_times_both_ways_in_pairs(self):
        r = run("bench", "-", "--pairs", "3", "--json", text=ROWS)
        found = json.loads(r.stdout)
        self.assertEqual((r.returncode, found["schema"]), (0, "cleave.leir.bench/2"), r.stderr)
        self.assertGreater(found["jit_ms"], 0)
        self.assertLessEqual(found["low"], found["ratio"])

    def test_check_counts_operations(self):
        self.assertEqual(json.loads(run("check", "-", "--json", text=ROWS).stdout)["operations"], 6)

    def test_lower_and_grammar_print(self):
        self.assertIn("int leir_run(", run("lower", "-", "--to", "c", text=ROWS).stdout)
        self.assertIn("root ::=", run("grammar").stdout)
        self.assertNotIn("tanh", run("grammar", "--paper").stdout)


if __name__ == "__main__":
    unittest.main()
