"""The modules of the package: none imports itself through others, and its root has few."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

PACKAGE = pathlib.Path(__file__).parents[1] / "gpuwm"
ROOT_MODULES_MAX = 24  # what a reader takes in at one look: the rest has folders

Graph = dict[str, set[str]]


def module_name(path: pathlib.Path, package: pathlib.Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements below a node, also those in functions, but not those for type
    checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for otherwise in child.orelse:
                yield from imports(otherwise)
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        else:
            yield from imports(child)


def graph(package: pathlib.Path) -> Graph:
    """For each module of the package the modules of the package that it imports."""
    paths = {module_name(path, package): path for path in package.rglob("*.py")}
    found: Graph = {}
    for name, path in paths.items():
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found[name] = set()
        for each in imports(ast.parse(path.read_text())):
            if isinstance(each, ast.Import):
                targets = {alias.name for alias in each.names}
            else:
                above = folder.split(".")[: -each.level + 1 or None] if each.level else []
                base = ".".join([*above, *([each.module] if each.module else [])])
                full = {f"{base}.{alias.name}" for alias in each.names}
                targets = {target if target in paths else base for target in full}
            found[name] |= targets & paths.keys()
    return found


def circle(found: Graph) -> list[str]:
    """The modules that import each other, perhaps through others, and those between two such
    circles. Empty if there is none."""
    left = dict(found)
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    # What is left imports a circle. What nobody in it imports is not in a circle itself.
    while left and (top := left.keys() - set().union(*left.values())):
        for name in top:
            del left[name]
    return sorted(left)


def package(folder: pathlib.Path, **modules: str) -> Graph:
    here = folder / "package"
    here.mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (here / f"{name}.py").write_text(text)
    return graph(here)


def test_no_module_imports_itself_through_others() -> None:
    assert circle(graph(PACKAGE)) == []


def test_the_root_has_few_modules() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= ROOT_MODULES_MAX


def test_a_circle_through_a_function_is_found(tmp_path: pathlib.Path) -> None:
    found = package(
        tmp_path,
        top="from . import one",
        one="from .two import x",
        two="def x():\n    from package import one, low",
        low="import os",
    )
    assert circle(found) == ["package.one", "package.two"]


def test_imports_for_type_checkers_make_no_circle(tmp_path: pathlib.Path) -> None:
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .one import X"
    assert circle(package(tmp_path, one="from . import two", two=lazy)) == []
