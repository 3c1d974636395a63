"""Makes the module of an image without the code that made the published one."""

from __future__ import annotations

import functools
import graphlib
from typing import Any

from torch import nn

from .. import errors
from .._mapping import Mapping as Attached
from .._torch.bind import Globs
from ._install import attached, installed
from .kinds import SIMPLE
from .nodes import Held, Node
from .objects import Objects, blank, module_class
from .record import FILES_BYTES, Record, read
from .shells import import_model, shell
from .slots import ATTRIBUTE, MODULE, step


def module(
    image: str | Attached, *, private: Globs = (), guard: bool = True, **options: Any
) -> nn.Module:
    """Makes the module that `publish` got. Neither its constructor nor any of its code runs, with
    one exception: models of transformers are made by their constructors, from their configurations.

    - image, private, guard, options: as in `install`. gpuwm.mapping_of(module) is the mapping.

    The record names classes and functions. They are looked up among what this process has imported,
    and nothing is imported but transformers' own models: import the modules that define them.
    Objects are made without `__init__`, and get the published attributes. Whoever published the
    version chooses the names: so attach only what comes from users whom you trust (owner=).

    Raises Unsupported if a module can't be made, and BindError if a helper object can't: `problems`
    has a line for each, such as lambdas, and objects of classes that this process has not imported.
    For such an image make the module yourself, and use `install`. Raises also all errors of
    `install`.
    """
    mapping = attached(image, options)
    record = read(mapping)
    made = _modules(mapping, record)
    configs = [made.get_submodule(name).config for name in record.configs]
    makes = functools.partial(Objects, configs=configs)
    installed(made, mapping, record, private, guard, (), makes)
    return made


def _modules(mapping: Attached, record: Record) -> nn.Module:
    """Makes the tree of modules, with their plain values and nothing else in them."""
    nodes = record.nodes[: record.modules]
    made: dict[str, nn.Module] = {}
    blanks: list[Node] = []
    for node in nodes:
        if node.name in made:  # a constructor made it
            continue
        new = _new(record, node)
        prefix = f"{node.name}." * bool(node.name)
        for name, each in new.named_modules(remove_duplicate=False):
            made[f"{prefix}{name}" if name else node.name] = each
        if node.name not in record.configs:
            blanks.append(node)
    children = _children(mapping, record)
    for node in blanks:
        module = made[node.name]
        for key, child in children[node.name].items():
            module._modules[key] = None if child is None else made[child]
        # Plain values come first: before it sets the rest, installing asks whether a module writes
        # into its weight (max_norm).
        module.__dict__.update(
            (key, held) for kind, key, held in node.slots if kind == ATTRIBUTE and _is_simple(held)
        )
    return made[nodes[0].name]


def _is_simple(held: Held) -> bool:
    return type(held) in SIMPLE


def _children(mapping: Attached, record: Record) -> dict[str, dict[str, str | None]]:
    """For each module, by name, the modules below it. Raises Damaged if a module is in itself, or
    if what is below it is no module."""
    nodes = record.nodes[: record.modules]
    found: dict[str, dict[str, str | None]] = {node.name: {} for node in nodes}
    for node in nodes:
        for kind, key, held in node.slots:
            if kind != MODULE:
                continue
            position = held["node"] if isinstance(held, dict) and "node" in held else len(nodes)
            if held is not None and position >= len(nodes):
                raise _damaged(mapping, f"{step(node.name, kind, key)} is no module")
            found[node.name][key] = None if held is None else nodes[position].name
    if (length := _names_length(mapping, found, nodes[0].name)) > _NAMES_LENGTH:
        raise _damaged(mapping, f"the names of its modules have {length} characters")
    return found


# A module has a name for each way that leads to it. A few modules in each other have many names.
_NAMES_LENGTH = 2 * FILES_BYTES


def _names_length(mapping: Attached, children: dict[str, dict[str, str | None]], top: str) -> int:
    """The length of all names of modules together."""
    order = graphlib.TopologicalSorter(
        {
            name: [child for child in below.values() if child is not None]
            for name, below in children.items()
        }
    )
    found: dict[str, tuple[int, int]] = {}  # of each module and those below: how many, how long
    try:
        for name in order.static_order():
            below = [(key, *found[to]) for key, to in children[name].items() if to is not None]
            found[name] = (
                1 + sum(count for _, count, _ in below),
                sum(length + count * (len(key) + 1) for key, count, length in below),
            )
    except graphlib.CycleError as error:
        raise _damaged(mapping, f"{error.args[1][0] or 'the module'} holds itself") from None
    return found[top][1]


def _damaged(mapping: Attached, what: str) -> errors.Damaged:
    return errors.Damaged(
        f"the record of {mapping.version} is damaged: {what}",
        "publish the image anew, under another tag",
    )


def _new(record: Record, node: Node) -> nn.Module:
    if node.name in record.configs:
        import_model(node.said)
    kind = module_class(node.said)
    if kind is None:
        raise errors.Unsupported(
            f"{node.name or 'the module'} is a {node.said}, which this process has not imported",
            "import the module that defines it, or install() the image into a module that you make",
        )
    config = record.configs.get(node.name)
    return blank(kind) if config is None else shell(kind, node.name, config)
