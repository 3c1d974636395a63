"""What of a plugin does not fit a release, from the facts of that release."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .arguments import Lists
from .facts import ASKS, Facts, guarded, guarded_functions, hooks, place_of
from .names import CLASS
from .plugin import Override, Plugin, Use

# Names that the plugin needs only in releases without another name, or only in releases with
# another one. (Which ones, it finds out when it runs.)
_UTILS = "vllm.model_executor.model_loader.utils"
WITHOUT = {
    f"{_UTILS}.{name}": f"{_UTILS}.is_deferred_attention_layer"
    for name in ("Attention", "MLAAttention", "MMEncoderAttention")
}
_MANAGER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
WITH = {
    "sglang.srt.managers.io_struct.BeginWeightUpdateReqOutput": (_MANAGER, "begin_weight_update")
}
_WORKER = "vllm.v1.worker.gpu_worker.Worker"


ANY = "*"  # a problem of no module


class Problem(NamedTuple):
    """module: of the plugin, "" for the package itself, or ANY."""

    module: str
    text: str


def of(facts: Facts, plugin: Plugin) -> list[Problem]:
    """All of them. Raises KeyError if the facts were made for another state of the plugin: they
    lack a name that the plugin uses now."""
    found = [problem for module in plugin.files for problem in _of_module(facts, plugin, module)]
    for of_all in (_sources, _hooks, _guarded, _guarded_functions, _arguments):
        found += of_all(facts, plugin)
    return found


def _of_module(facts: Facts, plugin: Plugin, module: str) -> Iterator[Problem]:
    for use in plugin.uses(module):
        there = facts.names[use.name]
        if there is None and not use.optional and _needed(facts, use.name):
            yield Problem(module, f"{use.where}: there is no {use.name}")
        elif there is not None and use.call is not None:
            for text in _misfits(use, there):
                yield Problem(module, f"{use.where}: {use.name}{_parameters(there)} {text}")
    for override in plugin.overrides(module):
        yield from (Problem(module, text) for text in _override(facts, override))
    for base in sorted({override.base for override in plugin.overrides(module)}):
        own = {each.method for each in plugin.overrides(module) if each.base == base}
        if own and (missing := [name for name in facts.abstract[base] if name not in own]):
            yield Problem(module, f"{base} wants methods that ours lacks: {', '.join(missing)}")


def _sources(facts: Facts, plugin: Plugin) -> Iterator[Problem]:
    for name, texts, asking in plugin.sources():
        lacks = [text for text in texts if text not in facts.sources[name]]
        if lacks and (facts.seams[ASKS] or not asking):
            yield Problem("worker", f"{name} does not use {', '.join(lacks)}")


def _needed(facts: Facts, name: str) -> bool:
    if name in WITHOUT:
        return facts.names[WITHOUT[name]] is None
    if name in WITH:
        owner, method = WITH[name]
        return method in (facts.guarded[owner] or [])
    return True


def _hooks(facts: Facts, plugin: Plugin) -> Iterator[Problem]:
    for target in hooks(plugin):
        if not (facts.names[target] or "").startswith("("):
            yield Problem("hooks", f"hook target {target} is gone")


def _guarded(facts: Facts, plugin: Plugin) -> Iterator[Problem]:
    for path, (always, some, harmless) in guarded(plugin).items():
        has = facts.guarded[path]
        if has is None:
            yield Problem("guards", f"guarded class {path} is gone")
            continue
        for name in sorted(set(has) - {*always, *some, *harmless}):
            yield Problem("guards", f"{path}.{name} may write, and is not guarded")
        for name in sorted(set(always) - set(has)):
            yield Problem("guards", f"guarded method {path}.{name} is gone")


def _guarded_functions(facts: Facts, plugin: Plugin) -> Iterator[Problem]:
    for row in guarded_functions(plugin):
        there = [name for name in row if facts.names[place_of(name)] is not None]
        if there and facts.names[there[0]] is None:
            yield Problem("guards", f"guarded function {there[0]} is gone")
    known = plugin.tables("guards").get("WEIGHT_METHODS", {})
    for name in facts.bases.get(_WORKER, {}) if known else ():
        if "weight" in name and name not in known and not name.startswith("_"):
            yield Problem("guards", f"{_WORKER}.{name} may write, and nobody has looked at it")


def _arguments(facts: Facts, plugin: Plugin) -> Iterator[Problem]:
    lists = Lists(plugin)
    for name in lists.unknown(facts.arguments):
        yield Problem(ANY, f"argument {name} is in neither list: counts, harmless")
    for name in lists.unknown_variables(facts.variables):
        yield Problem(ANY, f"variable {name} is in neither list: counts, harmless")


# ---- signatures ----


def _parameters(kind: str) -> str:
    return kind.removeprefix(f"{CLASS} ") if "(" in kind else ""


def _arguments_of(kind: str, bound: bool) -> ast.arguments | None:
    """Of a function or of a class; bound: without the first parameter. None: nobody knows."""
    parameters = _parameters(kind)
    if not parameters:
        return None
    node = ast.parse(f"def f{parameters}: pass").body[0]
    assert isinstance(node, ast.FunctionDef)
    if bound:
        del [*([node.args.posonlyargs] if node.args.posonlyargs else []), node.args.args][0][:1]
    return node.args


class _Signature:
    def __init__(self, arguments: ast.arguments) -> None:
        by_position = [*arguments.posonlyargs, *arguments.args]
        self.positions = [each.arg for each in by_position]
        self.named = [each.arg for each in arguments.kwonlyargs]
        self.any_positions, self.any_names = bool(arguments.vararg), bool(arguments.kwarg)
        defaults = len(by_position) - len(arguments.defaults)
        self.required = {
            *self.positions[:defaults],
            *(
                name
                for name, default in zip(self.named, arguments.kw_defaults, strict=True)
                if default is None
            ),
        }

    def __str__(self) -> str:
        stars = [*(["*"] if self.any_positions else []), *(["**"] if self.any_names else [])]
        return f"({', '.join([*self.positions, *self.named, *stars])})"


def _misfits(use: Use, kind: str) -> Iterator[str]:
    """Why a function or a class with this signature can't be called so."""
    call = use.call
    of_class = use.name.split(".")[-2][:1].isupper() and _parameters(kind).startswith("(cls")
    arguments = _arguments_of(kind, bound=kind.startswith(CLASS) or of_class)
    if arguments is None or call is None or call.positions is None:
        return
    takes = _Signature(arguments)
    if call.positions > len(takes.positions) and not takes.any_positions:
        yield f"takes {len(takes.positions)} by position, and gets {call.positions}"
    known = {*takes.positions[call.positions :], *takes.named}
    unknown = sorted(call.named - known)
    if unknown and not takes.any_names:
        yield f"does not take {', '.join(unknown)}"
    missing = takes.required - set(takes.positions[: call.positions]) - call.named
    if missing:
        yield f"needs {', '.join(sorted(missing))}"


def _override(facts: Facts, override: Override) -> Iterator[str]:
    """Whether the engine's method is there, and ours takes every call that the engine's takes."""
    methods = facts.bases[override.base]
    title = f"{override.where}: {override.base.rpartition('.')[2]}.{override.method}"
    theirs_text = methods.get(override.method)
    if theirs_text is None:
        if not methods:
            yield f"{title}: there is no {override.base}"
        elif override.declared:
            yield f"{title} is gone"
        return
    pair = [_arguments_of(text, _is_bound(text)) for text in (override.signature, theirs_text)]
    if pair[0] is None or pair[1] is None:
        return
    ours, theirs = _Signature(pair[0]), _Signature(pair[1])
    lacks = _lacks(ours, theirs)
    if lacks:
        yield f"{title} takes {ours}, the engine's {theirs}: {'; '.join(lacks)}"


def _is_bound(text: str) -> bool:
    return text.startswith(("(self", "(cls"))


def _lacks(ours: _Signature, theirs: _Signature) -> list[str]:
    found = []
    everything = {*ours.positions, *ours.named}
    for place, name in enumerate(theirs.positions):
        same = place < len(ours.positions) and ours.positions[place] == name
        if not same and not (ours.any_positions and (ours.any_names or name in everything)):
            found.append(f"no {name} at place {place + 1}")
    found += [
        f"no {name}" for name in theirs.named if name not in everything and not ours.any_names
    ]
    if theirs.any_names and not ours.any_names:
        found.append("no further names")
    extra = ours.required - {*theirs.positions, *theirs.named}
    return found + [f"needs {name}, which the engine does not give" for name in sorted(extra)]


def texts(found: Iterable[Problem]) -> list[str]:
    return sorted({problem.text for problem in found})
