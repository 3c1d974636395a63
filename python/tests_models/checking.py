"""What the two processes of the sweep do with a model: one publishes it, the other binds it."""

from __future__ import annotations

import dataclasses
import gc
import io
import itertools
import re
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

import gpuwm

from . import mending, outputs, recipes
from .recipes import Inputs

MOST_BYTES = 50 << 20  # of a model: what the sweep may have in memory for each
SEED, OTHER_SEED = 1, 2
MAKE_SECONDS = 6  # of a processor: after that, no other rule is tried
MOST_TRIES = 40  # rules
RUN_SECONDS = 4  # of a processor: after that, no other inputs are tried with one module
MOST_MENDS = 4  # of one set of inputs, by the words of errors
WORDS = 400  # characters of an error in the table


@dataclasses.dataclass
class Run:
    """One module of a model, what it was given, and what it returned."""

    path: str
    inputs: dict[str, Any]
    outputs: dict[str, torch.Tensor]


@dataclasses.dataclass
class Report:
    """ran: modules whose outputs were compared. unrun: why the model itself did not run.
    outcome: "equal", "unrun" (every tensor is equal, no inputs were found), "differs",
    "refused", "failed" (an error that is not gpuwm's), "not made"."""

    outcome: str
    words: str = ""
    rule: str = ""
    kind: str = ""
    bytes: int = 0
    release: str = ""
    ran: list[str] = dataclasses.field(default_factory=list)
    unrun: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


# What goes to the other process: a recipe, the runs, state_dict(), the other buffers, the report.
_Stored = tuple[Any, list[Run], dict[str, torch.Tensor], dict[str, torch.Tensor], Report]


class NotMade(Exception):
    """No rule made the model."""


def publish(
    library: str, name: str, ref: str, known: Mapping[str, Any] | None = None
) -> tuple[Report, bytes]:
    """Makes a model and publishes it. Returns a report, and what the other process needs: nothing
    if the sweep of this model ends here. known: the row of the last time, whose rule is tried
    first."""
    found = recipes.library(library)
    try:
        recipe, model, runs, unrun = _made(found, name, known or {})
    except NotMade as error:
        return Report("not made", _words(error), release=found.release), b""
    report = Report("equal", "", recipe.rule, type(model).__name__, recipes.bytes_of(model))
    report.release = found.release
    report.ran, report.unrun = [run.path or "model" for run in runs], unrun
    state = {name: each.clone() for name, each in model.state_dict().items() if _is_tensor(each)}
    hidden = _hidden_buffers(model)
    try:
        gpuwm.publish(model, ref, keep_last=1)  # the version before goes
        for each in _compare_runs(model, runs):
            report.notes.append(f"after publish: {each}")
            report.notes += [f"and once more: {again}" for again in _compare_runs(model, runs)]
    except gpuwm.Error as error:
        return dataclasses.replace(report, outcome="refused", words=_words(error)), b""
    except Exception as error:
        return dataclasses.replace(report, outcome="failed", words=_traced(error)), b""
    stored = io.BytesIO()
    torch.save((recipe, runs, state, hidden, report), stored)
    return report, stored.getvalue()


def bind(library: str, ref: str, stored: bytes) -> Report:
    """Makes the model on the version, and compares it with what the publisher had."""
    recipes.library(library)
    loaded: _Stored = torch.load(io.BytesIO(stored), weights_only=False)
    recipe, runs, state, hidden, report = loaded
    torch.manual_seed(OTHER_SEED)
    try:
        model = gpuwm.build(ref, recipe.make).eval().requires_grad_(False)
        problems = outputs.differences(_tensors(model), state)
        problems += _compare_runs(model, runs)
        notes = outputs.differences(_hidden_buffers(model), hidden)
    except gpuwm.Error as error:
        return dataclasses.replace(report, outcome="refused", words=_words(error))
    except Exception as error:
        return dataclasses.replace(report, outcome="failed", words=_traced(error))
    report.notes += [f"not in state_dict(): {each}" for each in notes]
    if problems:
        report.outcome, report.words = "differs", "; ".join(problems)[:WORDS]
        report.notes += _as_torch_itself(recipe, runs, state)
    elif not runs:
        report.outcome = "unrun"
    return report


def _as_torch_itself(recipe: Any, runs: list[Run], state: dict[str, torch.Tensor]) -> list[str]:
    """Whether a model that torch itself loads from the state_dict() differs as well."""
    torch.manual_seed(OTHER_SEED)
    model = recipe.make().eval().requires_grad_(False)
    model.load_state_dict(state, strict=False)
    found = _compare_runs(model, runs)
    return ["load_state_dict() gives " + (f"{found[0]}" if found else "equal outputs")]


def collect() -> None:
    gc.collect()


def _made(
    library: recipes.Library, name: str, known: Mapping[str, Any]
) -> tuple[Any, nn.Module, list[Run], list[str]]:
    """The first recipe whose model is small enough and runs; else the first that is made. If as
    much runs by the rule that is known as ran the last time, no other one is tried."""
    begun = time.process_time()
    reasons: list[str] = []
    unrun: tuple[Any, nn.Module, list[Run], list[str]] | None = None
    for recipe in _recipes(library, name, known.get("rule", "")):
        if time.process_time() - begun > MAKE_SECONDS or len(reasons) > MOST_TRIES:
            break
        try:
            with torch.device("meta"):
                size = recipes.bytes_of(recipe.make())
            if size > MOST_BYTES:
                reasons.append(f"{size >> 20} MiB")
                continue
            model = _seeded(recipe)
        except Exception as error:
            reasons.append(_words(error)[:120])
            continue
        runs, errors = _runs(library, model)
        if _tops(library, model) <= {run.path for run in runs}:
            return recipe, model, runs, []
        ran = {run.path or "model" for run in runs}
        if recipe.rule == known.get("rule") and ran >= set(known["ran"]):
            return recipe, model, runs, errors
        if unrun is None or len(runs) > len(unrun[2]):
            unrun = (recipe, model, runs, errors)
    if unrun is None:
        raise NotMade("; ".join(dict.fromkeys(reasons)) or "no rule")
    return unrun


def _tops(library: recipes.Library, model: nn.Module) -> set[str]:
    """The model itself; or the models of a pipeline, which does not run as a module."""
    paths = {path for path, _ in library.parts(model)}
    return {""} if "" in paths else {path for path in paths if "." not in path}


def _recipes(library: recipes.Library, name: str, rule: str) -> Iterator[recipes.Recipe]:
    """Those of the library, whose tables may name a class that it does not have. rule: of the one
    that comes first."""
    try:
        if rule:
            yield from itertools.islice((r for r in library.recipes(name) if r.rule == rule), 1)
        yield from (each for each in library.recipes(name) if each.rule != rule)
    except Exception as error:
        raise NotMade(_words(error)) from error


def _seeded(recipe: Any) -> nn.Module:
    torch.manual_seed(SEED)
    model: nn.Module = recipe.make()
    recipes.stir(model)
    return model.eval().requires_grad_(False)


def _runs(library: recipes.Library, model: nn.Module) -> tuple[list[Run], list[str]]:
    """Runs the model, and those of its parts that its own run does not call. Also returns the
    errors of the model itself."""
    found: list[Run] = []
    errors: dict[str, None] = {}
    called: set[nn.Module] = set()
    tops = _tops(library, model)

    def note(module: nn.Module, *_: Any) -> None:
        called.add(module)

    hooks = [each.register_forward_hook(note) for each in model.modules()]
    for path, part in library.parts(model):
        if part in called:
            continue
        torch.manual_seed(SEED)
        for run in _tried(library, path, part, errors if path in tops else {}, called):
            found.append(run)
            break
    for hook in hooks:
        hook.remove()
    return found, list(errors)


def _tried(
    library: recipes.Library,
    path: str,
    part: nn.Module,
    errors: dict[str, None],
    called: set[nn.Module],
) -> Iterator[Run]:
    """Runs of the module that return tensors. Of a run that fails, nothing counts as called."""
    begun = time.process_time()
    for inputs in library.inputs(part):
        given: Inputs | None = inputs
        for _ in range(MOST_MENDS):
            if given is None:
                break
            before = set(called)
            try:
                returned = _outputs(part, given)
            except Exception as error:
                errors[f"{path}{sorted(given)}: {_traced(error)}"] = None
                called.clear()
                called.update(before)
                given = mending.mended(given, error)
                continue
            if returned:
                yield Run(path, given, returned)
            break
        if time.process_time() - begun > RUN_SECONDS:
            return


def _outputs(module: nn.Module, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    torch.manual_seed(SEED)
    given = {k: v.clone() if _is_tensor(v) else v for k, v in inputs.items()}
    with torch.no_grad():
        return outputs.tensors_of(module(**given))


def _run(model: nn.Module, run: Run) -> dict[str, torch.Tensor]:
    return _outputs(model.get_submodule(run.path), run.inputs)


def _compare_runs(model: nn.Module, runs: list[Run]) -> list[str]:
    return [
        f"{run.path or 'model'}: {each}"
        for run in runs
        for each in outputs.differences(_run(model, run), run.outputs)
    ]


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: each for name, each in model.state_dict().items() if _is_tensor(each)}


def _hidden_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Buffers that state_dict() leaves out."""
    kept = model.state_dict().keys()
    return {n: b.clone() for n, b in model.named_buffers() if n not in kept}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _words(error: BaseException) -> str:
    """Without the folder where this machine has its packages."""
    text = re.sub(r"/\S*/site-packages/", "", f"{type(error).__name__}: {error}")
    return text[:WORDS].replace("\n", " ")


def _traced(error: BaseException) -> str:
    """With the last line of code that is not torch's."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{_words(error)} ({last.filename.rpartition('site-packages/')[2]}:{last.lineno})"


def names(library: str, files: bool) -> list[str]:
    found = recipes.library(library)
    return found.one_of_each_file() if files else found.names()
