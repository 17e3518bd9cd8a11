"""Odd but legal graphs run and are right; what is not legal is refused at its place; what is written is all there."""

import json
import time

from cleave_cli import CliTest, main


def graph(*statements):
    return "graph g {\n  " + "\n  ".join(statements) + "\n}\n"


class OddGraphs(CliTest):
    def right(self, text, *extra):
        return self.ok("run", self.file("g.graph", text), "--check", *extra)

    def test_axes_counted_from_the_end(self):
        head = ("input x: f32[9, 5, 3]", "input i: i64[4, 2]")
        for line in ("gather(x, i, axis=-1)", "cumsum(x, axis=-2)", "argmax(x, axis=-1)", "concat(x, x, axis=-2)",
                     "flip(x, axes=[-1])", "softmax(x, axis=-3)", "sum(x, axes=[-1, -3])", "iota(shape=[4, 5], axis=-1, dtype=i64)",
                     "transpose(x, perm=[-1, 0, -2])"):
            with self.subTest(line):
                self.right(graph(*head, f"output A = {line}"))

    def test_data_that_is_not_finite_is_judged_as_the_documents_say(self):
        """Masked NaN may be left out; what f32 cannot hold is no wrong result; a NaN that is read must arrive."""
        text = graph("input S: f32[3, 4]", "input V: f32[4, 2]",
                     "M = le(iota(shape=[3, 4], axis=1, dtype=i64), iota(shape=[3, 4], axis=0, dtype=i64))",
                     "output O = contract(\"s l, l d -> s d\", softmax(where(M, S, -inf), axis=-1), V)")
        values = [1.0] * 8
        values[6] = float("nan")  # of the last key, that no row sees
        inputs = (self.npy("s.npy", [3, 4]), self.npy("v.npy", [4, 2], values))
        self.right(text, "--inputs", *inputs)
        self.right(text, "--unfused", "--inputs", *inputs)
        values[0] = float("nan")
        run = self.json("run", self.file("g.graph", text), "--check", "--inputs", inputs[0],
                        self.npy("v.npy", [4, 2], values))
        self.assertEqual(run["outputs"][0]["not_finite"], 3)
        large = [1e30 * (-1) ** i for i in range(24)]
        self.right(graph("input X: f32[2, 12]", "output l = logsumexp(contract(X, X, spec=\"n d, v d -> n v\"), axes=[1])"),
                   "--inputs", self.npy("x.npy", [2, 12], large))

    def test_many_operands(self):
        names = [f"x{k}" for k in range(300)]
        self.right(graph(*(f"input {n}: f32[2]" for n in names), f"output Y = concat({', '.join(names)}, axis=0)"))
        self.right(graph("input x: f32[3, 2]", f"output Y = concat({', '.join(['x'] * 301)}, axis=1)"))

    def test_a_value_that_reads_itself_is_undefined(self):
        for line in ("w = mul(w, x)", "w, v = topk(w, k=1, axis=0)", "w = exp(add(x, w))"):
            done = self.fails(3, "`w` is not defined here", "show",
                              self.file("g.graph", graph("input x: f32[4]", line, "output A = exp(x)", "output B = w")))
            self.assertEqual(done.stderr.count("error["), 1)

    def test_whole_numbers_are_exact_or_refused(self):
        for line in ("add(i, 9007199254740993)", "gt(i, 9223372036854775807)",
                     "literal(dtype=i64, value=9007199254740993)", "add(i, 99999999999999999999)",
                     "add(i, -99999999999999999999)", "literal(dtype=i32, value=1e20)", "literal(dtype=i64, value=nan)"):
            self.fails(3, "error[CLV1004]", "show", self.file("g.graph", graph("input i: i64[4]", f"output A = {line}")))
        self.right(graph("input i: i64[4]", "output A = add(i, 9007199254740992)", "output B = add(i, -9223372036854775808)"))

    def test_dimensions_that_do_not_work_out(self):
        path = self.file("g.graph", graph("dim N in 0..2147483648", "input x: f32[N - 5, N]", "output Y = exp(x)"))
        self.fails(3, "the extent -1 is negative", "run", path, "--dim", "N=4")
        self.fails(3, "more than the limit", "run", path, "--dim", "N=2000000000")
        self.assertIn("the range of N begins at 5", self.ok("optimize", path, "--dim", "N=0..10@8", "--deterministic"))
        self.fails(2, "the dimension `N` is 3, outside its range 5..10", "optimize", path, "--dim", "N=0..10@3")
        self.ok("run", path, "--dim", "N=7")

    def test_too_many_axes(self):
        ones = ", ".join(["1"] * 40)
        self.fails(3, "has 40 axes, more than", "show", self.file("g.graph", graph(f"input x: f32[{ones}]", "output Y = x")))

    def test_every_output_gets_a_file_of_its_own(self):
        text = graph("input x: f32[2]", 'output "ü/b" = exp(x)', 'output "ü b" = log(x)', 'output "" = sqrt(x)',
                     'output ".." = neg(x)')
        report = json.loads(self.ok("run", self.file("g.graph", text), "--outputs", "out", "--json"))
        files = {p.name for p in (self.folder / "out").iterdir()}
        self.assertEqual(len(files), 4)
        self.assertEqual(len(set(report["files"])), 4)
        self.assertFalse({".npy", "...npy"} & files)

    def test_scalars_are_given_by_name(self):
        path = self.file("g.graph", graph("input x: f32[4]", "scalar t: f32", "output Y = mul(sub(x, x), t)",
                                          "output Z = add(sub(x, x), t)"))
        report = json.loads(self.ok("run", path, "--scalar", "t=2.5", "--check", "--json"))
        self.assertEqual(report["outputs"][1]["mean"], 2.5)
        self.fails(2, "the run-time scalars are t", "run", path, "--scalar", "u=1")
        self.fails(2, "NAME=NUMBER", "run", path, "--scalar", "t=x")

    def test_integers_of_tile_programs_are_not_all_zero(self):
        path = self.file("g.graph", graph("input b: bool[1000]", "output S = sum(cast(b, dtype=i32))"))
        self.file("g.tile", self.ok("show", path, "--stage", "tile"))
        self.assertGreater(json.loads(self.ok("run", "g.tile", "--json"))["outputs"][0]["mean"], 100)

    def test_a_program_for_a_matrix_unit_says_so_where_there_is_none(self):
        here = self.ok("targets", "--measure")
        fields = dict(line.split(" = ") for line in here.splitlines() if " = " in line)
        unit = int(fields.get("matrix_products", 0)) > 0
        self.file("unit.machine", here.replace("matrix_products = 0\n", "") + ("" if unit else "matrix_products = 512\n"))
        path = self.file("g.graph", graph("input A: bf16[64, 64]", "input B: bf16[64, 64]",
                                          'output C = contract("i k, k j -> i j", A, B)'))
        text = self.ok("show", path, "--stage", "tile", "--machine", "unit.machine")
        self.file("g.tile", text)
        report = json.loads(self.ok("run", "g.tile", "--json"))
        if "pairs" not in text:
            self.assertNotIn(fields["isa"], ("avx2", "avx512"))  # only these have products in pairs
        else:
            self.assertEqual(any("matrix unit" in n for n in report["notes"]), not unit)

    def test_a_budget_holds_for_deep_models_too(self):
        lines = ["input x0: f32[64, 64]"]
        for k in range(12):
            lines += [f"input {w}{k}: f32[64, 64]" for w in "qkvoud"]
        lines += [f"{w}w{k} = mul({w}{k}, 0.05)" for k in range(12) for w in "qkvoud"]  # or rounding grows tenfold a layer
        for k in range(12):
            lines += [f"h{k} = layer_norm(x{k}, axes=[1])"]
            lines += [f'{w}s{k} = reshape(contract("s d, d e -> s e", h{k}, {w}w{k}), shape=[64, 4, 16])' for w in "qkv"]
            lines += [f'p{k} = softmax(mul(contract("s h d, l h d -> h s l", qs{k}, ks{k}), 0.25), axis=-1)',
                      f'b{k} = reshape(contract("h s l, l h d -> s h d", p{k}, vs{k}), shape=[64, 64])',
                      f'y{k} = add(x{k}, contract("s d, d e -> s e", b{k}, ow{k}))',
                      f"g{k} = layer_norm(y{k}, axes=[1])",
                      f'm{k} = gelu_erf(contract("s d, d f -> s f", g{k}, uw{k}))',
                      f'x{k + 1} = add(y{k}, contract("s f, f e -> s e", m{k}, dw{k}))']
        path = self.file("deep.graph", graph(*lines, "output Y = x12"))
        begin = time.monotonic()
        report = self.json("optimize", path, "--budget", "2s", "--threads", "1", "--no-cache")
        self.assertLess(time.monotonic() - begin, 40)
        self.assertEqual(report["status"], "budget")

    def test_one_json_object_whatever_happens(self):
        path = self.file("g.graph", graph("input x: f32[4]", "output Y = exp(x)"))
        done = self.fails(5, "error[CLV7008]", "optimize", path, "--require-speedup", "100", "--budget", "1c", "--json")
        self.assertEqual(json.loads(done.stdout)["schema"], "cleave.result/1")
        for arguments in (("optimize", "--json"), ("frob", "--json"), ("optimize", path, "--threads", "0", "--json")):
            done = self.fails(2, "error[CLV7002]", *arguments)
            self.assertEqual(json.loads(done.stdout)["errors"][0]["code"], "CLV7002")
        self.assertEqual(json.loads(self.ok("show", "--operators", "--json"))["schema"], "cleave.show/1")


if __name__ == "__main__":
    main()
