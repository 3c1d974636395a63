"""The documents' examples in Python, and the docstrings' ones, as modules for type checkers: a
function for each section. Names that an example takes as given are those of `reader.py`."""

from __future__ import annotations

import ast
import builtins
import pathlib
import re
import textwrap
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PACKAGE = ROOT / "python" / "gpuwm"

Section = tuple[str, list[str]]  # its name, and its blocks


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def modules() -> dict[str, str]:
    """The modules' sources by their names."""
    documents = {path.relative_to(ROOT): sections(path) for path in (ROOT / "README.md", *DOCS)}
    sources = {path.relative_to(ROOT): docstrings(path) for path in sorted(PACKAGE.rglob("*.py"))}
    made = {}
    for path, found in (documents | sources).items():
        functions = [function(name, code) for name, code in found if code]
        if functions:
            made[_name(str(path))] = "\n\n".join(["from __future__ import annotations", *functions])
    return made


def sections(page: pathlib.Path) -> list[Section]:
    """Of the headings `##`."""
    first, *parts = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    named = [("begin", first), *((part.partition("\n")[0], part) for part in parts)]
    return [(name, blocks(text, "python")) for name, text in named]


def docstrings(file: pathlib.Path) -> Iterator[Section]:
    """What is set apart in a docstring, and calls or imports something."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            apart = re.findall(r"^(?: {4}.*\n?|\n(?= {4}))+", text, re.MULTILINE)
            name = getattr(node, "name", "module")
            yield name, [code for code in map(textwrap.dedent, apart) if _is_example(code)]


def _is_example(code: str) -> bool:
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:  # prose, a table
        return False
    returns = any(isinstance(node, ast.Return) for node in nodes)  # a part of a function
    return not returns and any(isinstance(node, ast.Call | ast.Import) for node in nodes)


def function(section: str, code: list[str]) -> str:
    body = "\n".join(code)
    tree = ast.parse(body)
    waits = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    kind = "async def" if any(isinstance(node, waits) for node in ast.walk(tree)) else "def"
    head = [f"{kind} {_name(section)}() -> None:"]
    head += [f"    from reader import {name}" for name in sorted(given(tree))]
    return "\n".join([*head, textwrap.indent(body, "    ")])


def given(tree: ast.Module) -> set[str]:
    """The names that a section uses before it has defined them."""
    defined = {*dir(builtins)}
    found: set[str] = set()
    for statement in tree.body:
        used, made = _used(statement), _made(statement)
        found |= used - defined - (set() if isinstance(statement, ast.Assign) else made)
        defined |= made
    return found


def _used(statement: ast.stmt) -> set[str]:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    inner = {node.arg for node in ast.walk(statement) if isinstance(node, ast.arg)}
    for node in ast.walk(statement):
        if isinstance(node, ast.comprehension):
            inner |= _made(node.target)
    return {node.id for node in names if isinstance(node.ctx, ast.Load)} - inner


def _made(statement: ast.AST) -> set[str]:
    made = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.add(node.id)
        elif isinstance(node, ast.alias):
            made.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made.add(node.name)
    return made


def _name(text: str) -> str:
    return re.sub(r"\W+", "_", text.lower().removesuffix(".md").removesuffix(".py")).strip("_")
