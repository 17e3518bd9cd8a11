"""What torch.export has taken for granted of the sizes: a branch that the example arguments took (`if x.shape[0] == y.shape[0]`), the
number of parts that a split gave. Ranges of single dimensions are declared in the graph; whatever else there is is asked at each
call, in the words of the program, once the shapes fit the graph."""

from __future__ import annotations

import ast
import functools

import torch
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
from torch.utils import _pytree as pytree

from . import aten_dims
from ._errors import InvalidError, UnsupportedError

_HINT = "compile it for example arguments with sizes like these, or choose in the program by what does not depend on sizes"


def _paths(signature, places) -> dict:
    """What torch.export calls each of the arguments, L['x']['a'][0], -> (its number, as the program writes it)."""
    found = {}
    leaves = pytree.tree_leaves_with_path(pytree.tree_unflatten(list(range(len(places))), signature.in_spec))
    names = getattr(signature, "forward_arg_names", None)
    for path, i in leaves:
        (side, place), rest = (path[0].idx, path[1]), path[2:]
        name = place.key if side == 1 else names[place.idx] if names and place.idx < len(names) else places[i]
        found[f"L['{name}']{pytree.keystr(rest)}"] = i, f"{name}{pytree.keystr(rest)}"
        found[f"L['flat_args'][{i}]"] = found[f"L['{name}']{pytree.keystr(rest)}"]
        base, _, number = name.rpartition("_")
        if base and number.isdigit():  # of *args
            found.setdefault(f"L['{base}'][{number}]{pytree.keystr(rest)}", (i, f"{base}[{number}]{pytree.keystr(rest)}"))
    return found


class _Rewrite(ast.NodeTransformer):
    """The names of arguments in a guard as `given[i]`, or as the program writes them; notes the sizes that it asks for."""

    def __init__(self, paths: dict, spoken: bool):
        self.paths, self.spoken, self.sizes = paths, spoken, {}

    def visit_Subscript(self, node):
        text = ast.unparse(node)
        if text in self.paths:
            i, name = self.paths[text]
            return ast.parse(name if self.spoken else f"given[{i}]", mode="eval").body
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute) and node.value.func.attr == "size":
            of = self.visit(node.value.func.value)
            axis = ast.unparse(node.slice)
            code = f"{ast.unparse(of)}.shape[{axis}]"
            self.sizes[code] = None
            return ast.parse(code, mode="eval").body
        return self.generic_visit(node)

    def visit_Attribute(self, node):
        """A program may come from a file: what its guards call is arithmetic, and what they ask of arguments is how these lie."""
        if ast.unparse(node.value) in self.paths and node.attr in ("stride", "storage_offset"):
            return ast.Attribute(self.visit(node.value), node.attr, node.ctx)
        module, name = getattr(node.value, "id", ""), node.attr.lstrip("_")
        if module != "math" and not (module == "torch" and name.startswith("sym_")):
            raise KeyError(node.attr)
        return node

    def visit_Name(self, node):
        if node.id == "L":  # of an argument that is not known
            raise KeyError(node.id)
        return node


def _read(text: str, paths: dict) -> tuple:
    """A guard as code, as words, and the sizes that it asks for as words and code."""
    asked, said = _Rewrite(paths, False), _Rewrite(paths, True)
    try:
        code, words = (how.visit(ast.parse(text.replace("\n", " "), mode="eval")) for how in (asked, said))
    except KeyError:
        raise UnsupportedError(f"the program depends on `{text}`, which cannot be asked at a call") from None
    return ast.unparse(code), ast.unparse(words), list(zip(said.sizes, asked.sizes))


def of_program(original, program, places, sizes) -> Guards:
    """The guards of an ExportedProgram, and the assertions on sizes that are nodes of it. `original`: before its operators were taken
    apart, which may add guards, and loses those of a program that was loaded. `places`: names of the user inputs. `sizes`: how
    dimensions follow from them."""
    signature = original.module_call_graph[0].signature
    texts = dict.fromkeys([*getattr(original, "_guards_code", ()), *getattr(program, "_guards_code", ())])
    paths = _paths(signature, places) if texts else {}
    return Guards([*(_read(text, paths) for text in texts), *_assertions(program, sizes)])


class Guards:
    """What is asked of the sizes at each call: [code, words, [[words of a size, its code]]]."""

    def __init__(self, asked):
        self.asked = asked
        self._asked = [(compiled(code), words, [(said, compiled(size)) for said, size in shown]) for code, words, shown in asked]

    def check(self, given):
        """Raises what does not hold of the arguments of a call."""
        if not self._asked:
            return
        given = [torch.as_tensor(a) if hasattr(a, "shape") else a for a in given]
        for code, words, shown in self._asked:
            if not _holds(code, given):
                raise _refused(words, {said: value(size, given) for said, size in shown})


_NAMES = {**SYMPY_INTERP, "inf": float("inf"), "__builtins__": {"min": min, "max": max, "abs": abs, "int": int, "float": float, "round": round}}


_ARITHMETIC = (ast.Expression, ast.BoolOp, ast.boolop, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Compare, ast.cmpop, ast.Call,
               ast.IfExp, ast.Subscript, ast.Attribute, ast.Name, ast.Constant, ast.Tuple, ast.expr_context)


@functools.cache
def compiled(code: str):
    """The code of a text, which may have come with a file: it is arithmetic of how arguments lie, and nothing else."""
    tree = ast.parse(code, "<guard>", "eval")
    for node in ast.walk(tree):
        module = node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
        known = module == "math" and node.attr[0] != "_" or module == "torch" and node.attr.lstrip("_").startswith("sym_")
        if not isinstance(node, _ARITHMETIC) or isinstance(node, ast.Attribute) and not known and (
                node.attr not in ("shape", "stride", "storage_offset")):
            raise InvalidError(f"`{code}` is no condition on sizes", node=code)
    return compile(tree, "<guard>", "eval")


def value(code, given):
    """What a text, or the code of one, gives for the arguments of a call."""
    return eval(compiled(code) if isinstance(code, str) else code, _NAMES, {"given": given})


def _holds(code, given) -> bool:
    try:
        return bool(value(code, given))
    except ZeroDivisionError:  # of a size that is 0: the program was made for others
        return False


def _refused(words: str, sizes: dict) -> InvalidError:
    here = ", ".join(f"{said} is {int(value)}" for said, value in sizes.items())
    return InvalidError(f"error[CLV2014]: the program was made for sizes with `{words}`; here {here}", code="CLV2014", node=words, hint=_HINT)


def _assertions(program, sizes):
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op != "call_function" or "_assert_scalar" not in str(node.target) or not isinstance(node.args[0], torch.fx.Node):
                continue
            val = node.args[0].meta.get("val")
            if isinstance(val, torch.SymBool) and sizes.tell(val):
                yield _asserted(val.node.expr, sizes)


def _asserted(expr, sizes) -> tuple:
    symbols = sorted(expr.free_symbols, key=str)
    names = {symbol: aten_dims.symbol_name(symbol) for symbol in symbols}
    words = ast.unparse(ast.parse(aten_dims.written(expr, names), mode="eval"))
    return sizes.code(expr), words, [(names[symbol], sizes.code(symbol)) for symbol in symbols]
