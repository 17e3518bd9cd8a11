"""The algebraic phase on the command line: suites, split indices, exports, explanations."""

import json
import re
from pathlib import Path

from cleave_cli import ROOT, TINY, CliTest, main

SUITE = ROOT / "tests/data/subgraphs.json"


class Algebra(CliTest):
    def setUp(self):
        super().setUp()
        self.tiny = self.file("tiny.graph", TINY)

    def test_every_row_of_the_suite_saturates_within_the_gate_whole_and_split(self):
        r = self.json("search", "--suite", SUITE, timeout=300)
        self.assertEqual(r["schema"], "cleave.suite/1")
        names = [row["name"] for kind in ("subgraphs", "alternates") for row in json.loads(SUITE.read_text())[kind]]
        self.assertEqual(list(dict.fromkeys(row["name"] for row in r["rows"])), names)
        split = {row["name"] for row in r["rows"] if row["split"]}
        self.assertEqual(split, set(names))
        for row in r["rows"]:
            keys = ["name", "split", "values", "applications", "graphs", "saturated", "seconds", "peak_mb"]
            self.assertEqual(list(row), keys)
            self.assertTrue(row["saturated"], row)
            self.assertLessEqual(row["values"], 5000, row)
            self.assertLessEqual(row["applications"], 200_000, row)
            self.assertGreaterEqual(row["graphs"], 1, row)
            if row["peak_mb"] is not None:
                self.assertLessEqual(row["peak_mb"], 64, row)

    def test_the_number_of_threads_does_not_change_what_is_found(self):
        def found(threads):
            r = self.json("search", ROOT / "examples/attention.graph", "--split", "all", "--threads", threads)
            return [(g["text"], g["split"], g["derivation"]) for g in r["graphs"]]

        self.assertEqual(found("1"), found("4"))

    def test_the_suite_of_the_document(self):
        written = re.search(r"```json\n(.*?)```", (ROOT / "docs/suite.md").read_text(), re.S)[1]
        rows = self.json("search", "--suite", self.file("written.json", written))["rows"]
        self.assertEqual([(r["name"], r["split"]) for r in rows], [("causal", None), ("causal", "l"), ("causal", "d")])
        self.assertGreater(rows[0]["graphs"], 1)

    def test_a_broken_suite_is_an_error_of_the_input(self):
        self.fails(3, "error[CLV4104]: the suite cannot be used: it has neither", "search", "--suite",
                   self.file("s.json", "{}"))
        self.fails(3, "error[CLV3001]", "search", "--suite", "nowhere.json")
        self.fails(2, "`INPUT`: is missing", "search")

    def test_split_graphs_follow_the_others(self):
        whole = self.json("search", self.tiny)
        r = self.json("search", self.tiny, "--split", "l")
        split = [g for g in r["graphs"] if g["split"]]
        self.assertEqual(len(r["graphs"]), len(whole["graphs"]) + len(split))
        self.assertTrue(split)
        self.assertTrue(all(g["split"] == "l" and "l_parts" in g["text"] for g in split))
        shown = self.ok("show", self.tiny, "--split", "l", "--stage", "stabilised", "--graph", split[0]["id"])
        self.assertEqual(shown, split[0]["text"])
        self.assertIn("[l split]", self.ok("search", self.tiny, "--split", "all"))
        self.fails(2, "error[CLV4105]: no index `z` can be split: the indices that are reduced are", "search", self.tiny,
                   "--split", "z")

    def test_a_split_index_does_not_keep_optimize_from_its_work(self):
        r = self.json("optimize", self.tiny, "--dim", "S=16", "--split", "l", "--budget", "4c", "--threads", "1")
        self.assertGreater(r["speedup"], 0)

    def test_found_graphs_are_written_for_other_compilers_and_read_back(self):
        self.ok("search", self.tiny, "--export", "onnx", "models")
        models = sorted(Path(self.folder, "models").glob("graph_*.onnx"))
        self.assertEqual(len(models), len(self.json("search", self.tiny)["graphs"]))
        for model in models:
            self.ok("run", model, "--dim", "S=5", "--check", "--unfused")
        self.fails(2, "only `onnx` and `certificates` are written", "search", self.tiny, "--export", "tvm", "models")
        cummax = self.file("c.graph", "graph c {\n  input X: f32[3]\n  output Y = cummax(X, axis=0)\n}\n")
        self.fails(3, "error[CLV4108]: graph 0 cannot be written as ONNX: the operator `cummax`", "search", cummax,
                   "--export", "onnx", "models")

    def test_every_graph_has_a_certificate_that_check_accepts(self):
        self.ok("search", self.tiny, "--split", "l", "--export", "certificates", "proofs")
        graphs = self.json("search", self.tiny, "--split", "l")["graphs"]
        for k, graph in enumerate(graphs):
            proof = Path(self.folder, f"proofs/graph_{k}.json")
            self.assertEqual(json.loads(proof.read_text())["result"], graph["text"])
            self.ok("check", proof)
        proof.write_text(proof.read_text().replace("mul(", "add(", 1))
        self.fails(4, "error[CLV4102]: step", "check", proof)
        self.assertFalse(Path(self.folder, f"proofs/graph_{len(graphs)}.json").exists())

    def test_a_graph_without_equals_says_so(self):
        lone = self.file("lone.graph", "graph lone {\n  input X: f32[3]\n  output Y = tanh(X)\n}\n")
        self.assertIn("lone: no equal graph but the input", self.ok("search", lone))
        self.assertIn("found no graph but the input graph; `--why-not NODE`", self.ok("explain", lone))

    def test_explain_says_each_step_and_why(self):
        text = self.ok("explain", self.tiny)
        self.assertIn("Step 1 of ", text)
        self.assertIn("because" if "because" in text else "the value", text)
        self.assertIn("running maximum", text)
        e = self.json("explain", self.tiny, "--graph", "1")
        self.assertEqual(e["schema"], "cleave.explain/1")
        self.assertTrue(all(s["because"] for s in e["steps"]))
        one = self.json("explain", self.tiny, "--graph", "1", "--step", len(e["steps"]))
        self.assertEqual(one["steps"], e["steps"][-1:])
        self.fails(2, "error[CLV4107]: the path has", "explain", self.tiny, "--step", "99")
        self.fails(2, "`-3` is not a number of at least 0", "explain", self.tiny, "--graph", "-3")
        self.fails(2, "`0` is not a number of at least 1", "explain", self.tiny, "--step", "0")
        self.fails(2, "error[CLV4103]", "explain", self.tiny, "--graph", "999")

    def test_why_not_lists_the_ways_and_what_was_refused(self):
        graph = self.file("n.graph", """graph n {
  dim S in 1..64
  input X: f32[S, 32]
  const W: f32[32, 16] = normal(seed=3)
  N = layer_norm(X, axes=[1])
  output Y = contract("s k, k n -> s n", N, W)
}
""")
        text = self.ok("explain", graph, "--why-not", "Y")
        self.assertIn("as given:", text)
        self.assertRegex(text, "refused: .*a mean of (3000|32768)")
        self.fails(2, "error[CLV4106]: no value of the input graph is called `Q`", "explain", graph, "--why-not", "Q")
        self.fails(2, "it is given, not computed", "explain", graph, "--why-not", "X")
        renamed = self.file("renamed.graph", "graph r {\n  input X: f32[4]\n  a = exp(X)\n  b = neg(a)\n  output O = b\n}\n")
        self.fails(2, "those that are computed are `a`, `b`, `O`", "explain", renamed, "--why-not", "Q")
        self.ok("explain", renamed, "--why-not", "O")
        zero = self.file("zero.graph", "graph z {\n  input A: f32[5]\n  output Y = div(A, 0.0)\n}\n")
        self.assertIn("exact arithmetic cannot evaluate it", self.ok("explain", zero, "--why-not", "Y"))
        masked = self.file("masked.graph", """graph masked {
  input Q: f32[2, 5, 4]
  input K: f32[2, 8, 4]
  input V: f32[2, 8, 6]
  S = contract("b s d, b l d -> b s l", Q, K)
  P = softmax(where(le(iota(shape=[5, 8], axis=1, dtype=i64), 3), S, -inf), axis=-1)
  output O = contract("b s l, b l d -> b s d", P, V)
}
""")
        text = self.ok("explain", masked, "--why-not", "P")
        self.assertIn("refused:  `P` and `O`, in one kernel", text)
        self.assertNotRegex(text, "`t(_[0-9]+)?`")

    def test_why_not_names_the_kernels_that_were_not_made_one(self):
        graph = self.file("pair.graph", """graph pair {
  input X: f32[256, 512]
  input W: f32[512, 512]
  output Z = softmax(contract("m k, n k -> m n", X, W), axis=1)
}
""")
        text = self.ok("explain", graph, "--why-not", "Z")
        self.assertRegex(text, r"refused: +two of the values that `Z` is made of, in one kernel: (only \d+ elements could|\d+ % of the work would|no order)")

    def test_an_artefact_is_explained_by_its_certificate(self):
        self.ok("optimize", self.tiny, "--dim", "S=32", "--budget", "6c", "--threads", "1", "-o", "out")
        text = self.ok("explain", "out")
        if Path(self.folder, "out/certificate.json").exists():
            self.assertIn("certificate", text)
        else:
            self.assertIn("as it was given", text)
        self.fails(3, "error[CLV7005]", "explain", str(self.folder))


if __name__ == "__main__":
    main()
