"""Models of transformers. A record does not look into the configurations that they hold, so their
constructors make them, from the configurations that the record has besides."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from .. import errors
from .._torch import init
from . import values
from .graph import Graph
from .kinds import class_name
from .nodes import Node
from .objects import problems
from .slots import slots, step


def configs_of(nodes: Sequence[Node]) -> dict[str, values.Json]:
    """The configuration of each model of transformers that is in no other one. nodes: of modules,
    in the order of a graph."""
    found: dict[str, values.Json] = {}
    for node in nodes:
        if not _is_pretrained(type(node.owner)) or is_below(node.name, found):
            continue
        config = node.owner.config
        found[node.name] = {
            "class": class_name(type(config)),
            "fields": json.loads(config.to_json_string(use_diff=False)),
            "attention": getattr(config, "_attn_implementation", None),
        }
    return found


def unmakeable(graph: Graph) -> list[str]:
    """See `objects.problems`. What the constructor of a model of transformers makes is left out."""
    saved = configs_of(graph.nodes[: graph.modules])
    nodes = [node for node in graph.nodes if not is_below(node.name, saved)]
    modules = sum(not is_below(node.name, saved) for node in graph.nodes[: graph.modules])
    configs = [node.owner.config for node in graph.nodes[: graph.modules] if node.name in saved]
    return [
        *problems(nodes, modules, configs),
        *_foreign_configs(nodes, configs),
        *(
            f"object: {leaf.name} is a {leaf.said} whose context is no plain data, which another "
            "process could not make"
            for leaf in graph.leaves
            if leaf.context is values.NOT_PLAIN
        ),
    ]


def _foreign_configs(nodes: Sequence[Node], configs: Sequence[Any]) -> Iterator[str]:
    """A line for each configuration that belongs to no model, if a model has one of its class: a
    record has only the names of classes, so `Objects` would take the model's for it."""
    known = {id(config): type(config) for config in configs}
    for node in nodes:
        for kind, key, value in slots(node.owner):
            if type(value) in known.values() and id(value) not in known:
                yield (
                    f"object: {step(node.name, kind, key)} is a {class_name(type(value))} that is "
                    "no model's in there, which another process could not make"
                )


def is_below(name: str, above: Mapping[str, Any]) -> bool:
    """Whether a module is part of another one, or the same. above: by names."""
    return any(not each or name == each or name.startswith(f"{each}.") for each in above)


def import_model(said: str) -> None:
    """Imports the module of a model that is transformers' own, if this process has imported
    transformers: AutoModel, too, imports it only when the first such model is made. The name may
    only be of such a module, since whoever published the version has chosen it."""
    found = re.fullmatch(r"(transformers\.models\.\w+\.modeling_\w+)\.\w+", said)
    if found and "transformers" in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(found[1])


def shell(kind: type[nn.Module], name: str, saved: values.Json) -> nn.Module:
    """A model without memory, with this configuration. Raises Unsupported if this process has not
    imported the configuration's class, or if one of the two is no class of transformers: no other
    constructor is called."""
    found = values.imported(saved["class"])
    base = _library_class("PretrainedConfig")
    is_one = found is not None and base is not None and issubclass(found, base)
    if found is None or not is_one or not _is_pretrained(kind):
        raise errors.Unsupported(
            f"{name or 'the module'} is a {class_name(kind)} with a configuration "
            f"{saved['class']}, which this process does not know as a model of transformers",
            "import it where the model's class is imported",
        )
    config: Any = found.from_dict(saved["fields"])  # type: ignore[attr-defined]
    config._attn_implementation = saved["attention"]
    with init.empty_init():
        return kind(config)


def _is_pretrained(kind: type) -> bool:
    base = _library_class("PreTrainedModel")
    return base is not None and issubclass(kind, base)


def _library_class(name: str) -> type | None:
    """A class of transformers, if this process has imported it: transformers itself imports its
    parts when they are first used."""
    return values.imported(f"transformers.{_PARTS[name]}.{name}")


_PARTS = {"PreTrainedModel": "modeling_utils", "PretrainedConfig": "configuration_utils"}
