"""The texts of the engine that is installed, and copies of them in which something differs, for
tests of `tests_engines.releases`."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re

from .releases import facts, problems
from .releases.facts import Facts
from .releases.names import CLASS, Names
from .releases.plugin import Plugin
from .releases.wheels import Texts


def installed(engine: str) -> Texts:
    release = importlib.metadata.version(engine)
    metadata = importlib.metadata.distribution(engine)
    top = pathlib.Path(str(metadata.locate_file(engine)))
    found = {str(file.relative_to(top.parent)): file.read_text() for file in top.rglob("*.py")}
    found[f"{engine}-{release}.dist-info/METADATA"] = metadata.read_text("METADATA") or ""
    return Texts(engine, release, "", found)


def committed(texts: Texts) -> Facts:
    """The facts of this release. What only its wheel tells is that of the texts."""
    file = facts.file_of(texts.engine, texts.release)
    found = facts.parse(file.read_text())
    found.built, found.torch = texts.built, texts.torch()
    return found


def without(texts: Texts, *dotted: str) -> Texts:
    """A copy in which these functions and classes have other names where they are defined."""
    for name in sorted(dotted, key=len, reverse=True):  # methods before their classes
        names = Names(texts)
        found = names.find(name)
        assert found is not None
        assert found.node is not None, name
        source, last = names.source(found), name.rpartition(".")[2]
        other = re.sub(rf"\b(def|class) {last}\b", rf"\1 {last}_of_tomorrow", source, count=1)
        assert other != source, name
        path = names.path(found.module)
        assert path is not None
        texts = changed(texts, path, source, other)
    return texts


def changed(texts: Texts, path: str, before: str, after: str) -> Texts:
    """A copy in which one text has `after` in place of `before`."""
    assert before in texts[path]
    found = {each: texts[each] for each in texts.paths()}
    found[path] = found[path].replace(before, after, 1)
    return Texts(texts.engine, texts.release, texts.built, found)


def problems_of(texts: Texts) -> list[str]:
    plugin = Plugin(texts.engine)
    return problems.texts(problems.of(facts.collect(texts, plugin), plugin))


def needed(texts: Texts) -> list[str]:
    """The functions and classes that our plugin imports, calls or replaces, and that this release
    must have."""
    plugin, names = Plugin(texts.engine), Names(texts)
    uses = {use.name for module in plugin.files for use in plugin.uses(module) if not use.optional}
    uses |= set(facts.hooks(plugin))
    kinds = {name: facts.kind(names, name) or "" for name in uses}
    found = {
        name: names.find(name) for name, kind in kinds.items() if kind.startswith(("(", CLASS))
    }
    return sorted(
        name for name, each in found.items() if each is not None and each.node is not None
    )
