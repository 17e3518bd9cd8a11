"""Hostile and wrong files: a coded error, the right exit code, in bounded time."""

import json
import time

from cleave_cli import ROOT, TINY, CliTest, main


class Errors(CliTest):
    def refuse(self, name, content, text, code=3, seconds=20, extra=()):
        path = self.file(name, content)
        begin = time.monotonic()
        done = self.fails(code, text, "optimize", path, "--budget", "5s", "-q", *extra, timeout=60)
        self.assertLess(time.monotonic() - begin, seconds)
        self.assertRegex(done.stderr, r"error\[CLV\d{4}\]")
        self.assertEqual(done.stdout, "")
        return done

    def test_a_missing_file(self):
        self.fails(3, "error[CLV3001]", "optimize", "nowhere.graph")

    def test_a_truncated_onnx_model(self):
        whole = (ROOT / "examples/gpt2_block.onnx").read_bytes()
        for cut in [0, 1, 100, len(whole) // 2, len(whole) - 7]:
            self.refuse(f"cut{cut}.onnx", whole[:cut], "error[CLV30")

    def test_bytes_that_are_no_model(self):
        self.refuse("noise.onnx", bytes(range(256)) * 64, "error[CLV30")
        self.refuse("noise.graph", bytes(range(1, 256)) * 64, "error[CLV1")

    def test_a_cyclic_graph(self):
        self.refuse("cycle.graph", "graph g {\n  input X: f32[4]\n  A = add(X, B)\n  B = neg(A)\n  output B\n}\n", "B")

    def test_huge_extents(self):
        self.refuse("huge.graph", "graph g {\n  input X: f32[1099511627776]\n  output Y = neg(X)\n}\n", "error[CLV")
        self.refuse("product.graph", "graph g {\n  input X: f32[1048576, 1048576]\n  output Y = exp(X)\n}\n", "error[CLV")

    def test_wrong_ranks_and_shapes(self):
        head = "graph g {\n  input A: f32[4, 5]\n  input B: f32[6, 7]\n"
        self.refuse("rank.graph", head + '  output Y = contract("i j k, k l -> i l", A, B)\n}\n', "error[CLV2")
        self.refuse("shape.graph", head + "  output Y = add(A, B)\n}\n", "error[CLV2005]")
        self.refuse("axis.graph", head + "  output Y = softmax(A, axis=2)\n}\n", "error[CLV2")

    def test_an_unknown_operator_points_at_its_place(self):
        done = self.refuse("op.graph", "graph g {\n  input X: f32[4]\n  output Y = frobnicate(X)\n}\n", "error[CLV2001]")
        self.assertIn("op.graph:3:", done.stderr)
        self.assertIn("^", done.stderr)

    def test_nan_constants_are_data(self):
        path = self.file("nan.graph", "graph g {\n  input X: f32[3]\n  const C: f32[3] = [nan, inf, 1]\n  output Y = mul(X, C)\n}\n")
        result = self.json("run", path, "--check", "--threads", "1")
        self.assertGreaterEqual(result["outputs"][0]["not_finite"], 2)

    def test_deep_nesting(self):
        depth = 5_000_000
        self.refuse("deep.graph", "graph g {\n  input X: f32[4]\n  output Y = " + "neg(" * (depth // 2) + "X" + ")" * (depth // 2) + "\n}\n", "error[CLV1")
        self.refuse("brackets.graph", "graph g {\n  input X: f32" + "[" * depth + "\n}\n", "error[CLV")
        self.refuse("deep.tile", "tile t {" + "kernel k {" * 1_000_000, "error[CLV")

    def test_unbound_and_wrong_dimensions(self):
        path = self.file("tiny.graph", TINY)
        self.fails(2, "error[CLV2013]", "optimize", path)
        self.fails(2, "--dim S=N", "schedule", path)
        self.fails(2, "error[CLV2014]", "optimize", path, "--dim", "S=65")
        self.fails(3, "error[CLV2002]", "optimize", path, "--dim", "S=8", "--dim", "T=8")

    def test_wrong_inputs_of_a_run(self):
        path = self.file("tiny.graph", TINY)
        self.file("x.npy", b"\x93NUMPY\x01\x00" + b"garbage")
        self.fails(3, "error[CLV7006]", "run", path, "--dim", "S=4", "--inputs", "x.npy")
        self.fails(3, "error[CLV302", "run", path, "--dim", "S=4", "--inputs", "x.npy", "x.npy", "x.npy")

    def test_wrong_artefacts(self):
        (self.folder / "empty").mkdir()
        self.fails(3, "error[CLV7005]", "run", "empty")
        for text in ["", "[]", '{"schema": "other/1"}', '{"schema": "cleave.manifest/1", "program": "/etc/passwd"}',
                     '{"schema": "cleave.manifest/1", "program": "../x", "object": "o", "machine": "m"}']:
            (self.folder / "empty" / "manifest.json").write_text(text)
            self.fails(3, "error[CLV7005]", "run", "empty")

    def test_damaged_files_of_an_artefact_are_named(self):
        path = self.file("tiny.graph", TINY)
        out = self.folder / "tiny"
        self.ok("optimize", path, "--dim", "S=4", "--deterministic", "--threads", "1", "-o", str(out))
        for name in ("graph/input.graph", "graph/best.graph", "kernels/program.tile", "machine.txt"):
            with self.subTest(name):
                whole = (out / name).read_text()
                (out / name).write_text(whole + "?\n")
                line = whole.count("\n") + 1
                self.fails(3, f"{name}:{line}:", "run", out)
                self.fails(3, f"{name}:{line}:", "show", out)
                (out / name).write_text(whole)
        self.ok("run", out)

    def test_files_of_no_known_format_are_refused(self):
        self.fails(3, "error[CLV7004]", "optimize", self.file("a.foo", "x"))

    def test_refused_certificates_end_with_4(self):
        for content in ["", "{}", '{"schema": "cleave.certificate/2"}']:
            self.fails(4, "error[CLV4101]", "check", self.file("c.json", content))

    def test_an_artefact_without_certificate_says_why(self):
        (self.folder / "plain").mkdir()
        (self.folder / "plain" / "manifest.json").write_text("{}")
        self.fails(3, "error[CLV7011]: the artefact `plain` holds no certificate", "check", "plain")

    def test_where_nothing_can_be_written_is_said_before_the_work(self):
        path = self.file("tiny.graph", TINY)
        (self.folder / "kept").mkdir()
        (self.folder / "kept" / "mine.txt").write_text("mine")
        start = time.monotonic()
        for output in ["kept", path, "/proc/nowhere/out"]:
            self.fails(3, "error[CLV3002]", "optimize", path, "--dim", "S=16", "--budget", "60s", "-o", output)
        self.assertLess(time.monotonic() - start, 3)
        self.assertEqual([p.name for p in (self.folder / "kept").iterdir()], ["mine.txt"])

    def test_tolerances_are_finite(self):
        path = self.file("tiny.graph", TINY)
        for option in ["--rtol", "--atol", "--require-speedup"]:
            for value in ["nan", "inf"]:
                self.fails(2, option, "optimize", path, "--dim", "S=16", option, value)

    def test_misused_options_say_what_is_wrong(self):
        path = self.file("tiny.graph", TINY)
        self.fails(2, "`frob` is no verb", "frob")
        self.fails(2, "a verb is missing")
        self.fails(2, "`-1` is not a number of at least 0", "optimize", path, "--rtol", "-1")
        self.fails(2, "`-3` is not a number of at least 0", "schedule", path, "--dim", "S=8", "--graph", "-3")
        self.fails(2, "the path is empty", "optimize", path, "--dim", "S=8", "-o", "")

    def test_check_needs_a_graph(self):
        schedule = self.ok("show", self.file("tiny.graph", TINY), "--dim", "S=8", "--stage", "itgraph", "-o", "s.itg")
        self.assertIn("s.itg", schedule)
        self.fails(2, "needs the graph", "run", "s.itg", "--check")

    def test_a_trace_that_cannot_be_written_loses_no_result(self):
        path = self.file("tiny.graph", TINY)
        done = self.cleave("optimize", path, "--dim", "S=8", "--budget", "2c", "--json", "--trace", "/proc/nowhere/t.json")
        self.assertEqual(done.returncode, 3)
        self.assertIn("error[CLV3002]", done.stderr)
        self.assertEqual(json.loads(done.stdout)["schema"], "cleave.result/1")

    def test_overflowing_intermediates_are_no_fault_of_ours(self):
        path = self.file("big.graph", "graph g {\n  input X: f32[16, 32]\n  output Y = rms_norm(mul(X, 1e30), axes=[1])\n}\n")
        self.assertEqual(self.json("optimize", path, "--budget", "none")["status"], "complete")

    def test_errors_as_json(self):
        path = self.file("op.graph", "graph g {\n  input X: f32[4]\n  output Y = frobnicate(X)\n}\n")
        done = self.fails(3, "CLV2001", "optimize", path, "--json")
        report = json.loads(done.stdout)
        self.assertEqual(report["schema"], "cleave.error/1")
        self.assertEqual(report["errors"][0]["code"], "CLV2001")
        self.assertEqual(report["errors"][0]["line"], 3)

    def test_colour_only_where_it_is_wanted(self):
        self.assertNotIn("\x1b", self.cleave("optimize", "nowhere.graph").stderr)
        self.assertIn("\x1b[1;31merror", self.cleave("optimize", "nowhere.graph", "--color", "always").stderr)


if __name__ == "__main__":
    main()
