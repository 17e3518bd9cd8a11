"""Help texts, usage errors, and the verbs that only describe."""

from cleave_cli import ROOT, CliTest, main

VERBS = ["optimize", "search", "schedule", "show", "run", "bench", "check", "passes", "targets", "doctor", "explain", "leir", "db"]


class Help(CliTest):
    def test_every_verb_leads_with_an_example(self):
        for verb in VERBS:
            text = self.ok(verb, "-h")
            self.assertTrue(text.startswith("Example:\n  cleave " + verb), text)
        self.assertTrue(self.ok("-h").startswith("Example:\n  cleave optimize"))

    def test_usage_errors_end_with_2(self):
        self.fails(2, "error[CLV7002]", "optimise", "x.graph")
        self.fails(2, "error[CLV7002]", "optimize", "x.graph", "--no-such-option")
        self.fails(2, "error[CLV7002]", "optimize")
        self.fails(2, "is not a time", "optimize", "x.graph", "--budget", "soon")
        self.fails(2, "NAME=N", "optimize", "x.graph", "--dim", "S")
        self.fails(2, "`-1` is not a whole number", "optimize", "x.graph", "--seed", "-1")
        self.fails(2, "the typical value 9 lies outside 1..8", "optimize", "x.graph", "--dim", "S=1..8@9")
        self.fails(2, "the range 5..2 ends before it begins", "optimize", "x.graph", "--dim", "S=5..2")
        self.fails(2, "is no pass", "optimize", "x.graph", "--disable", "magic")
        self.fails(2, "cannot be left out", "optimize", "x.graph", "--disable", "import")
        self.fails(2, "excludes --suite", "search", "x.graph", "--suite", "rows.json")
        self.fails(2, "excludes --s", "search", "--suite", "rows.json", "--split", "k")
        self.fails(2, "--split", "search", "x.graph", "--split", "")

    def test_what_is_not_there_says_so(self):
        self.fails(2, "error[CLV7003]", "bench", str(ROOT / "tests/data/attention.tile"))
        self.fails(6, "error[CLV7010]", "optimize", "x.graph", "--target", "cuda")
        self.fails(6, "error[CLV7010]", "show", "x.graph", "--stage", "cuda")
        self.fails(3, "is not a usable artefact", "bench", "x.graph", "--against", "eager")

    def test_passes_are_listed_in_order(self):
        names = [p["name"] for p in self.json("passes")["passes"]]
        self.assertEqual(names, ["import", "bind", "expand", "search", "schedule", "tune", "package"])
        self.assertTrue(all(name in self.ok("passes") for name in names))

    def test_operators_are_listed(self):
        text = self.ok("show", "--operators")
        for name in ["softmax", "contract", "scaled_reduce", "gelu_tanh"]:
            self.assertIn(f"\n{name} ", text)

    def test_doctor_finds_nothing_wrong(self):
        report = self.json("doctor")
        self.assertTrue(report["ok"], report)
        self.assertIn("code generator", [f["what"] for f in report["findings"]])

    def test_targets_name_this_machine(self):
        targets = self.json("targets")["targets"]
        self.assertEqual(targets[0]["target"], "cpu")
        self.assertGreaterEqual(targets[0]["cores"], 1)


if __name__ == "__main__":
    main()
