"""What `show --stage leir` prints is input again: it checks, and runs to what the graph gives, with and without a graph."""

import pathlib
import random
import re
import struct
import zipfile

from cleave_cli import CliTest, main

# One graph a kind of statement of tile programs: products, scans, positions of extrema, casts, windows, gathers, masks.
GRAPHS = {
    "product": 'input X: f32[67, 130]\n input Y: f32[130, 70]\n output Z = contract("i k, k j -> i j", relu(X), Y)',
    "halves": 'input X: f16[9, 21]\n input Y: f16[21, 17]\n output Z = contract("i k, k j -> i j", X, Y)',
    "running": "input X: f32[4, 9]\n output Z = cumsum(X, axis=1)\n output M = cummax(X, axis=0)\n"
               " output R = cumsum(X, axis=0, reverse=true, exclusive=true)",
    "positions": "input X: f32[4, 9]\n output Z = argmax(X, axis=1)\n A, I = topk(X, k=3, axis=1)\n output A\n output I",
    "casts": "input X: f32[4, 9]\n output Z = cast(cast(X, dtype=f16), dtype=f32)\n output I = cast(mul(X, 3.7), dtype=i32)\n"
             " output O = cast(X, dtype=bool)\n output S = cast(X, dtype=i8)",
    "integers": "input X: f32[4, 9]\n I = cast(mul(X, 100.0), dtype=i32)\n output Z = floordiv(I, 7)\n output M = mod(I, 7)\n"
                " output D = div(I, -7)",
    "norms": "input X: f32[4, 6, 9]\n output Z = layer_norm(X, axes=[2])\n output R = softmax(X, axis=1)",
    "attention": 'input Q: f32[2, 70, 8]\n input K: f32[2, 70, 8]\n input W: f32[2, 70, 8]\n output O = sdpa(Q, K, W, causal="start")',
    "windows": "input X: f32[2, 9, 9]\n output Z = amax(window(X, axes=[1, 2], sizes=[3, 3], strides=[2, 2], low=[1, 1],"
               " high=[1, 1], value=-inf), axes=[3, 4])",
    "gathers": "input X: f32[6, 5]\n output Z = gather(X, argmax(X, axis=0), axis=0)\n output F = all(gt(X, 0.0), axes=[1])",
}  # fmt: skip
FORMATS = {"f4": "f", "f2": "e", "i8": "q", "i4": "i", "i1": "b", "b1": "?"}


def values(npy):
    length = struct.unpack("<H", npy[8:10])[0]
    kind = re.search(rb"'descr': '[<|]?(\w\d)'", npy).group(1).decode()
    data = npy[10 + length:]
    return kind, struct.unpack(f"<{len(data) // int(kind[1])}{FORMATS[kind]}", data)


class Stages(CliTest):
    def same(self, a, b, what):
        (kind, x), (other, y) = values(a), values(b)
        self.assertEqual((kind, len(x)), (other, len(y)), what)
        scale = max([1e-30, *map(abs, x)])
        limit = {"f4": 1e-5, "f2": 3e-3}.get(kind, 0) * scale
        self.assertLessEqual(max(abs(p - q) for p, q in zip(x, y)), limit, what)

    def test_printed_programs_run_equal(self):
        how = set()
        for name, body in GRAPHS.items():
            graph = self.file(f"{name}.graph", f"graph {name} {{\n {body}\n}}\n")
            text = self.ok("show", graph, "--stage", "leir")
            leir = self.file(f"{name}.leir", text)
            rng = random.Random(name)
            inputs = []
            for variable, kind, extents in re.findall(r"input (\w+): (f\d+)\[([\d, ]+)\]", body):
                shape = [int(n) for n in extents.split(",")]
                count = 1
                for n in shape:
                    count *= n
                # Different numbers, so that the positions of extrema are what they are.
                numbers = [(k - count // 2) * (0.25 if count < 100 else 0.001) for k in rng.sample(range(count), count)]
                path = self.npy(f"{name}.{variable}.npy", shape, numbers)
                if kind == "f16":
                    file = pathlib.Path(path)
                    file.write_bytes(file.read_bytes()[:128].replace(b"<f4", b"<f2") + struct.pack(f"<{count}e", *numbers))
                inputs.append(path)
                self.assertIn(f"in {variable} {kind}[", text)  # names stay
            self.ok("leir", "check", leir)
            self.ok("leir", "run", leir, "--inputs", *inputs, "--outputs", self.folder / f"{name}.npz")
            self.ok("run", graph, "--inputs", *inputs, "--outputs", self.folder / f"{name}.a")
            report = self.ok("run", leir, "--inputs", *inputs, "--outputs", self.folder / f"{name}.b")
            how.add("as written" in report)
            # Letters that LEIR has for loops cannot name variables: comments say what became of which.
            outputs = re.findall(r"^# (\w+): output (\w+)", text, re.MULTILINE)
            self.assertEqual(len(outputs), body.count("output "), text)
            with zipfile.ZipFile(self.folder / f"{name}.npz") as arrays:
                for variable, output in outputs:
                    want = (self.folder / f"{name}.a" / f"{output}.npy").read_bytes()
                    self.same(want, (self.folder / f"{name}.b" / f"{variable}.npy").read_bytes(), f"{name} {output} run")
                    self.same(want, arrays.read(f"{variable}.npy"), f"{name} {output} leir run")
        self.assertEqual(how, {True, False})  # some have a graph again, some are run as they are written

    def test_what_has_no_graph_is_printed_as_it_is(self):
        text = ("in A f32[6];\nout C f32[6];\n"
                "L^{6}_{a=0}[C^{f32,g}_{a}=if_then_else(a<1,0,C^{f32,g}_{a-1})*2+A^{f32,g}_{a};];\n")  # fmt: skip
        file = self.file("p.leir", text)
        self.assertEqual(self.ok("show", file, "--stage", "leir"), text)
        self.assertIn("no graph can be made", self.ok("run", file, "--check"))
        self.fails(3, "no graph can be made", "show", file, "--stage", "tile")
        self.fails(3, "no graph can be made", "optimize", file)


if __name__ == "__main__":
    main()
