"""Names in an engine's texts: where they are defined, and how they are called."""

from __future__ import annotations

import abc
import ast
import enum
import functools
import pathlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .wheels import Texts

Function = ast.FunctionDef | ast.AsyncFunctionDef
# What a name may be, beside a function's signature.
MODULE, CLASS, VALUE, PROPERTY, LAZY = "module", "class", "value", "property", "by __getattr__"
DEPTH_MAX = 12  # of imports that lead from one module to the next
# Classes of Python from which an engine's classes derive.
_PYTHONS: dict[str, type] = {
    "ABC": abc.ABC,
    "Enum": enum.Enum,
    "IntEnum": enum.IntEnum,
    "Generic": object,
    "Protocol": object,
}


class Found(NamedTuple):
    """node: of a class or a function, None for other names. module: the module that defines it."""

    kind: str
    module: str = ""
    node: ast.AST | None = None


@functools.lru_cache(maxsize=1000)  # of a release and of copies of it that differ in one text
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


class Names:
    """Finds names in the texts of a release."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self._folders = {
            str(folder) for path in texts.paths() for folder in pathlib.PurePosixPath(path).parents
        }
        self.module = functools.cache(self._module)
        self._bound = functools.cache(self._bound_in)

    def path(self, module: str) -> str | None:
        """The file of a module. A package without a file has its folder."""
        path = module.replace(".", "/")
        files = (f"{path}.py", f"{path}/__init__.py")
        found = next((file for file in files if file in self.texts), None)
        return path if found is None and path in self._folders else found

    def _module(self, module: str) -> ast.Module | None:
        path = self.path(module)
        return parsed(self.texts[path]) if path is not None and path in self.texts else None

    def find(self, dotted: str, depth: int = 0) -> Found | None:
        """What a dotted name is, or None if there is no such name."""
        parts = dotted.split(".")
        for cut in range(len(parts), 0, -1):
            module = ".".join(parts[:cut])
            if self.path(module) is not None:
                return self._inside(Found(MODULE, module), parts[cut:], depth)
        return None

    def _inside(self, found: Found, parts: list[str], depth: int) -> Found | None:
        for part in parts:
            if found.kind == MODULE:
                inner = self._in_module(found.module, part, depth)
            elif found.kind == CLASS:
                inner = self.member(found, part)
            else:
                inner = None
            if inner is None:
                return None
            found = inner
        return found

    def _in_module(self, module: str, name: str, depth: int) -> Found | None:
        if depth > DEPTH_MAX:
            return None
        if self.path(f"{module}.{name}") is not None:
            return Found(MODULE, f"{module}.{name}")
        bound = self._bound(module)
        if name in bound:
            what = bound[name]
            if isinstance(what, str):  # imported from there
                inner = self.find(what, depth + 1)
                ours = what.split(".")[0] == self.texts.engine
                return inner if ours else Found(VALUE, module)
            return _found(what, module)
        for star in (each for each in bound if each.startswith("*")):
            if (inner := self._in_module(star[1:], name, depth + 1)) is not None:
                return inner
        return Found(LAZY, module) if "__getattr__" in bound else None

    def _bound_in(self, module: str) -> dict[str, ast.AST | str]:
        """What the names of a module stand for: a node, or a dotted name that was imported. A name
        that begins with * is a module of which everything is imported."""
        tree = self.module(module)
        package = self.path(module) == f"{module.replace('.', '/')}/__init__.py"
        bound: dict[str, ast.AST | str] = {}
        for node in statements([] if tree is None else tree.body):
            if isinstance(node, ast.ImportFrom):
                source = imported_from(node, module, package)
                for each in node.names:
                    star = f"*{source}" if each.name == "*" else each.asname or each.name
                    bound[star] = f"{source}.{each.name}"
            elif isinstance(node, ast.Import):
                for each in node.names:
                    name = each.asname or each.name.split(".")[0]
                    bound[name] = each.name if each.asname else name
            else:
                bound.update(dict.fromkeys(defined(node), node))
        return bound

    def classes(self, found: Found, depth: int = 0) -> Iterator[Found]:
        """A class, and then those from which it derives, as far as they are the engine's."""
        yield found
        if isinstance(found.node, ast.ClassDef) and depth < DEPTH_MAX:
            for base in found.node.bases:
                dotted = dotted_of(base.value if isinstance(base, ast.Subscript) else base)
                inner = dotted and self.find(f"{found.module}.{dotted}", depth + 1)
                if inner and inner.kind == CLASS:
                    yield from self.classes(inner, depth + 1)

    def member(self, found: Found, name: str) -> Found | None:
        assert found.node is not None
        outside: set[str] = set()
        for each in self.classes(found):
            assert isinstance(each.node, ast.ClassDef)
            for node in reversed(list(statements(each.node.body))):
                if name in defined(node):
                    return _found(node, each.module)
            outside.update(self._outside(each))
        if name == "__dataclass_fields__" and decorators_of(found.node) & {"config", "dataclass"}:
            return Found(VALUE, found.module)
        # Of a class that is neither the engine's nor Python's, nobody knows here what it has.
        kinds = [_PYTHONS.get(base) for base in outside]
        inherited = hasattr(object, name) or any(
            kind is None or hasattr(kind, name) for kind in kinds
        )
        return Found(VALUE, found.module) if inherited else None

    def _outside(self, found: Found) -> Iterator[str]:
        """The names of those bases of a class that are not the engine's."""
        assert isinstance(found.node, ast.ClassDef)
        for base in found.node.bases:
            dotted = dotted_of(base.value if isinstance(base, ast.Subscript) else base)
            inner = self.find(f"{found.module}.{dotted}") if dotted else None
            if inner is None or inner.kind != CLASS:
                yield dotted.rpartition(".")[2]

    def methods(self, found: Found) -> dict[str, Found]:
        """All methods of a class, those of its bases among them."""
        made: dict[str, Found] = {}
        for each in self.classes(found):
            assert isinstance(each.node, ast.ClassDef)
            for node in statements(each.node.body):
                if isinstance(node, Function):
                    made.setdefault(node.name, _found(node, each.module))
        return made

    def source(self, found: Found) -> str:
        """The text of a function or a class."""
        path = self.path(found.module)
        assert path is not None
        assert found.node is not None
        return ast.get_source_segment(self.texts[path], found.node) or ""


def _found(node: ast.AST, module: str) -> Found:
    if isinstance(node, ast.ClassDef):
        return Found(CLASS, module, node)
    if not isinstance(node, Function):
        return Found(VALUE, module)
    if decorators_of(node) & {"property", "cached_property", "setter"}:
        return Found(PROPERTY, module, node)
    return Found(signature(node), module, node)


def is_abstract(found: Found) -> bool:
    return "abstractmethod" in decorators_of(found.node) if found.node is not None else False


def signature(node: Function) -> str:
    """ "(self, level=1, *, tags=None)": without types. A static method has no self."""
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): pass").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    for each in ast.walk(arguments.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return f"({ast.unparse(arguments.args)})"


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, and those below if, try and with."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)
            for name in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, name, None) or [])
        else:
            yield node


def defined(node: ast.AST) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [
        each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
    ]


def imported_from(node: ast.ImportFrom, module: str, package: bool) -> str:
    """The dotted name of the module from which it imports."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = parts[: len(parts) - node.level + package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def dotted_of(node: ast.AST) -> str:
    """ "a.b.c" for a name and attributes of it, "" for another expression."""
    if isinstance(node, ast.Attribute):
        inner = dotted_of(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def decorators_of(node: ast.AST) -> set[str]:
    """The last parts of the names of decorators: "property", "config"."""
    found = getattr(node, "decorator_list", [])
    names = (dotted_of(each.func if isinstance(each, ast.Call) else each) for each in found)
    return {name.rpartition(".")[2] for name in names}
