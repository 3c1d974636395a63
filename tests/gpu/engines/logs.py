"""What an engine's log says: vLLM's lines, those of load format gpuwm, and engine.py's events."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

EVENT = "@ "
# The loader's two lines: which way it took, the version, its id, and what took how long.
GPUWM = re.compile(r"gpuwm: (built|attached) (\S+) \(([0-9a-f]+)\)(.*)")
GIGABYTES = re.compile(r"([\d.]+) GB")
SECONDS = re.compile(r"(?:^|[,;:] )(?!in )([a-z][\w ./@:-]*?) ([\d.]+) s(?=$|[,.;:])")
IN_ALL = re.compile(r" in ([\d.]+) s:")
# vLLM 0.25.1
LOADED = re.compile(r"Model loading took ([\d.]+) GiB(?: memory)? and ([\d.]+) seconds")
READ = re.compile(r"Loading weights took ([\d.]+) seconds")
KV_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
KV_MEMORY = re.compile(r"Available KV cache memory: (-?[\d.]+) GiB")
INITIALISED = re.compile(r"init engine \(.*?\) took ([\d.]+) s")
COMPILED = re.compile(r"torch\.compile (?:and initial profiling run )?(?:takes|took) ([\d.]+) s")
CAPTURED = re.compile(r"Graph capturing finished in ([\d.]+) secs, took (-?[\d.]+) GiB")
BACKEND = re.compile(r"Using (\S+) attention backend|Using (AttentionBackendEnum\.\w+) backend")
LEVELS = re.compile(r"\b(ERROR|CRITICAL)\b|^gpuwm\.\w+")
TRACEBACK = "Traceback (most recent call last):"


@dataclass
class Log:
    """What was found so far; `feed` takes more. Times are in seconds, sizes in GiB or tokens, as
    named. Where several ranks say the same thing, the largest number counts."""

    events: list[dict[str, Any]] = field(default_factory=list)
    gpuwm: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    backend: str = ""
    errors: list[str] = field(default_factory=list)
    _in_traceback: bool = False

    def feed(self, line: str) -> None:
        """One line without its end."""
        if line.startswith(EVENT):
            self.events.append(json.loads(line[len(EVENT) :]))
            return
        if found := GPUWM.search(line):
            self.gpuwm.append(loader_line(found))
        self._numbers(line)
        if found := BACKEND.search(line):
            self.backend = (found[1] or found[2]).rpartition(".")[2]
        if LEVELS.search(line) or self._ends_traceback(line):
            self.errors.append(line)

    def _numbers(self, line: str) -> None:
        if found := LOADED.search(line):
            self._most("loaded GiB", found[1])
            self._most("loaded s", found[2])
        for name, pattern in (
            ("files read s", READ),
            ("KV tokens", KV_TOKENS),
            ("KV GiB", KV_MEMORY),
            ("engine initialised s", INITIALISED),
            ("compiled s", COMPILED),
            ("graphs s", CAPTURED),
        ):
            if found := pattern.search(line):
                self._most(name, found[1])

    def _ends_traceback(self, line: str) -> bool:
        """Whether it is the line of a traceback that names the exception."""
        if line.startswith(TRACEBACK):
            self._in_traceback = True
            return False
        ends = self._in_traceback and line[:1].strip() != ""
        self._in_traceback = self._in_traceback and not ends
        return ends

    def _most(self, name: str, text: str) -> None:
        value = float(text.replace(",", ""))
        self.numbers[name] = max(value, self.numbers.get(name, value))

    def event(self, name: str) -> dict[str, Any] | None:
        """The last one of that name."""
        return next((event for event in reversed(self.events) if event["event"] == name), None)

    def count(self, name: str) -> int:
        return sum(event["event"] == name for event in self.events)


def loader_line(found: re.Match[str]) -> dict[str, Any]:
    """{"way", "version", "id", "GB", "seconds": {what: seconds}} of the loader's line."""
    rest = found[4]
    size = GIGABYTES.search(rest)
    seconds = {what: float(value) for what, value in SECONDS.findall(rest)}
    if whole := IN_ALL.search(rest):
        seconds["in all"] = float(whole[1])
    return {
        "way": found[1],
        "version": found[2],
        "id": found[3],
        "GB": float(size[1]) if size else None,
        "seconds": seconds,
    }
