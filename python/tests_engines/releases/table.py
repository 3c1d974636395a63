"""The tables of releases in docs/engines/releases.md: what works, from the facts and the plugins'
own rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import problems
from .facts import ASKS, Facts, committed
from .plugin import Plugin
from .problems import Problem
from .wheels import ROOT

DOCUMENT = ROOT / "docs" / "engines" / "releases.md"
BEGIN, END = "<!-- begin: scripts/engines table -->\n", "<!-- end: scripts/engines table -->\n"
TITLES = {"vllm": "vLLM", "sglang": "SGLang"}
# What ran on a GPU, with figures in docs/benchmarks.md. No program can know that.
ON_GPUS = {"vllm": {"0.25.1", "0.33.0"}, "sglang": {"0.5.16"}}
# What each column needs of the plugin: its modules, and all that these import. An engine that
# attaches runs the modules of `_NEXT` besides.
_NEXT = "postprocess"
FEATURES = {
    "vllm": {
        "load": ("model_loader", "guards"),
        "next engine": ("model_loader", "guards", _NEXT),
        "switch": ("_switch", "extension"),
        "Worker, standby": ("worker", "standby"),
        "weight transfer": ("transfer", "trainer"),
        "KV connector": ("kv.connector",),
    },
    "sglang": {
        "load": ("model_loader", "hooks", "guards"),
        "next engine": ("model_loader", "hooks", "guards", _NEXT),
    },
}
_WORKER = "Worker, standby"


def lines() -> str:
    """What stands between `BEGIN` and `END`."""
    return "\n".join(line for engine in FEATURES for line in _of_engine(engine))


def written(document: str) -> str:
    """The document with the tables of today. Raises ValueError if it has no place for them."""
    begin, end = document.index(BEGIN) + len(BEGIN), document.index(END)
    return f"{document[:begin]}\n{lines()}\n{document[end:]}"


def _of_engine(engine: str) -> Iterator[str]:
    plugin, rows, why = Plugin(engine), [], []
    for facts in committed(engine):
        found = problems.of(facts, plugin)
        row = cells(facts, plugin, found)
        rows.append([facts.release, facts.built, facts.torch, *row.values(), _tested(facts)])
        texts = problems.texts(found)
        why += [f"- {TITLES[engine]} {facts.release}: {_shown(text)}" for text in texts]
    head = [TITLES[engine], "built", "torch", *row, "run"]
    for each in [head, ["---"] * len(head), *rows]:
        yield f"| {' | '.join(each)} |"
    yield ""
    if why:
        yield f"Why a table says no, in {TITLES[engine]}:"
        yield ""
        yield from _grouped(why)
        yield ""


def cells(facts: Facts, plugin: Plugin, found: list[Problem]) -> dict[str, str]:
    """What works in a release, by column."""
    row = {}
    for column, modules in FEATURES[facts.engine].items():
        needed = plugin.closure(*modules)
        if _NEXT not in modules:
            needed.discard(_NEXT)
        row[column] = "no" if any(each.module in needed for each in found) else "yes"
    if facts.engine == "vllm":
        worker, asks = row[_WORKER] == "yes", facts.seams[ASKS]
        row["`engines`"] = "yes" if worker else "no"
        row["memory figures"] = "right" if worker or asks else "wrong"
    return row


def _tested(facts: Facts) -> str:
    """Where tests on host memory run this release, and whether it ran on a GPU."""
    found: list[str] = []
    for kind in ("", "next", "middle"):
        name = f"requirements-{facts.engine}{'-' if kind else ''}{kind}.txt"
        pinned = re.search(rf"^{facts.engine}==(\S+)", _text(f"python/{name}"), re.MULTILINE)
        if pinned is not None and pinned[1] == facts.release:
            found += _runs(facts.engine, kind)
    if facts.release in ON_GPUS[facts.engine]:
        found.append("GPU")
    return ", ".join(found) or "read"


def _runs(engine: str, kind: str) -> Iterator[str]:
    more = f', "{kind}"' if kind else ""
    if re.search(rf'"tests/{engine}\.sh", build{more}(, cost=|\))', _text("scripts/run-tests")):
        yield "each test run"
    more = f" {kind}" if kind else ""
    if re.search(rf"tests/{engine}\.sh build{more} ;;", _text("scripts/slow")):
        yield "slow list"


def _text(path: str) -> str:
    file = ROOT / path
    return file.read_text() if file.exists() else ""


def _shown(text: str) -> str:
    """Without the line's number, which moves."""
    return re.sub(r"^(\S+\.py):\d+:", r"`\1`:", text)


def _grouped(why: list[str]) -> Iterator[str]:
    """The lines, with one line for all releases that have the same problem."""
    releases: dict[str, list[str]] = {}
    for line in why:
        title, _, text = line.removeprefix("- ").partition(": ")
        releases.setdefault(text, []).append(title.split()[1])
    for text, having in releases.items():
        yield f"- {having[0] if len(having) == 1 else f'{having[0]} to {having[-1]}'}: {text}"
