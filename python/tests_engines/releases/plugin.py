"""What our plugins use of an engine, read from their own source."""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .names import Function, defined, dotted_of, imported_from, signature, statements
from .wheels import ROOT

PACKAGE = ROOT / "python" / "gpuwm"
_ABSENCE = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"}


class Call(NamedTuple):
    """A call that the plugin makes: how many arguments go by position, and which by name. None: it
    unpacks a list or a dictionary, so nobody can tell."""

    positions: int | None
    named: frozenset[str]


class Use(NamedTuple):
    """name: dotted, of the engine. where: the file and the line. optional: the plugin asks whether
    the name is there."""

    name: str
    where: str
    optional: bool = False
    call: Call | None = None


class Override(NamedTuple):
    """A method of a class of ours that derives from the engine's class `base`. declared:
    `_bases.py` has the method, so the plugin counts on it."""

    base: str
    method: str
    where: str
    signature: str
    declared: bool


class Source(NamedTuple):
    """Texts that the source of a function of the engine must have, so that the plugin's worker can
    override it. asking: only in releases that ask the loader for the size of weights."""

    name: str
    texts: tuple[str, ...]
    asking: bool


class Plugin:
    """The plugin for one engine: the folder python/gpuwm/ENGINE, or another one with such files."""

    def __init__(self, engine: str, folder: pathlib.Path | None = None) -> None:
        self.engine = engine
        self.folder = PACKAGE / engine if folder is None else folder
        self.files = {self._module(file): file for file in sorted(self.folder.rglob("*.py"))}
        self.tree = functools.cache(lambda module: ast.parse(self.files[module].read_text()))

    def _module(self, file: pathlib.Path) -> str:
        parts = file.relative_to(self.folder).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    def closure(self, *modules: str) -> set[str]:
        """These modules, and all of the plugin that they import when they run."""
        found: set[str] = set()
        waiting = list(modules)
        while waiting:
            module = waiting.pop()
            if module in self.files and module not in found:
                found.add(module)
                # The package imports everything, each thing when it is asked for.
                waiting += self._imports(module) if module else []
        return found

    def _imports(self, module: str) -> Iterator[str]:
        package = self.files[module].name == "__init__.py"
        checked = [
            inner
            for node in ast.walk(self.tree(module))
            if isinstance(node, ast.If) and dotted_of(node.test) == "TYPE_CHECKING"
            for inner in node.body
        ]
        for node in ast.walk(self.tree(module)):
            if isinstance(node, ast.ImportFrom) and node.level and node not in checked:
                source = imported_from(node, f"gpuwm.{self.engine}.{module}".rstrip("."), package)
                if f"{source}.".startswith(f"gpuwm.{self.engine}."):
                    own = source.removeprefix(f"gpuwm.{self.engine}").lstrip(".")
                    yield own
                    yield from (f"{own}.{each.name}".lstrip(".") for each in node.names)

    def aliases(self, module: str) -> dict[str, str]:
        """What the names that this module imports of the engine, outside of functions, stand
        for."""
        return _aliases(statements(self.tree(module).body), self.engine)

    def uses(self, module: str) -> list[Use]:
        """What the module imports, reads and calls of the engine, each name of a line once."""
        reader = _Reader(self.aliases(module), self._where(module), self.engine)
        reader.visit(self.tree(module))
        asked = {use.name for use in reader.found if use.optional}
        return sorted(
            {use._replace(optional=use.optional or use.name in asked) for use in reader.found},
            key=str,
        )

    def _where(self, module: str) -> str:
        return str(self.files[module].relative_to(self.folder.parent))

    def overrides(self, module: str) -> Iterator[Override]:
        """The methods of classes that derive from the engine's, of this module."""
        aliases, declared = self.aliases(module), self._declared()
        bases: dict[str, str] = {}  # of the classes of this file
        for node in statements(self.tree(module).body):
            if not isinstance(node, ast.ClassDef):
                continue
            names = [dotted_of(base) for base in node.bases]
            found = [bases.get(name) or _full(name, aliases) for name in names]
            engines = [name for name in found if name]
            if not engines:
                continue
            bases[node.name] = base = engines[-1]
            known = declared.get(base.rpartition(".")[2], set())
            for method in node.body:
                if isinstance(method, Function) and method.name != "__init__":
                    where = f"{self._where(module)}:{method.lineno}"
                    own = method.name in known
                    yield Override(base, method.name, where, signature(method), own)

    def _declared(self) -> dict[str, set[str]]:
        """The methods that `_bases.py` tells type checkers of, by class."""
        if "_bases" not in self.files:
            return {}
        classes = [each for each in self.tree("_bases").body if isinstance(each, ast.ClassDef)]
        return {
            each.name: {node.name for node in each.body if isinstance(node, Function)}
            for each in classes
        }

    def tables(self, module: str) -> dict[str, Any]:
        """The values of the literals of a module, by name. Names of functions, and classes that are
        called, stand for themselves: `Guarded({"a": update}, {}, ())` is [{"a": "update"}, {}, []].
        """
        constants: dict[str, Any] = {}
        for node in statements(self.tree(module).body if module in self.files else []):
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                constants.update(dict.fromkeys(defined(node), _literal(node.value, constants)))
        return constants

    def sources(self) -> list[Source]:
        """The texts that the plugin looks for in the engine's functions, so that it can override
        them. The plugin has them in tables of these names."""
        found = []
        for module in ("worker", "releases"):
            for table in ("_USES", "USES", "USES_ASKING"):
                rows = self.tables(module).get(table, [])
                found += [self._source(module, table, row) for row in rows]
        return found

    def _source(self, module: str, table: str, row: list[Any]) -> Source:
        dotted = ".".join(row[:-1])
        name = _full(dotted, self.aliases(module)) or dotted
        return Source(name, tuple(row[-1]), asking=table.endswith("_ASKING"))

    def asked_for(self, module: str) -> set[str]:
        """The names of attributes for which the module asks: getattr(…, "name", …)."""
        calls = [node for node in ast.walk(self.tree(module)) if isinstance(node, ast.Call)]
        second = [call.args[1] for call in calls if dotted_of(call.func) == "getattr"]
        return {
            each.value
            for each in second
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        }


def _aliases(body: Iterable[ast.AST], engine: str) -> dict[str, str]:
    found = {}
    for node in body:
        if isinstance(node, ast.ImportFrom) and not node.level and _is_of(node.module, engine):
            for each in node.names:
                found[each.asname or each.name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                if _is_of(each.name, engine):
                    first = each.name.split(".")[0]
                    found[each.asname or first] = each.name if each.asname else first
    return found


def _full(dotted: str, aliases: dict[str, str]) -> str:
    """The engine's name for a name of the plugin, or ""."""
    first, dot, rest = dotted.partition(".")
    return f"{aliases[first]}{dot}{rest}" if first in aliases else ""


def _is_of(module: str | None, engine: str) -> bool:
    return (module or "").split(".")[0] == engine


class _Reader(ast.NodeVisitor):
    """Collects uses. Knows whether it is below a try whose handler takes an absence."""

    def __init__(self, aliases: dict[str, str], file: str, engine: str) -> None:
        self._aliases, self._file, self._engine = aliases, file, engine
        self._tries = 0
        self.found: list[Use] = []

    def _add(
        self, node: ast.AST, name: str, optional: bool = False, call: Call | None = None
    ) -> None:
        where = f"{self._file}:{getattr(node, 'lineno', 0)}"
        self.found.append(Use(name, where, optional or self._tries > 0, call))

    def visit_Try(self, node: ast.Try) -> None:
        caught = [dotted_of(each) for handler in node.handlers for each in _kinds(handler)]
        absence = bool(_ABSENCE & set(caught))
        self._tries += absence
        for statement in node.body:
            self.visit(statement)
        self._tries -= absence
        for rest in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(rest)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outside = self._aliases
        self._aliases = {**outside, **_aliases(statements(node.body), self._engine)}
        self.generic_visit(node)
        self._aliases = outside

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and _is_of(node.module, self._engine):
            for each in node.names:
                self._add(node, f"{node.module}.{each.name}")

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            if _is_of(each.name, self._engine):
                self._add(node, each.name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if (name := self._full(node)) is not None:
            self._add(node, name)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = dotted_of(node.func)
        asked = function == "hasattr" or (function == "getattr" and len(node.args) == 3)
        attribute = node.args[1] if asked else None
        if isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
            if (owner := self._full(node.args[0])) is not None:
                self._add(node, f"{owner}.{attribute.value}", optional=True)
        elif (name := self._full(node.func)) is not None:
            starred = any(isinstance(each, ast.Starred) for each in node.args)
            names = [each.arg for each in node.keywords]
            known = not starred and None not in names
            named = frozenset(each for each in names if each is not None)
            self._add(node, name, call=Call(len(node.args) if known else None, named))
        for each in [*([] if self._full(node.func) else [node.func]), *node.args, *node.keywords]:
            self.visit(each)

    def _full(self, node: ast.AST) -> str | None:
        """The engine's name for what is read here, or None."""
        return _full(dotted_of(node), self._aliases) or None


def _kinds(handler: ast.ExceptHandler) -> Iterable[ast.AST]:
    if isinstance(handler.type, ast.Tuple):
        return handler.type.elts
    return [] if handler.type is None else [handler.type]


def _literal(node: ast.AST | None, constants: dict[str, Any]) -> Any:
    def each(nodes: Iterable[ast.AST]) -> list[Any]:
        made: list[Any] = []
        for inner in nodes:
            if isinstance(inner, ast.Starred):
                made += _literal(inner.value, constants) or []
            else:
                made.append(_literal(inner, constants))
        return made

    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return each(node.elts)
    if isinstance(node, ast.Dict):
        keys = [_literal(key, constants) for key in node.keys]
        return dict(zip(keys, each(node.values), strict=True))
    if isinstance(node, ast.Call) and dotted_of(node.func) in ("frozenset", "re.compile"):
        return _literal(node.args[0], constants) if node.args else []
    if isinstance(node, ast.Call):
        return each([*node.args, *(keyword.value for keyword in node.keywords)])
    if isinstance(node, ast.Name) and node.id in constants:
        return constants[node.id]
    return "" if node is None else dotted_of(node)
