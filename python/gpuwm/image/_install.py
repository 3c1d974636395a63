"""Installs an image: a module that was just built becomes the published one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .. import errors
from .._attach import attach_mapping
from .._mapping import Mapping as Attached
from .._shown import texts
from .._torch import aliases, counters, fit, guards, init, registry
from .._torch.bind import BindError, Globs
from .._torch.places import Place, modules_of, places
from ._publish import Lying, remember
from .graph import Graph
from .memory import Memory
from .objects import Objects
from .plan import Matching
from .postprocess import Replay, Replaying, own_calls
from .record import Record, read
from .slots import PARAMETER
from .tree import Tree


@dataclasses.dataclass(frozen=True)
class Installed:
    """What `install` did. mapping: of the version. All other fields are names, as in `describe`.

    - shared: tensors that are the version's memory, read-only.
    - private: tensors that got copies of their own.
    - registered: tensors that the module lacked.
    - dropped: tensors that only the module had.
    - retyped: tensors that had another class, dtype, shape or role.
    - values: plain values that were different.
    """

    mapping: Attached
    shared: tuple[str, ...]
    private: tuple[str, ...]
    registered: tuple[str, ...]
    dropped: tuple[str, ...]
    retyped: tuple[str, ...]
    values: tuple[str, ...]

    def __repr__(self) -> str:
        return texts.of_fields(self)


def install(
    model: nn.Module,
    image: str | Attached,
    *,
    private: Globs = (),
    guard: bool = True,
    replay: Replay = (),
    **options: Any,
) -> Installed:
    """Makes a module equal to the one that `publish` got: the same names, tensors, ties and views,
    and the same plain values, in the module and in everything that it refers to.

    - model: made by the same code with the same configuration, under `gpuwm.empty_init()`, on
      torch's device `meta` or with memory.
    - image: what `gpuwm.attach` takes, with its keywords as `options`; or a mapping.
    - private: globs of names that get copies.
    - replay: see below.

    Tensors are registered, dropped, retyped and exchanged, whatever the module has. Afterwards it
    is the published one, even if `model` had other shapes or dtypes; the result lists the names. If
    torch allows it, a tensor that is exchanged stays the same object, so that other holders of it
    have the new one. Parameters and tensor attributes are shared, read-only and guarded as by
    `Mapping.bind`. Buffers get copies. Nothing requires gradients. Python's containers are
    exchanged, and so are objects that hang on tensors, which are made without their constructors;
    modules and other helper objects are neither made nor exchanged. So a module that only one side
    has, an object of another class and another function are problems: only the code that makes them
    can help, see `replay`. An object that hangs on a tensor, such as `weight.state`, and that the
    version lacks is a problem too, unless the publisher's `ignored` names it.

    replay: pairs of (module, function) in the engine's order, for what post-processing leaves in
    Python: kernels, methods, configurations. For each pair, the tensors on `meta` of the module,
    and of those below it that are not in `replay` themselves, get scratch memory: ones in
    floating-point numbers of 16 bits and more, zeros otherwise. Then `function(module)` runs. At
    once every tensor that is reachable from there is exchanged for the image's, and the scratch
    memory is freed; if a module has several pairs, after the last one. No byte of the image is
    post-processed. So scratch memory is needed for one module at a time.

    What an image does not carry is compared where it says what it is: see the guide to Python. If
    a tensor on a module's class is another one, that is a problem. If a configuration, a lambda, an
    operator, a pattern or a generator has another content, a RuntimeWarning names it, before
    anything changes.

    It changes all or nothing. Nobody else may use the module meanwhile. Raises:

    - BindError: `problems` has every difference that can't be removed. The module is as before,
      except for what functions of `replay` wrote into tensors that had memory, and did outside of
      the module.
    - what a function raises; the module is as after BindError.
    - Invalid: the version is not an image, only a part of it is attached, or a glob matches no
      tensor.
    - Unsupported: a newer gpuwm wrote the image.
    - Damaged: the image's record is damaged.
    - all errors of gpuwm.attach.
    """
    mapping = attached(image, options)
    return installed(model, mapping, read(mapping), private, guard, replay, None)


def installed(
    model: nn.Module,
    mapping: Attached,
    record: Record,
    private: Globs,
    guard: bool,
    replay: Replay,
    objects: Callable[[torch.device], Objects] | None,
) -> Installed:
    """`install`, with a record that was read. objects: makes what makes helper objects that the
    module lacks. None: they are problems."""
    with own_calls():
        tree = Tree(model)
        memory = Memory(mapping, record, private, guard)
        matching = Matching(record, memory, tree, objects(memory.device) if objects else None)
    replaying = Replaying(matching, replay, tree, record.opaque, memory.device)
    with fit.let_go(list(tree.modules.values())):
        try:
            problems = replaying.run()
            with own_calls():
                if not problems:
                    tree.look()
                    problems = _look(matching, record, tree, memory)
                if problems:
                    raise _error(model, mapping, problems)
                aliases.warn(_others(model, record, matching, memory))
                aliases.warn(_unlike(model, mapping, matching))
                _apply(matching, model, mapping)
        except BaseException:
            with own_calls():
                matching.journal.undo()
                replaying.undo()
            raise
        finally:
            memory.let_go()
    with own_calls():
        return _finish(mapping, model, record, memory, matching, guard)


def _others(model: nn.Module, record: Record, matching: Matching, memory: Memory) -> list[str]:
    """What has memory of tensors that are about to be exchanged, and is not exchanged itself."""
    moved = [
        aliases.Moved(record.tensors[at].name, tensor, tensor)
        for at, tensor in matching.objects.items()
        if matching.has_claimed(tensor) and record.tensors[at].parts is None
    ]

    def known() -> Iterator[torch.Tensor]:
        graph = Graph(model, record.opaque, record.ignored)
        yield from (leaf.tensor for leaf in graph.leaves if leaf.parts is None)
        yield from memory.copies()  # which the module has already, if post-processing ran on them

    return aliases.others_of(moved, known)


_NAMED = 5  # differences that a warning names


def _unlike(model: nn.Module, mapping: Attached, matching: Matching) -> list[str]:
    """What the image does not carry, and what differs here."""
    lines = list(dict.fromkeys(matching.unlike))
    if not lines:
        return []
    more = [f"and {len(lines) - _NAMED} more"] * (len(lines) > _NAMED)
    return [
        f"{type(model).__name__} and the image {mapping.version} differ in objects that an image "
        "does not carry, so the module may compute something else than the published one:\n  "
        + "\n  ".join((*lines[:_NAMED], *more))
        + "\nmake the module with the publisher's configuration; or, if these don't matter, "
        "publish the image with ignored= globs of their paths"
    ]


def attached(image: str | Attached, options: dict[str, Any]) -> Attached:
    if not isinstance(image, Attached):
        return attach_mapping(image, **options)
    if options:
        raise errors.Invalid(
            f"a mapping is attached already, and {', '.join(options)} is for attaching",
            "give the version's name",
        )
    return image


def _look(matching: Matching, record: Record, tree: Tree, memory: Memory) -> list[str]:
    matching.look_at_structure()
    matching.look(node.name for node in record.nodes[: record.modules])
    return list(dict.fromkeys(matching.problems)) or list(_written(record, tree, memory))


def _written(record: Record, tree: Tree, memory: Memory) -> Iterator[str]:
    """Parameters that can't be shared, because the module writes into them."""
    for node in record.nodes[: record.modules]:
        module = tree.modules[node.name]
        for kind, key, held in node.slots:
            if kind == PARAMETER and isinstance(held, dict) and "tensor" in held:
                tensor = record.tensors[held["tensor"]]
                if not memory.is_private(tensor):
                    place = Place(torch.empty(0), False, True, [tensor.name], [(module, key)])
                    if problem := guards.never_shared(place):
                        yield problem


def _apply(matching: Matching, model: nn.Module, mapping: Attached) -> None:
    try:
        matching.apply()
    except RuntimeError as error:
        raise _error(model, mapping, [f"torch refused a change: {error}"]) from error
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise _error(model, mapping, [f"object: it has no place for a value: {error}"]) from error


def _error(model: nn.Module, mapping: Attached, problems: Sequence[str]) -> BindError:
    count = "1 thing differs" if len(problems) == 1 else f"{len(problems)} things differ"
    kinds = {problem.split(":", 1)[0] for problem in problems}
    error = BindError(
        f"{type(model).__name__} and the image {mapping.version}: {count}, nothing was installed:"
        "\n  " + "\n  ".join(problems),
        "".join(f"\n{text}" for kind, text in _REMEDIES.items() if kind in kinds),
    )
    error.problems = tuple(problems)
    return error


_REMEDIES = {
    "module": "module: build the module with the publisher's code and configuration",
    "class": "class: keep the tensor as a buffer of the modules; or make it alike everywhere; "
    "or, if no module computes with it, publish the image with ignored= a glob of its path "
    "(*.NAME)",
    "object": "object: replay= the post-processing that makes it, as the publisher had it",
    "attribute": "attribute: build the module without it; or, if the published module had it too, "
    "publish the image with ignored= a glob of its path",
    "written": "written: private= its name",
}


def _finish(
    mapping: Attached,
    model: nn.Module,
    record: Record,
    memory: Memory,
    matching: Matching,
    guard: bool,
) -> Installed:
    rows = {id(tensor): record.tensors[at] for at, tensor in matching.objects.items()}
    found = places(modules_of(model))
    lying = [
        Lying(tensor, row.name, row.stored, row.seen, memory.is_private(row))
        for at, outer in matching.objects.items()
        for row, tensor in memory.parts_of(record.tensors[at], outer)
        if row.stored is not None
    ]
    remember(mapping, lying, found, memory.shared())
    shared = [
        tensor
        for tensor in matching.objects.values()
        if (row := rows[id(tensor)]).stored and not memory.is_private(row)
    ]
    counters.follow(registry.handle_of(mapping), shared)
    init.allow_calls(module for _, module in modules_of(model))
    if guard:
        guards.watch(found)
    reached = [each for row in rows.values() for each in memory.with_parts(row) if each.stored]
    changes = matching.changes
    return Installed(
        mapping,
        tuple(name for row in reached if not memory.is_private(row) for name in row.names),
        tuple(name for row in reached if memory.is_private(row) for name in row.names),
        *(tuple(dict.fromkeys(changes.registered)), tuple(dict.fromkeys(changes.dropped))),
        *(tuple(dict.fromkeys(changes.retyped)), tuple(dict.fromkeys(changes.values))),
    )
