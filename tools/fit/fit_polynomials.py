"""Fits the polynomials of src/vec/expand_math.cpp: minimax on an interval, coefficients rounded to float32.

Each fit minimises max |weight(x) * (target(x) - sum c_k x^k)| over a dense grid (Lawson's reweighted least squares), then
rounds the coefficient of the lowest power to float32, fits the others again, and so on. Prints C++ initialisers, lowest
power first, and the largest weighted error. Needs numpy and mpmath.
"""

import mpmath as mp
import numpy as np

mp.mp.dps = 40


def minimax(powers, grid, target, weight):
    basis = np.stack([grid.astype(np.longdouble) ** p for p in powers], axis=1)
    scale = np.max(np.abs(basis), axis=0)
    lawson = np.ones_like(grid)
    best, best_error = None, np.inf
    for _ in range(400):
        w = np.sqrt(lawson) * weight
        c, *_ = np.linalg.lstsq(
            ((basis / scale) * w[:, None]).astype(float), (target * w).astype(float), rcond=None)
        c = c / scale.astype(float)
        error = np.abs(weight * (target - basis @ c))
        if error.max() < best_error:
            best, best_error = c, error.max()
        lawson = lawson * (error / error.max() + 1e-12)
        lawson = lawson / lawson.mean()
    return best, best_error


def fit(name, function, low, high, powers, weight):
    n = 3000
    grid = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.pi * (np.arange(n) + 0.5) / n)
    target = np.array([np.longdouble(mp.nstr(function(mp.mpf(float(x))), 30)) for x in grid])
    w = np.array([float(weight(mp.mpf(float(x)))) for x in grid])
    fixed, left = [], list(powers)
    while left:
        rest = target - sum((np.longdouble(c) * grid ** p for p, c in fixed), np.longdouble(0))
        c, _ = minimax(left, grid, rest, w)
        fixed.append((left[0], float(np.float32(c[0]))))
        left = left[1:]
    error = np.max(np.abs(w * (target - sum(np.longdouble(c) * grid ** p for p, c in fixed))))
    print(f"// {name}: {float(error):.2e}")
    print("{" + ", ".join(f"{c.hex()}f" for _, c in fixed) + "}")


def main():
    half_ln2 = float(mp.log(2)) / 2 * 1.002
    # exp(r) = 1 + r + r^2 q(r), relative error.
    fit("exp", lambda r: (mp.exp(r) - 1 - r) / r**2, -half_ln2, half_ln2, range(4), lambda r: r**2 / mp.exp(r))
    fit("exp, one more", lambda r: (mp.exp(r) - 1 - r) / r**2, -half_ln2, half_ln2, range(5), lambda r: r**2 / mp.exp(r))
    # 2^r = 1 + r q(r), relative error.
    fit("exp2", lambda r: (mp.mpf(2)**r - 1) / r, -0.501, 0.501, range(5), lambda r: abs(r) / mp.mpf(2)**r)
    fit("exp2, one more", lambda r: (mp.mpf(2)**r - 1) / r, -0.501, 0.501, range(6), lambda r: abs(r) / mp.mpf(2)**r)
    # expm1(r) = r + r^2 q(r), error relative to expm1.
    fit("expm1", lambda r: (mp.expm1(r) - r) / r**2, -half_ln2, half_ln2, range(5), lambda r: r**2 / abs(mp.expm1(r)))
    # log1p(f) = f - f^2/2 + f^3 q(f), error relative to log1p; f in [sqrt(1/2) - 1, sqrt(2) - 1].
    fit("log1p", lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, float(mp.sqrt(0.5)) - 1.0001, float(mp.sqrt(2)) - 0.9999,
        range(7), lambda f: abs(f**3 / mp.log1p(f)))
    # erf(a) = a p(a^2) below 1; in s = a^2.
    fit("erf", lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s), 1e-9, 1.0, range(7), lambda s: 1 / (mp.erf(mp.sqrt(s)) / mp.sqrt(s)))
    # erfc(a) = exp(-g(a)): an absolute error of g is a relative one of erfc, which matters less the smaller erfc is.
    fit("log erfc, to 4", lambda a: -mp.log(mp.erfc(a)), 0.99, 4.0, range(6), lambda a: mp.erfc(a) / mp.erf(a))
    fit("log erfc, to 5.5", lambda a: -mp.log(mp.erfc(a)), 0.99, 5.5, range(9),
        lambda a: mp.erfc(a) / mp.erf(a) + mp.mpf("0.01"))
    quarter = float(mp.pi) / 4 * 1.002
    # sin(r) = r + r^3 s(r^2), cos(r) = 1 - r^2/2 + r^4 c(r^2); in z = r^2.
    fit("sin", lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1e-6, quarter**2, range(3),
        lambda z: z / (mp.sin(mp.sqrt(z)) / mp.sqrt(z)))
    fit("cos", lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, 1e-4, quarter**2, range(3), lambda z: z**2 / mp.cos(mp.sqrt(z)))
    for label, value in [("ln 2", mp.log(2)), ("pi / 2", mp.pi / 2)]:
        parts, rest = [], value
        for _ in range(3):
            part = float(np.float32(float(rest)))
            parts.append(part)
            rest -= mp.mpf(part)
        print(f"// {label} = sum of", ", ".join(p.hex() for p in parts))


if __name__ == "__main__":
    main()
