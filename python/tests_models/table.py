"""Makes docs/models.md of what the sweeps found: python -m tests_models.table

The rows are in found/LIBRARY.jsonl, one for each model. `python -m tests_models LIBRARY --into`
writes them."""

from __future__ import annotations

import collections
import json
import pathlib
import textwrap
from typing import Any

FOUND = pathlib.Path(__file__).parent / "found"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "models.md"
WIDTH = 120
WORDS = 160  # characters of an error

BEGIN = """# Models that were tried

A program tried the models of transformers and timm and the pipelines of diffusers, one after the other. A pipeline is here the
models that its constructor takes.

1. It made each model small by rule, without weights of a hub: fewer layers, narrower widths, at most 50 MiB. No rule knows a
   model by its name. Every value was moved by a small random one, so that no tensor was as its constructor makes it.
2. One process published the model with `gpuwm.publish`. Another process made it with `gpuwm.build`, under another random
   seed.
3. The program compared all tensors of `state_dict()`, and what the forward pass returned for the same inputs, in every bit.
   Rules make the inputs as well: from the names of what `forward` takes, from the configuration, and from the width that an
   error of torch asks for. If the model itself did not run with any of them, the models inside of it were run: they stand in
   brackets.

Not tried are diffusers' modular pipelines: they are blocks that a repository names. Pipelines that run in ONNX Runtime or take
a tokenizer alone have no models of torch, and some need a package that was not there: these are rows of "not made".

`python -m tests_models` makes the rows, and `python -m tests_models.table` this page. `scripts/slow` repeats the sweep of
transformers in four pieces, and one of a model of each file of timm: a piece fails if a model is no longer equal.
"""  # noqa: E501
MEANINGS = {
    "equal": "tensors and outputs are equal in every bit",
    "unrun": "tensors are equal; the rules found no inputs that the model runs with",
    "refused": "gpuwm refused the model, with these words",
    "differs": "something differs in the second process",
    "failed": "an error that is not one of gpuwm's",
    "died": "a process ended, or had no answer in time",
    "untried": "no sweep has had a result for it yet",
    "not made": "the library did not make the model by any rule, with these words",
}


def rows(library: str) -> list[dict[str, Any]]:
    """The last row of each name, by name; none if the library was not swept."""
    file = FOUND / f"{library}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    found = {row["name"]: row for row in map(json.loads, lines)}
    return [found[name] for name in sorted(found)]


def page() -> str:
    libraries = sorted(path.stem for path in FOUND.glob("*.jsonl"))
    counts = {name: collections.Counter(row["outcome"] for row in rows(name)) for name in libraries}
    text = [
        BEGIN,
        f"| | meaning | {' | '.join(libraries)} |",
        f"|---|---|{'---|' * len(libraries)}",
    ]
    for outcome, meaning in MEANINGS.items():
        cells = " | ".join(str(counts[name][outcome]) for name in libraries)
        text.append(f"| {outcome} | {meaning} | {cells} |")
    text.append(f"| all | | {' | '.join(str(each.total()) for each in counts.values())} |")
    for name in libraries:
        text += _section(name)
    return "\n".join(text) + "\n"


def _section(library: str) -> list[str]:
    release = next((row["release"] for row in rows(library) if row.get("release")), "")
    text = ["", f"## {library} {release}".rstrip()]
    for outcome in MEANINGS:
        chosen = [row for row in rows(library) if row["outcome"] == outcome]
        if not chosen:
            continue
        text += ["", f"### {library}: {outcome}", ""]
        if outcome in ("equal", "untried"):
            names = ", ".join(f"`{row['name']}`{_only(row)}" for row in chosen)
            text += textwrap.wrap(names, WIDTH, break_long_words=False, break_on_hyphens=False)
        else:
            text += ["| model | words |", "|---|---|"]
            text += [f"| `{row['name']}` | {_words(row)} |" for row in chosen]
    return text


def _only(row: dict[str, Any]) -> str:
    """If other modules of the model ran than the model itself, or not all models of a pipeline."""
    tops = [path for path in row.get("ran", []) if "." not in path] or row.get("ran", [])
    return f" ({', '.join(tops)} only)" if row.get("unrun") else ""


def _words(row: dict[str, Any]) -> str:
    words = row["words"] or next(iter(row.get("unrun", [])), "")
    return " ".join(words.replace("|", "/").replace("`", "'").split())[:WORDS]


if __name__ == "__main__":
    PAGE.write_text(page())
