"""The main job on a small graph: results, artefacts, and the round trip of every stage."""

import json
import os
import platform
import re
import signal
import struct
import subprocess
import time
from pathlib import Path

import cleave_cli
from cleave_cli import ROOT, TINY, CliTest, main

STAGES = ["graph", "stabilised", "itgraph", "tile", "vec", "llvm", "asm"]


def npy(shape, values):
    header = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values)


def read_npy(path):
    data = Path(path).read_bytes()
    size = struct.unpack("<H", data[8:10])[0]
    body = data[10 + size:]
    return struct.unpack(f"<{len(body) // 4}f", body)


def renumbered(text):
    """Names with numbers at their end, numbered in the order of appearance."""
    seen = {}
    return re.sub(r"\b[A-Za-z]\w*?(_\d+)+\b", lambda m: f"name{seen.setdefault(m.group(0), len(seen))}", text)


class Pipeline(CliTest):
    def setUp(self):
        super().setUp()
        self.tiny = self.file("tiny.graph", TINY)

    def test_optimize_reports_what_the_schema_promises(self):
        r = self.json("optimize", self.tiny, "--dim", "S=33", "--threads", "1", "--budget", "20s", "-o", "out/tiny")
        self.assertEqual(r["schema"], "cleave.result/1")
        self.assertEqual(r["status"], "complete")
        self.assertEqual((r["target"], r["dims"], r["threads"]), ("cpu", {"S": 33}, 1))
        self.assertGreaterEqual(r["graphs"]["equivalent"], 1)
        self.assertIsInstance(r["graphs"]["saturated"], bool)
        self.assertGreater(r["graphs"]["values"], 0)
        self.assertTrue(r["chosen"]["kernels"])
        for kernel in r["chosen"]["kernels"]:
            self.assertEqual({"name", "time_ms", "flops", "bytes", "roofline_pct", "bound_by"} - set(kernel), set())
        for key in ["baseline_ms", "time_ms", "speedup"]:
            self.assertGreater(r[key], 0)
        # Never slower than unfused: faster with confidence, or the unfused schedule itself.
        if r["chosen"]["unfused"]:
            self.assertEqual((r["speedup"], r["speedup_interval"]), (1, None))
        else:
            self.assertGreater(r["speedup_interval"][0], 1)
        e = r["error"]
        self.assertGreater(e["elements"], 0)
        self.assertLessEqual(e["max_rel"], max(2 * e["baseline_max_rel"], e["bound"]))
        self.assertEqual({"import", "algebra", "schedule", "codegen", "measure", "total"} - set(r["seconds"]), set())
        self.assertGreater(r["coverage"]["work"], 0)
        self.assertIn("certificate", r)

    def test_an_artefact_is_complete_and_runs(self):
        r = self.json("optimize", self.tiny, "--dim", "S=16", "--threads", "1", "--budget", "20s", "-o", "out/tiny")
        folder = self.folder / "out/tiny"
        manifest = json.loads((folder / "manifest.json").read_text())
        self.assertEqual(manifest["schema"], "cleave.manifest/1")
        self.assertEqual([a["name"] for a in manifest["arguments"]["inputs"]], ["Q", "K", "V"])
        for name, value in manifest["files"].items():
            done = subprocess.run(["sha256sum", folder / name], capture_output=True, text=True, check=True)
            self.assertEqual("sha256:" + done.stdout.split()[0], value, name)
        for name in ["graph/input.graph", "graph/best.graph", "schedule.itg", "kernels/program.tile", "kernels/program.o",
                     "candidates.jsonl", "path.json", "trace.json", "repro.sh"]:
            self.assertIn(name, manifest["files"])
        lines = [json.loads(line) for line in (folder / "candidates.jsonl").read_text().splitlines()]
        self.assertEqual(len(lines), 1 + r["candidates"]["proposed"])

        first = self.json("run", "out/tiny", "--check")
        self.assertTrue(first["from_object"])
        self.assertLessEqual(first["error"]["max_rel"], first["error"]["bound"])
        # Without the object code it is compiled again, and computes the same bits.
        (folder / "kernels/program.o").write_bytes(b"not an object")
        second = self.json("run", "out/tiny")
        self.assertFalse(second["from_object"])
        self.assertEqual(first["outputs"], second["outputs"])
        self.assertEqual(self.json("run", "out/tiny", "--threads", "2")["outputs"], first["outputs"])

        if r["certificate"]:
            self.assertIn("accepted", self.ok("check", "out/tiny"))
        # A graph that is not the one of the program any more.
        text = (folder / "graph/input.graph").read_text()
        (folder / "graph/input.graph").write_text(text.replace("graph tiny", "graph tinny"))
        self.fails(3, "graph/input.graph was changed since it was written", "run", "out/tiny")
        (folder / "graph/input.graph").write_text(text)
        # The script runs the optimisation again.
        done = subprocess.run([str(folder / "repro.sh"), "-q"], capture_output=True, text=True, timeout=120,
                              env=dict(os.environ, CLEAVE=cleave_cli.CLEAVE, CLEAVE_CACHE_DIR=self.cache))
        self.assertEqual(done.returncode, 0, done.stderr)
        # A second optimisation replaces the folder; another folder stays.
        self.ok("optimize", self.tiny, "--dim", "S=16", "--deterministic", "-o", "out/tiny")
        (self.folder / "mine").mkdir()
        (self.folder / "mine/notes.txt").write_text("keep")
        self.fails(3, "no artefact folder", "optimize", self.tiny, "--dim", "S=16", "--deterministic", "-o", "mine")
        self.assertEqual((self.folder / "mine/notes.txt").read_text(), "keep")

    def test_run_computes_what_it_is_given(self):
        path = self.file("sum.graph", "graph s {\n  input X: f32[2, 3]\n  input Y: f32[3]\n  output Z = add(X, Y)\n}\n")
        self.file("x.npy", npy([2, 3], [1, 2, 3, 4, 5, 6]))
        self.file("y.npy", npy([3], [10, 20, 30]))
        self.ok("run", path, "--inputs", "x.npy", "y.npy", "--outputs", "results")
        self.assertEqual(read_npy(self.folder / "results/Z.npy"), (11, 22, 33, 14, 25, 36))
        self.fails(3, "[2, 3] is needed", "run", path, "--inputs", "y.npy", "y.npy")

    def test_infinities_may_meet_in_another_order(self):
        path = self.file("chain.graph", "graph c {\n  input A: f32[33, 1]\n  input B: f32[16, 1]\n  input W: f32[16, 19]\n"
                         "  P = contract(\"m k, n k -> m n\", A, B)\n  output C = contract(\"p q, q z -> p z\", P, W)\n}\n")
        self.file("a.npy", npy([33, 1], [float("inf") if i == 3 else i for i in range(33)]))
        self.file("b.npy", npy([16, 1], [(-1) ** i * (i + 1) for i in range(16)]))
        self.file("w.npy", npy([16, 19], [(i * 7 % 11) - 5 for i in range(304)]))
        self.ok("run", path, "--inputs", "a.npy", "b.npy", "w.npy", "--check")

    def test_every_stage_prints_and_reads_back(self):
        texts = {s: self.ok("show", self.tiny, "--dim", "S=16", "--stage", s) for s in STAGES}
        for stage, suffix in [("graph", "graph"), ("stabilised", "graph"), ("itgraph", "itg"), ("tile", "tile"), ("vec", "vec")]:
            path = self.file(f"{stage}.{suffix}", texts[stage])
            self.assertEqual(self.ok("show", path), texts[stage], stage)
            self.assertEqual(self.ok("show", "-", stdin=texts[stage]), texts[stage], stage)
        # The counters of loops are numbered by what the compiler has named before.
        self.assertEqual(renumbered(self.ok("show", "itgraph.itg", "--stage", "tile")), renumbered(texts["tile"]))
        for stage in ["llvm", "asm"]:
            self.assertEqual(self.ok("show", "vec.vec", "--stage", stage), texts[stage], stage)
        # Symbols get new ids when a tile program is read, so sums in addresses may come in another order.
        for stage in ["vec", "llvm", "asm"]:
            shapes = [sorted(re.sub(r"[%.]?[rxyz]?\w*\d\w*", "#", line) for line in text.splitlines())
                      for text in (self.ok("show", "tile.tile", "--stage", stage), texts[stage])]
            self.assertEqual(len(shapes[0]), len(shapes[1]), stage)
            if stage == "vec":
                self.assertEqual(shapes[0], shapes[1])
        # A stabilised graph goes through the whole pipeline, and a tile program runs.
        self.assertLess(self.json("run", "stabilised.graph", "--check")["error"]["max_rel"], 1e-4)
        self.assertEqual(self.json("run", "tile.tile")["outputs"][0]["not_finite"], 0)
        self.fails(2, "is none of", "show", self.tiny, "--stage", "bytecode")
        self.fails(2, "cannot be made", "show", "tile.tile", "--stage", "graph")

    def test_code_for_another_processor_is_shown_and_not_run(self):
        if platform.machine() == "aarch64":
            self.skipTest("arm64 is what runs here")
        arm = self.file("arm.machine", 'machine "an arm64 server"\nisa = neon\nvector_registers = 32\ncores = 4\n')
        options = ["--machine", arm, "--dim", "S=16"]
        path = self.file("tiny.graph", TINY)
        vec = self.file("tiny.vec", self.ok("show", path, "--stage", "vec", *options))
        for arguments in ([path, *options], [vec, "--machine", arm]):
            self.assertIn('target triple = "aarch64-', self.ok("show", *arguments, "--stage", "llvm"))
            self.assertRegex(self.ok("show", *arguments, "--stage", "asm"), r"fmla\tv\d+\.4s")
        for arguments in (["optimize", path, *options], ["run", path, *options]):
            done = self.fails(6, "error[CLV6003]: this processor cannot run code for `neon`", *arguments)
            self.assertIn("show --stage asm", done.stderr)

    def test_code_keeps_to_the_instruction_set_of_the_machine(self):
        if "avx512" not in self.ok("targets"):
            self.skipTest("no AVX-512 here")
        avx2 = self.file("avx2.machine", 'machine "older"\nisa = avx2\nvector_bytes = 32\n')
        text = self.ok("show", self.file("tiny.graph", TINY), "--stage", "asm", "--dim", "S=16", "--machine", avx2)
        self.assertIn("ymm", text)
        self.assertNotRegex(text, "zmm|%k[1-7]|mm(1[6-9]|2[0-9]|3[01])")

    def test_examples_show_every_stage(self):
        for example, dims in [("attention", []), ("attention_causal", []), ("gqa_decode", ["--dim", "L=512"]), ("rmsnorm_linear", []), ("swiglu", [])]:
            path = ROOT / f"examples/{example}.graph"
            for stage in ["stabilised", "itgraph", "tile"]:
                text = self.ok("show", path, "--stage", stage, *dims)
                self.assertEqual(self.ok("show", "-", stdin=text), text, f"{example} {stage}")

    def test_an_imported_model_is_written_as_a_graph(self):
        if not (ROOT / "examples/gpt2_block.weights").exists():
            self.skipTest("make weights writes what this needs")
        model = ROOT / "examples/gpt2_block.onnx"
        self.ok("show", model, "-o", "block/block.graph")
        self.assertGreater(len(list((self.folder / "block/block.constants").iterdir())), 4)
        outputs = [[o["sha256"] for o in self.json("run", path, "--unfused")["outputs"]] for path in (model, "block/block.graph")]
        self.assertEqual(outputs[0], outputs[1])

    def test_search_and_schedule(self):
        s = self.json("search", self.tiny, "--dim", "S=8")
        self.assertEqual(s["schema"], "cleave.search/1")
        for graph in s["graphs"]:
            self.assertEqual({"id", "ops", "kernels", "split", "lower_bound_ms", "derivation"} - set(graph), set())
        self.assertEqual(s["graphs"][0]["derivation"], [])
        c = self.json("schedule", self.tiny, "--dim", "S=8", "--topk", "4")
        self.assertEqual(c["schema"], "cleave.schedule/1")
        predicted = [x["predicted_ms"] for x in c["candidates"]]
        self.assertEqual(predicted, sorted(predicted))
        self.assertEqual({x["graph"] for x in self.json("schedule", self.tiny, "--dim", "S=8", "--graph", "0")["candidates"]}, {0})

    def test_deterministic_means_the_same_program(self):
        for out in ["a", "b"]:
            r = self.json("optimize", self.tiny, "--dim", "S=16", "--deterministic", "-o", out)
            self.assertIsNone(r["time_ms"])
            self.assertTrue(any("predicted, not measured" in n for n in r["notes"]))
        for name in ["kernels/program.tile", "graph/best.graph", "schedule.itg", "kernels/program.o"]:
            self.assertEqual((self.folder / "a" / name).read_bytes(), (self.folder / "b" / name).read_bytes(), name)

    def test_budgets_and_requirements(self):
        r = self.json("optimize", self.tiny, "--dim", "S=16", "--budget", "1c", "--threads", "1")
        self.assertLessEqual(r["candidates"]["tried"], 1)
        if r["stop"] == "budget":
            self.assertIn("tiny: stopped by the budget; ", self.ok("optimize", self.tiny, "--dim", "S=17", "--budget", "1c", "--threads", "1"))
        none = self.json("optimize", self.tiny, "--dim", "S=18", "--budget", "0s", "--threads", "1")
        self.assertEqual((none["status"], none["candidates"]["tried"]), ("budget", 0))
        self.assertIn("the budget ended before every equal graph had been scheduled", none["notes"])
        self.assertIn("there was no candidate; the unfused schedule is used", none["notes"])
        self.fails(5, "error[CLV7008]", "optimize", self.tiny, "--dim", "S=16", "--budget", "1c", "--require-speedup", "1000")

    def test_dumps_are_inputs(self):
        self.ok("optimize", self.tiny, "--dim", "S=8", "--stop-after", "schedule", "--dump-after", "all", "--dump-dir", "dumps")
        dumps = sorted((self.folder / "dumps").iterdir())
        self.assertGreaterEqual(len(dumps), 6)
        for path in dumps:
            self.assertEqual(self.ok("show", path), path.read_text() if path.suffix != ".graph" else self.ok("show", "-", stdin=path.read_text()))
        self.fails(2, "is no pass", "optimize", self.tiny, "--dump-after", "nothing")

    def test_interruption_keeps_the_best(self):
        path = ROOT / "examples/attention.graph"
        process = subprocess.Popen([cleave_cli.CLEAVE, "optimize", path, "--budget", "none", "--threads", "1", "--json", "-o", "out/best"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                   env=dict(os.environ, CLEAVE_CACHE_DIR=self.cache))
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        result = json.loads(out)
        self.assertEqual(result["status"], "interrupted")
        self.assertTrue((self.folder / "out/best/manifest.json").is_file())
        self.ok("run", "out/best")


if __name__ == "__main__":
    main()
