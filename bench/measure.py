"""Fair comparison of two functions on a noisy machine: ABBA pairs, CPU time, the multiply-add peak beside each pair.

At one thread the clock is the process's CPU time: it is the thread's, and it also counts peers that compute on a thread of
their own. With more threads it is wall time.
"""

import ctypes
import random
import statistics
import time
from pathlib import Path


class Ceilings:
    """Peaks of one core, from the compiled helper (bench/ceilings.cpp)."""

    def __init__(self, build):
        self.library = ctypes.CDLL(str(Path(build) / "bench" / "libbench_ceilings.so"))
        self.library.bench_peak_gflops.restype = ctypes.c_double
        self.library.bench_read_gbytes.restype = ctypes.c_double
        self.library.bench_read_gbytes.argtypes = [ctypes.c_int64]

    def peak(self):
        return self.library.bench_peak_gflops()

    def evict(self):
        """Reads more than the last level of cache holds."""
        self.library.bench_read_gbytes(ctypes.c_int64(96 << 20))

    def dram(self):
        return max(self.library.bench_read_gbytes(ctypes.c_int64(256 << 20)) for _ in range(5))


def clock(threads):
    return time.process_time if threads == 1 else time.perf_counter


def sample(run, now, least, before=None):
    """Seconds of one run, over at least `least` seconds. `before` is called, untimed, before each run."""
    total, runs = 0.0, 0
    while total < least:
        if before:
            before()
            start = now()
            run()
            total += now() - start
            runs += 1
        else:
            start, batch = now(), max(1, runs)
            for _ in range(batch):
                run()
            total += now() - start
            runs += batch
    return total / runs


def bootstrap(values, seed=1, rounds=1000):
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def compare(ours, peer, threads, ceilings, pairs=21, least=2e-3, before=None):
    """{ratio, lo, hi, ours_s, peer_s, peak, kept, control}; ratio above 1: ours is faster."""
    now = clock(threads)
    ratios, a_times, b_times, peaks, control = [], [], [], [], []
    for k in range(pairs):
        first = ceilings.peak()
        a1 = a2 = b1 = b2 = 0.0
        if k % 2 == 0:
            a1, b1 = sample(ours, now, least, before), sample(peer, now, least, before)
            b2, a2 = sample(peer, now, least, before), sample(ours, now, least, before)
        else:
            b1, a1 = sample(peer, now, least, before), sample(ours, now, least, before)
            a2, b2 = sample(ours, now, least, before), sample(peer, now, least, before)
        second = ceilings.peak()
        control.append(a1 / a2)
        if abs(first - second) > 0.1 * max(first, second):
            continue
        a, b = (a1 + a2) / 2, (b1 + b2) / 2
        ratios.append(b / a)
        a_times.append(a)
        b_times.append(b)
        peaks.append((first + second) / 2)
    if len(ratios) < 5:
        return None
    lo, hi = bootstrap(ratios)
    control.sort()
    return {"ratio": statistics.median(ratios), "lo": lo, "hi": hi, "ours_s": statistics.median(a_times),
            "peer_s": statistics.median(b_times), "peak": statistics.median(peaks), "kept": len(ratios),
            "control": (control[len(control) // 10], control[-1 - len(control) // 10])}
