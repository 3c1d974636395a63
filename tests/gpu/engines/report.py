"""What a run found: tables for people, JSON lines for programs, and which checks failed."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

NAME_WIDTH = 34


class Report:
    """Prints everything as it comes, and appends it to OUT/engines.jsonl."""

    def __init__(self, out: pathlib.Path) -> None:
        self.failed: list[str] = []
        self.part = ""
        self._lines = (out / "engines.jsonl").open("a", buffering=1)
        self._began = time.monotonic()

    def begin(self, part: str, title: str) -> None:
        self.part = part
        print(f"\n== {part}: {title}", flush=True)

    def head(self, what: str, *columns: str) -> None:
        print(
            f"  {what:<{NAME_WIDTH}}" + "".join(f" {column:>13}" for column in columns), flush=True
        )

    def row(self, what: str, *values: Any) -> None:
        print(
            f"  {what:<{NAME_WIDTH}}" + "".join(f" {cell(value):>13}" for value in values),
            flush=True,
        )

    def note(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def check(self, holds: bool, what: str) -> bool:
        print(f"  {'ok    ' if holds else 'FAILED'} {what}", flush=True)
        if not holds:
            self.failed.append(f"{self.part}: {what}")
        self.record("check", holds=holds, what=what)
        return holds

    def record(self, kind: str, **what: Any) -> None:
        at = round(time.monotonic() - self._began, 3)
        self._lines.write(json.dumps({"part": self.part, "kind": kind, "at": at, **what}) + "\n")


def cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


# ---- comparing ----------------------------------------------------------------------------------


def differing(one: dict[str, str] | None, other: dict[str, str] | None) -> list[str]:
    """The batches whose tokens or log-probabilities are not the same in every bit."""
    one, other = one or {}, other or {}
    if not one and not other:
        return ["no batch was answered"]
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def first_difference(one: dict[str, Any], other: dict[str, Any], batch: str) -> str:
    """Where two answers to a batch part: which prompt, which token, and both sides."""
    if batch not in one or batch not in other:
        return f"{batch}: answered by one only"
    pairs = zip(one[batch], other[batch], strict=True)
    for number, ((tokens, likely), (tokens_other, likely_other)) in enumerate(pairs):
        for at, (token, token_other) in enumerate(zip(tokens, tokens_other, strict=True)):
            if token != token_other:
                return f"{batch}: prompt {number}, token {at}: {token} and {token_other}"
            if likely[at] != likely_other[at]:
                return f"{batch}: prompt {number}, token {at}: {likely[at]} and {likely_other[at]}"
    return f"{batch}: equal"
