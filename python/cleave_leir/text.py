"""LEIR as text: indices as affine forms, names in the order they are handed out, nests with a bound axis.

Subscripts are kept as sums of atoms with integer factors (an atom is a loop index, or a quotient or remainder that does
not simplify), so that views compose without nests of their own.
"""

import re

VARIABLES = "ACDEFGHIJKMNOQRSWXYZ"
INDICES = "acdfghijklmnopqrsuw"
RESERVED = {
    "if", "do", "for", "or", "in", "is", "as", "and", "not", "def", "asm", "auto", "goto", "long", "inf", "int", "char",
    "case", "sin", "cos", "log", "exp", "pow", "abs", "max", "min", "half", "main", "fmaf", "fma", "mod", "usr",
}  # fmt: skip
MAX_THREADS = 1024


def names(letters, tails, reserved=()):
    """A C D ... Aa Ac ... Aaa ...: the letters, then with more and more letters behind them."""
    words = [""]
    while True:
        for first in letters:
            for tail in words:
                if first + tail not in reserved:
                    yield first + tail
        words = [w + t for w in words for t in tails]


class Ix:
    """An affine form over atoms. `ranges` maps each atom to its greatest value (the least is 0)."""

    def __init__(self, terms=None, const=0, ranges=None):
        self.terms = {k: v for k, v in (terms or {}).items() if v}
        self.const = const
        self.ranges = ranges or {}

    @staticmethod
    def index(name, extent):
        return Ix({name: 1}, 0, {name: max(extent - 1, 0)})

    @staticmethod
    def number(n):
        return Ix({}, n)

    def __add__(self, other):
        if isinstance(other, int):
            return Ix(self.terms, self.const + other, self.ranges)
        terms = dict(self.terms)
        for k, v in other.terms.items():
            terms[k] = terms.get(k, 0) + v
        return Ix(terms, self.const + other.const, {**self.ranges, **other.ranges})

    def __mul__(self, n):
        return Ix({k: v * n for k, v in self.terms.items()}, self.const * n, self.ranges)

    def __sub__(self, other):
        return self + (other * -1 if isinstance(other, Ix) else -other)

    def bounds(self):
        low = high = self.const
        for k, v in self.terms.items():
            if v < 0:
                low += v * self.ranges[k]
            else:
                high += v * self.ranges[k]
        return low, high

    def _split(self, n):
        """The part that n divides, and the rest."""
        whole = Ix({k: v for k, v in self.terms.items() if v % n == 0}, self.const - self.const % n, self.ranges)
        rest = Ix({k: v for k, v in self.terms.items() if v % n}, self.const % n, self.ranges)
        return whole, rest

    def quotient(self, n):
        if n == 1:
            return self
        whole, rest = self._split(n)
        low, high = rest.bounds()
        whole = Ix({k: v // n for k, v in whole.terms.items()}, whole.const // n, self.ranges)
        if low >= 0 and high < n:
            return whole
        if low < 0:  # a falling index: keep the form, which is not negative as a whole
            whole, rest, high = Ix.number(0), self, self.bounds()[1]
        atom = f"({rest})//{n}" if not rest.single() else f"{rest}//{n}"
        return whole + Ix({atom: 1}, 0, {atom: high // n})

    def remainder(self, n):
        if n == 1:
            return Ix.number(0)
        _, rest = self._split(n)
        low, high = rest.bounds()
        if low >= 0 and high < n:
            return rest
        if low < 0:
            rest = self
        atom = f"({rest})%{n}" if not rest.single() else f"{rest}%{n}"
        return Ix({atom: 1}, 0, {atom: n - 1})

    def single(self):
        return not self.const and len(self.terms) == 1 and all(v == 1 for v in self.terms.values())

    def affine(self):
        return not any("/" in k or "%" in k for k in self.terms)

    def uses(self):
        out = set()
        for k in self.terms:
            out.update(re.findall(r"[a-z]+", k))
        return out

    def __str__(self):
        out = ""
        for k, v in self.terms.items():
            atom = f"({k})" if ("/" in k or "%" in k) and v not in (1, -1) else k
            if ("%" in k or "/" in k) and v == -1:
                atom = f"({k})"
            piece = atom if v in (1, -1) else f"{atom}*{abs(v)}"
            out += ("-" if v < 0 else "+" if out else "") + piece
        if self.const or not out:
            out += f"{self.const:+d}" if out else str(self.const)
        return out


def literal(value):
    """A number of Python as LEIR text, in parentheses when it is negative."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    if value != value:
        return "(inf-inf)"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "(-inf)"
    text = repr(float(value))
    if text.endswith(".0"):
        text = text[:-2]
    return text if value >= 0 and not text.startswith("-") else f"({text})"


class Writer:
    """Hands out names and collects nests."""

    def __init__(self):
        self.lines = []
        self.variables = names(VARIABLES, VARIABLES.lower())
        self.declared = []  # (role, name, dtype, shape)

    def variable(self):
        return next(self.variables)

    @staticmethod
    def tensor(name, dtype, subscripts):
        inside = ",".join(str(s) for s in subscripts)
        return f"{name}^{{{dtype},g}}" + (f"_{{{inside}}}" if subscripts else "")

    def loops(self, shape, inner=()):
        """Loops over `shape`, one of them bound to tx, then serial ones over `inner`: text, indices of both."""
        letters = names(INDICES, INDICES, RESERVED)
        text, outer = "", []
        whole = list(shape)
        shape = [n for n in whole if n != 1]  # an axis of extent 1 needs no loop
        bound = next((i for i, n in enumerate(shape) if n <= MAX_THREADS), None)
        split = None
        if bound is None and shape:
            for i, n in enumerate(shape):
                factor = max(f for f in range(1, MAX_THREADS + 1) if n % f == 0)
                if factor > 1:
                    split = (i, factor)
                    break
            bound = split[0] if split else 0
        for i, n in enumerate(shape):
            if i != bound:
                name = next(letters)
                text += f"L^{{{n}}}_{{{name}=0}}"
                outer.append(Ix.index(name, n))
            elif n <= MAX_THREADS:
                text += f"B^{{{n}}}_{{tx=0}}"
                outer.append(Ix.index("tx", n))
            elif split:
                name, factor = next(letters), split[1]
                text += f"L^{{{n // factor}}}_{{{name}=0}}B^{{{factor}}}_{{tx=0}}"
                outer.append(Ix.index(name, n // factor) * factor + Ix.index("tx", factor))
            else:
                text += f"B^{{{n}}}_{{bx=0}}B^{{1}}_{{tx=0}}"
                outer.append(Ix.index("bx", n))
        if not shape:
            text += "B^{1}_{tx=0}"
        reduced = []
        for n in inner:
            if n == 1:
                reduced.append(Ix.number(0))
                continue
            name = next(letters)
            text += f"L^{{{n}}}_{{{name}=0}}"
            reduced.append(Ix.index(name, n))
        own = iter(outer)
        return text, [Ix.number(0) if n == 1 else next(own) for n in whole], reduced

    def nest(self, loops, *equations):
        self.lines.append(f"{loops}[{''.join(e + ';' for e in equations)}];")
