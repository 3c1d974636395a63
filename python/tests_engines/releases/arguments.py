"""The arguments of a release, and what our plugins know of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase

from .names import CLASS, Found, Names, decorators_of, defined, dotted_of, statements
from .plugin import Plugin

# The fields of each class of arguments, in the order of the names: "port", or "cache_config:
# CacheConfig" if the field's value is another such class.
Arguments = dict[str, list[str]]


def of_release(names: Names) -> Arguments:
    """vLLM: the fields of EngineArgs and of every class of vllm.config. SGLang: of ServerArgs."""
    if names.texts.engine == "sglang":
        return {"ServerArgs": sorted(_server_args(names))}
    classes = {"EngineArgs": "vllm.engine.arg_utils.EngineArgs"}
    for path in sorted(names.texts.paths()):
        if re.fullmatch(r"vllm/config/.*\.py", path):
            module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            tree = names.module(module)
            for node in statements([] if tree is None else tree.body):
                if isinstance(node, ast.ClassDef) and _is_config(node):
                    classes[node.name] = f"{module}.{node.name}"
    found = {name: dict(_of_class(names, dotted)) for name, dotted in classes.items()}
    return {
        name: sorted(f"{field}{_held(kind, classes)}" for field, kind in fields.items())
        for name, fields in sorted(found.items())
        if fields
    }


def variables_of_release(names: Names) -> list[str]:
    """The environment variables of vLLM: the keys of the dict in vllm/envs.py. SGLang has none:
    its plugin counts each variable of SGLang that is not named as harmless."""
    tree = names.module("vllm.envs") if names.texts.engine == "vllm" else None
    return sorted(
        key.value
        for node in statements([] if tree is None else tree.body)
        if isinstance(node, ast.AnnAssign) and dotted_of(node.target) == "environment_variables"
        and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )  # fmt: skip


def _held(kind: str, classes: Collection[str]) -> str:
    held = [word for word in re.findall(r"\w+", kind) if word in classes]
    return f": {held[0]}" if held else ""


def _is_config(node: ast.ClassDef) -> bool:
    return bool(decorators_of(node) & {"config", "dataclass"})


def _server_args(names: Names) -> set[str]:
    """Until SGLang 0.5.19 it is a class. Since then it is put together from the fields of the
    classes in `_INPUT_NAMESPACES`."""
    module = "sglang.srt.server_args"
    found = set(dict(_of_class(names, f"{module}.ServerArgs")))
    tree = names.module(module)
    for node in statements([] if tree is None else tree.body):
        if isinstance(node, ast.Assign) and dotted_of(node.targets[0]) == "_INPUT_NAMESPACES":
            assert isinstance(node.value, ast.List)
            for each in node.value.elts:
                found.update(dict(_of_class(names, f"{module}.{dotted_of(each)}")))
    return found


def _of_class(names: Names, dotted: str) -> Iterator[tuple[str, str]]:
    """The fields of a class and of its bases, each with its type."""
    found = names.find(dotted)
    if found is not None and found.kind == CLASS:
        for each in names.classes(found):
            yield from _fields(each)


def _fields(found: Found) -> Iterator[tuple[str, str]]:
    assert isinstance(found.node, ast.ClassDef)
    for node in found.node.body:
        if isinstance(node, ast.AnnAssign):
            kind = ast.unparse(node.annotation)
            if "ClassVar" not in kind and "InitVar" not in kind:
                yield from ((name, kind) for name in defined(node))


class Lists:
    """Which arguments the plugin knows. counts: weights may depend on them, or it refuses them.
    harmless: globs of those on which no weights depend. The lists of the plugin for SGLang have
    names, those of the plugin for vLLM have "CLASS.name". is_there: whether there are lists."""

    def __init__(self, plugin: Plugin) -> None:
        self.counts: set[str] = set()
        tables, harmless = plugin.tables("arguments"), plugin.tables("harmless")
        for name in ("TABLE", "COUNTS", "OF_DRAFT"):
            found = tables.get(name, {})
            self.counts.update(*(found.values() if isinstance(found, dict) else [found]))
        self.is_there = bool(self.counts)
        if "refusals" in plugin.files:
            self.counts.update(plugin.tables("refusals").get("REFUSED", {}))
            self.counts.update(plugin.asked_for("refusals"))
        self.variables: set[str] = set(plugin.tables("variables").get("LAYOUT", {}))
        self.harmless_variables: tuple[str, ...] = harmless.get("VARIABLES", ())
        self.harmless: list[str] = [*harmless.get("ARGUMENTS", ()), *harmless.get("FIELDS", ())]

    def unknown(self, arguments: Arguments) -> list[str]:
        """The arguments that are in neither list, as "CLASS.name"."""
        first = "VllmConfig" if "VllmConfig" in arguments else "ServerArgs"
        return sorted(self._unknown(arguments, first, set())) if self.is_there else []

    def unknown_variables(self, variables: Iterable[str]) -> list[str]:
        """The environment variables that are in neither list."""
        return [
            name
            for name in variables
            if name not in self.variables
            and not any(fnmatchcase(name, glob) for glob in self.harmless_variables)
        ]

    def _unknown(self, arguments: Arguments, owner: str, seen: set[str]) -> Iterator[str]:
        """Of a class, and of the classes that its fields hold, if these fields are in no list."""
        if owner in seen:
            return
        seen.add(owner)
        for field in arguments[owner]:
            name, _, held = field.partition(": ")
            if self._knows(name) or self._knows(f"{owner}.{name}"):
                continue
            if held in arguments:
                yield from self._unknown(arguments, held, seen)
            else:
                yield f"{owner}.{name}"

    def _knows(self, name: str) -> bool:
        harmless = any(fnmatchcase(name, glob) for glob in self.harmless)
        return name in self.counts or name.startswith("_") or harmless
