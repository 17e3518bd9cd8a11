"""Dimensions with a range: one artefact serves every value, and says what it does not serve."""

import json

from cleave_cli import CliTest, main

GRAPH = """graph rows {
  dim N in 0..4096
  dim M in 1..8
  input X: f32[M, N]
  output P = softmax(mul(X, 2.0), axis=1)
  output S = mean(X, axes=[1])
}
"""


class Dims(CliTest):
    def made(self):
        path = self.file("rows.graph", GRAPH)
        out = str(self.folder / "rows")
        result = self.json("optimize", path, "--dim", "N=0..900@300", "--dim", "M=3", "--budget", "20s", "--threads", "1",
                           "-o", out)
        return out, result

    def test_one_artefact_serves_the_range(self):
        out, result = self.made()
        self.assertEqual(result["dims"]["N"], {"low": 0, "high": 900, "representative": 300})
        manifest = json.loads((self.folder / "rows" / "manifest.json").read_text())
        self.assertTrue(manifest["dims"]["N"]["open"])
        self.assertEqual(manifest["arguments"]["inputs"][0]["shape"], [3, "N"])
        for n in (1, 2, 17, 300, 899, 900):
            run = self.json("run", out, "--dim", f"N={n}", "--check", "--threads", "1")
            self.assertEqual(run["outputs"][0]["shape"], [3, n])
        # A mean of nothing is not a number, whatever graph was chosen.
        empty = self.json("run", out, "--dim", "N=0", "--check", "--threads", "1")
        self.assertEqual(empty["outputs"][1]["not_finite"], 3)
        # Without a value: what it was tuned for.
        self.assertEqual(self.json("run", out, "--threads", "1")["outputs"][0]["shape"], [3, 300])

    def test_what_wins_at_large_extents_serves_them(self):
        # With one key the unfused schedule is as fast as any; with a thousand it is not.
        path = self.file("attention.graph", """graph attention {
  dim L in 1..1024
  input Q: f32[4, L, 64]
  input K: f32[4, L, 64]
  input V: f32[4, L, 64]
  P = softmax(contract("b s d, b l d -> b s l", Q, K), axis=-1)
  output O = contract("b s l, b l d -> b s d", P, V)
}
""")
        tune = ["optimize", path, "--dim", "L=1..1024@1", "--budget", "60s", "--threads", "1", "-o"]
        first = self.json(*tune, "one")
        self.assertFalse(first["chosen"]["unfused"], first["notes"])
        second = self.json(*tune, "two")
        if second["stop"] == "remembered":
            self.assertEqual(second["chosen"]["summary"], first["chosen"]["summary"])
        for out, made in (("one", first), ("two", second)):
            dispatch = json.loads((self.folder / out / "manifest.json").read_text())["dispatch"]
            if any("others the candidate" in n for n in made["notes"]):
                self.assertEqual(made["speedup"], 1)
                self.assertTrue(1 <= dispatch["unfused_up_to"]["L"] < 1024, dispatch)
            for n in (1, 2, 70, 1024):
                run = self.json("run", out, "--dim", f"L={n}", "--check", "--threads", "1")
                self.assertEqual(run["outputs"][0]["shape"], [4, n, 64])

    def test_constants_beside_open_dimensions(self):
        weights = ", ".join(str(i / 10) for i in range(24))
        path = self.file("mlp.graph", f"""graph mlp {{
  dim S in 0..2147483648
  input X: f32[S, 8]
  const W: f32[8, 3] = [{weights}]
  output Y = relu(contract(X, W, spec="i k, k j -> i j"))
}}
""")
        out = str(self.folder / "mlp")
        self.json("optimize", path, "--dim", "S=0..2147483648@70", "--deterministic", "--threads", "1", "-o", out)
        for s in (0, 1, 5, 70, 1000):
            for what in (out, path):
                dim = f"S={s}" if what == out else f"S=0..2147483648@{s}"
                run = self.json("run", what, "--dim", dim, "--check", "--threads", "1")
                self.assertEqual(run["outputs"][0]["shape"], [s, 3])

    def test_wide_ranges_of_many_dimensions(self):
        # What a task keeps is not as large as the ends of the ranges allow.
        path = self.file("pool.graph", """graph pool {
  dim B in 0..100000
  dim L in 2..100000
  dim C
  input X: f32[B, L, C]
  T = erf(X)
  W = window(div(T, add(abs(T), 1.0)), axes=[1], sizes=[2], strides=[2])
  output Y = mean(W, axes=[3])
}
""")
        for b, n, c in ((2, 9, 8), (1, 2, 3000), (40, 301, 5)):
            run = self.json("run", path, "--dim", f"B=0..100000@{b}", f"L=2..100000@{n}", f"C=0..2147483648@{c}", "--check",
                            "--threads", "1")
            self.assertEqual(run["outputs"][0]["shape"], [b, n // 2, c])

    def test_parts_of_an_axis_add_up_to_it(self):
        path = self.file("swap.graph", """graph swap {
  dim L in 2..64
  input X: f32[L]
  A = slice(X, axes=[0], starts=[0], stops=[L // 2])
  B = slice(X, axes=[0], starts=[L // 2], stops=[L])
  C = concat(B, A, axis=0)
  output Y = add(C, X)
}
""")
        for n in (2, 9):
            run = self.json("run", path, "--dim", f"L=2..64@{n}", "--check", "--threads", "1")
            self.assertEqual(run["outputs"][0]["shape"], [n])

    def test_files_give_the_dimensions(self):
        path = self.file("shifted.graph", """graph shifted {
  dim B in 1..100
  input X: f32[2*B + 1]
  output Y = mul(X, 2.0)
}
""")
        out = str(self.folder / "shifted")
        self.ok("optimize", path, "--dim", "B=1..100@50", "--deterministic", "--threads", "1", "-o", out)
        for n in (3, 7, 201):
            file = self.npy("x.npy", [n])
            for what in ([path], [path, "--dim", "B=1..100@50"], [out]):
                run = self.json("run", *what, "--inputs", file, "--check", "--threads", "1")
                self.assertEqual(run["outputs"][0]["shape"], [n])
                self.assertEqual(run["outputs"][0]["highest"], 2 * (n - 1))
        for what in (path, out):
            self.fails(3, "`X`", "run", what, "--inputs", self.npy("even.npy", [8]), "--dim", "B=4")
            self.fails(2, "error[CLV2014]", "run", what, "--inputs", self.npy("long.npy", [203]))

    def test_extrema_need_an_element(self):
        path = self.file("top.graph", """graph top {
  dim N in 0..64
  input X: f32[3, N]
  output P = argmax(X, axis=1)
}
""")
        self.fails(3, "error[CLV5003]: `P` cannot be scheduled: `argmax` needs 1 element, and the extent `N` may be 0", "optimize",
                   path, "--dim", "N=0..64", "--deterministic", "--threads", "1")
        out = str(self.folder / "top")
        self.json("optimize", path, "--dim", "N=1..64@5", "--deterministic", "--threads", "1", "-o", out)
        for n in (1, 2, 64):
            self.assertEqual(self.json("run", out, "--dim", f"N={n}", "--check", "--threads", "1")["outputs"][0]["shape"], [3])

    def test_ranges_begin_where_no_extent_is_negative(self):
        cases = [  # what is done to X: f32[A, B], the low ends, an extent of the result at 5 and 7
            ("pad(X, low=[-2, 0], high=[-1, 0], value=0.0)", {"A": 3, "B": 0}, [2, 7]),
            ("pad(X, low=[-2, 0], high=[3, 0], value=0.0)", {"A": 0, "B": 0}, [6, 7]),
            ("reshape(pad(X, low=[-1, -1], high=[0, 0], value=0.0), shape=[(A - 1)*(B - 1)])", {"A": 1, "B": 1}, [24]),
            ("slice(X, axes=[0], starts=[1], stops=[3])", {"A": 3, "B": 0}, [2, 7]),
            ("slice(X, axes=[-1], starts=[1], stops=[-1], steps=[-1])", {"A": 0, "B": 2}, [5, 2]),
            ("slice(X, axes=[0], starts=[A - 2], stops=[A])", {"A": 2, "B": 0}, [2, 7]),
            ("slice(X, axes=[0], starts=[A//2], stops=[A])", {"A": 0, "B": 0}, [3, 7]),
            ("reshape(pad(X, low=[-1, 0], high=[0, 0], value=0.0), shape=[(A - 1)*B])", {"A": 1, "B": 0}, [28])]
        for i, (made, lows, shape) in enumerate(cases):
            path = self.file("cut.graph", f"graph cut {{\n  dim A\n  dim B\n  input X: f32[A, B]\n  output Y = exp({made})\n}}\n")
            out = str(self.folder / f"cut{i}")
            result = self.json("optimize", path, "--dim", "A=0..64@5", "--dim", "B=0..64@7", "--deterministic", "--threads", "1", "-o", out)
            self.assertEqual({name: dim["low"] for name, dim in result["dims"].items()}, lows, made)
            for a, b in ((lows["A"], lows["B"]), (lows["A"] + 1, lows["B"] + 1)):
                self.json("run", out, "--dim", f"A={a}", "--dim", f"B={b}", "--check", "--threads", "1")
            run = self.json("run", out, "--dim", "A=5", "--dim", "B=7", "--check", "--threads", "1")
            self.assertEqual(run["outputs"][0]["shape"], shape)
            for name, low in lows.items():
                if low:
                    self.fails(2, f"error[CLV2014]: the dimension `{name}` is {low - 1}, outside its range {low}..64", "run", out, "--dim",
                               f"{name}={low - 1}", "--dim", f"{'B' if name == 'A' else 'A'}=7")
            if lows["A"]:
                self.fails(3, "error[CLV2005]", "optimize", path, "--dim", f"A=0..{lows['A'] - 1}", "--dim", "B=7")
        path = self.file("less.graph", "graph less {\n  dim A\n  dim B\n  input X: f32[A - B]\n  output Y = exp(X)\n}\n")
        self.fails(3, "error[CLV2005]: `X`: the extent A - B may be negative in the ranges of its dimensions", "optimize", path,
                   "--dim", "A=0..64@5", "--dim", "B=0..64@3")
        self.ok("schedule", path, "--dim", "A=4..64@5", "--dim", "B=0..4@3")
        # Of 3k + 1 rows two slices are the whole; of others the second leaves it, wherever a range begins: the call says so.
        path = self.file("parts.graph", "graph parts {\n  dim A\n  input X: f32[A]\n  output Y = slice(X, axes=[0], starts=[0], stops=[2*(A//3) + 1])\n"
                         "  output Z = slice(X, axes=[0], starts=[2*(A//3) + 1], stops=[3*(A//3) + 1])\n}\n")
        out = str(self.folder / "parts")
        self.json("optimize", path, "--dim", "A=0..64@10", "--deterministic", "--threads", "1", "-o", out)
        for rows in (10, 13, 2):
            self.json("run", out, "--dim", f"A={rows}", "--check", "--threads", "1")
        self.fails(3, "error[CLV2005]: `slice`: the bound 13 is outside 0..12 of axis 0", "run", out, "--dim", "A=12")
        self.fails(2, "error[CLV2014]: the dimension `A` is 12", "optimize", path, "--dim", "A=0..64@12", "--budget", "1c")

    def test_products_of_the_longest_dimensions(self):
        path = self.file("flat.graph", """graph flat {
  dim A
  dim B
  dim C
  input X: f32[A, B, C]
  output O = softmax(reshape(X, shape=[A, B*C]), axis=1)
  output P = sum(exp(reshape(X, shape=[A*B*C])), axes=[0])
}
""")
        most = 2**31
        for ends in ((f"@{3}", "@5", "@7"), ("", "", "")):
            dims = [a for name, end in zip("ABC", ends) for a in ("--dim", f"{name}=0..{most}{end}")]
            self.ok("schedule", path, *dims)
        self.ok("run", path, "--dim", f"A=0..{most}@3", "--dim", f"B=0..{most}@5", "--dim", f"C=0..{most}@7", "--check")
        self.ok("schedule", path, "--dim", "A=0..0", "--dim", f"B=0..{most}@5", "--dim", "C=7")

    def test_what_is_not_served_is_refused(self):
        out, _ = self.made()
        self.fails(2, "error[CLV2014]: the dimension `N` is 901, outside its range 0..900", "run", out, "--dim", "N=901")
        self.fails(3, "error[CLV2002]: `K` is not defined here", "run", out, "--dim", "K=1")
        path = self.file("rows.graph", GRAPH)
        self.fails(2, "error[CLV2014]: the dimension `N` is 5000, outside its range 0..4096", "optimize", path,
                   "--dim", "N=1..5000@10", "--dim", "M=3")
        self.fails(3, "error[CLV2002]: `Q` is not defined here", "optimize", path, "--dim", "Q=1..5", "--dim", "M=3",
                   "--dim", "N=4")
        self.fails(2, "error[CLV2013]: the dimension `M` has no value", "optimize", path, "--dim", "N=1..5")


if __name__ == "__main__":
    main()
