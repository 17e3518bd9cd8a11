"""The shared library of an artefact: a C program uses it, and it stands alone."""

import os
import shutil
import struct
import subprocess
import unittest

from cleave_cli import TINY, CliTest, main
from pipeline_test import npy, read_npy

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <pthread.h>
#include "tiny.h"
enum { N = 2 * 37 * 8, OUT = 2 * 37 * 16 };
static float Q[N], K[N], V[N], Y[OUT], Z[OUT];
static void read_file(const char* name, float* to) {
  FILE* f = fopen(name, "rb");
  if (!f || fread(to, sizeof(float), N, f) != N) exit(9);
  fclose(f);
}
static void serial(void* host, int64_t tasks, void (*task)(void*, int64_t, int), void* context) {
  ++*(int*)host;
  for (int64_t i = tasks; i-- > 0;) task(context, i, 0);
}
static void* many(void* unused) {
  float mine[OUT];
  for (int i = 0; i < 50; ++i) {
    memset(mine, 0xff, sizeof mine);
    if (tiny(Q, K, V, mine) || memcmp(mine, Y, sizeof mine)) return "differs";
  }
  return unused;
}
int main(void) {
  read_file("q.bin", Q), read_file("k.bin", K), read_file("v.bin", V);
  memset(Y, 0xff, sizeof Y);
  if (tiny_set_threads(1) != 1 || tiny(Q, K, V, Y) != TINY_OK) return 1;
  const void* inputs[TINY_INPUTS] = {Q, K, V};
  void* outputs[TINY_OUTPUTS] = {Z};
  for (int threads = 1; threads <= 7; ++threads) { /* the same bits */
    tiny_options o = {.threads = threads};
    memset(Z, 0xff, sizeof Z);
    if (tiny_run(inputs, NULL, outputs, &o) || memcmp(Y, Z, sizeof Y)) return 2;
  }
  int calls = 0;
  tiny_options host = {.parallel_for = serial, .host = &calls, .workers = 1};
  memset(Z, 0xff, sizeof Z);
  if (tiny_run(inputs, NULL, outputs, &host) || memcmp(Y, Z, sizeof Y) || calls == 0) return 3;
  if (tiny(NULL, K, V, Y) != TINY_BAD_ARGUMENT || tiny((float*)((char*)Q + 1), K, V, Y) != TINY_BAD_ARGUMENT) return 4;
  tiny_options bad = {.threads = -1};
  if (tiny_run(inputs, NULL, outputs, &bad) != TINY_BAD_ARGUMENT) return 5;
  if (!strstr(tiny_error(TINY_BAD_ARGUMENT), "null")) return 6;
  tiny_set_threads(3);
  pthread_t t[4];
  for (int i = 0; i < 4; ++i) pthread_create(&t[i], NULL, many, NULL);
  for (int i = 0; i < 4; ++i) {
    void* problem;
    pthread_join(t[i], &problem);
    if (problem) return 7;
  }
  tiny_release();
  if (tiny(Q, K, V, Y)) return 8;
  volatile float small = 1e-30f; /* the caller's floating-point mode has come back: denormals live */
  if (small * 1e-10f == 0) return 10;
  FILE* f = fopen("y.bin", "wb");
  fwrite(Y, 1, sizeof Y, f);
  return fclose(f);
}
"""


class Library(CliTest):
    def setUp(self):
        super().setUp()
        self.ok("optimize", self.file("tiny.graph", TINY), "--dim", "S=37", "--threads", "1", "--deterministic", "-o", "out")

    def floats(self, seed, n):
        return [((seed * 7919 + i * 104729) % 2003 - 1001) / 500 for i in range(n)]

    def test_a_c_program_gets_what_the_command_computes(self):
        cc = shutil.which("cc") or shutil.which("clang-19")
        if not cc:
            self.skipTest("no C compiler")
        files = []
        for seed, name in enumerate("qkv", 1):
            values = self.floats(seed, 2 * 37 * 8)
            (self.folder / f"{name}.bin").write_bytes(struct.pack(f"<{len(values)}f", *values))
            files.append(self.file(f"{name}.npy", npy((2, 37, 8), values)))
        self.ok("run", "out", "--inputs", *files, "--outputs", "expected", "--threads", "1")
        program = self.file("main.c", PROGRAM)
        header = self.file("header.cpp", '#include "tiny.h"\nint main() { return 0; }\n')
        for arguments in (["-std=c11", program, "-o", "main", "-Lout", "-ltiny", "-Wl,-rpath,$ORIGIN/out", "-lpthread", "-lm"],
                          ["-x", "c++", "-fsyntax-only", header]):  # the header is C and C++
            done = subprocess.run([cc, "-D_GNU_SOURCE", "-O1", "-Wall", "-Werror", "-I", "out", *arguments],
                                  cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        # Nothing of ours is needed: only the library and the C library, in an empty environment.
        done = subprocess.run([str(self.folder / "main")], cwd=self.folder, env={}, timeout=60)
        self.assertEqual(done.returncode, 0)
        expected = read_npy(self.folder / "expected/Y.npy")
        got = struct.unpack(f"<{len(expected)}f", (self.folder / "y.bin").read_bytes())
        self.assertEqual(got, expected)
        self.assertTrue(any(abs(x) > 1e-3 for x in got))

    def test_it_needs_libc_and_libm_only_and_exports_its_functions_only(self):
        if not shutil.which("readelf") or not shutil.which("nm"):
            self.skipTest("no binutils")
        library = self.folder / "out/libtiny.so"
        dynamic = subprocess.run(["readelf", "-dW", library], capture_output=True, text=True, check=True).stdout
        needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
        self.assertLessEqual({n.split(".so")[0] for n in needed}, {"libc", "libm"})
        self.assertNotIn("TEXTREL", dynamic)
        names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
        self.assertEqual({line.split()[-1] for line in names.splitlines()},
                         {"tiny", "tiny_run", "tiny_set_threads", "tiny_release", "tiny_error"})

    def test_names_of_all_kinds_become_c_names(self):
        graph = self.file("9 odd-name.graph", 'graph "9 odd-name" {\n  input int: f32[4] as "int"\n'
                          '  input b: f32[4] as "a/b*/"\n  scalar f: f32\n  output "x y" = add(mul(int, f), b)\n'
                          '  output "x*y" = add(int, tan(b))\n}\n')
        self.ok("optimize", graph, "--threads", "1", "--deterministic", "-o", "odd")
        header = next((self.folder / "odd").glob("*.h"))
        text = header.read_text()
        self.assertIn("const float* int_, const float* a_b__, double f, float* x_y, float* x_y_2", text)
        name = header.stem
        cc = shutil.which("cc") or shutil.which("clang-19")
        if not cc:
            self.skipTest("no C compiler")
        program = self.file("odd.c", f'#include "{header.name}"\n#include <math.h>\nint main(void) {{\n'
                            "  float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40}, y[4], z[4];\n"
                            f"  if ({name}(a, b, 0.5, y, z)) return 1;\n"
                            "  for (int i = 0; i < 4; ++i)\n"
                            "    if (y[i] != a[i] / 2 + b[i] || fabs(z[i] - a[i] - tan(b[i])) > 1e-4) return 2;\n  return 0;\n}\n")
        done = subprocess.run([cc, "-Wall", "-Werror", "-I", "odd", program, "-o", "odd.bin", "-Lodd", f"-l{name}",
                               "-Wl,-rpath,$ORIGIN/odd", "-lm"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(subprocess.run([str(self.folder / "odd.bin")], timeout=60).returncode, 0)


if __name__ == "__main__":
    main()
