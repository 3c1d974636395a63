"""The prompts of fake.py: tokens that depend on the weights and the prompt, a prefix cache, and
what stands in for the connectors: keys, one for each whole block, in a folder or in the process.

$FAKE_FAULT makes it go wrong: "cold" (a connector finds nothing), "nameless" (keys don't name the
weights), "wrong" (what a connector found gives other tokens)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import time
from typing import Any, Protocol

import asking
import region
from engine import tell

BLOCK = 16
VOCABULARY = 128256
PROMPT_S = 0.1  # for the longest prompt
SLOWER = 3  # an engine that puts, so that a kill comes before its end
LONGEST = 30000
REGION_BLOCKS, REGION_BYTES = 4096, 256
FAULTS = os.environ.get("FAKE_FAULT", "").split(",")


class Keys(Protocol):
    def has(self, key: str) -> bool: ...

    def add(self, key: str) -> None: ...


class Inside:
    """The keys of one process."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def has(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        self._keys.add(key)

    def clear(self) -> None:
        self._keys.clear()


class Folder:
    """The keys of all processes that name the folder."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    def has(self, key: str) -> bool:
        return (self._path / key).exists()

    def add(self, key: str) -> None:
        (self._path / key).touch()


def outside(llm: dict[str, Any]) -> tuple[Keys, bool, bool]:
    """The connector's keys, and whether the engine puts and gets."""
    transfer = llm.get("kv_transfer_config")
    if transfer is None:
        return Inside(), False, False
    extra = transfer["kv_connector_extra_config"]
    role = transfer["kv_role"]
    puts, gets = role != "kv_consumer", role != "kv_producer" and "cold" not in FAULTS
    if transfer["kv_connector"] == "OffloadingConnector":
        return Inside(), puts, gets
    if transfer["kv_connector"] == "ExampleConnector":
        return Folder(pathlib.Path(extra["shared_storage_path"])), puts, gets
    name = f"{extra['region']}-r0"
    with contextlib.suppress(RuntimeError):  # another engine has made it
        region.make(name, REGION_BLOCKS, REGION_BYTES)
    folder = pathlib.Path(os.environ["GPUWM_SOCKET"]).parent
    return Folder(folder / f"fake-{name}"), puts, gets


class Prompts:
    """The engine's half of what asking.py asks."""

    def __init__(self, llm: dict[str, Any]) -> None:
        self._own = Inside()
        self._outside, self._puts, self._gets = outside(llm)

    def answer(self, asked: asking.Question, held: bytes, half: int) -> None:
        """Tells it. held: the weights. half: of the vocabulary, 1 or 2."""
        found: dict[str, Any] = {"name": asked.name, "seconds": [], "cached": []}
        tokens: list[int] = []
        for _ in range(asked.times):
            begin = time.perf_counter()
            if asked.reset:
                self._own.clear()
            cached = self._prefill(asking.token_ids(asked.prompt), held)
            tokens = self._tokens(asked, held, half, bool(cached))
            found["seconds"].append(time.perf_counter() - begin)
            found["cached"].append(cached)
        likely = [{str(token): "-0x1p-1"} for token in tokens] if asked.tokens > 1 else []
        tell("generated", tokens=tokens, likely=likely, **found)

    def _tokens(self, asked: asking.Question, held: bytes, half: int, cached: bool) -> list[int]:
        words = repr((asked.prompt, "wrong" in FAULTS and cached and self._gets)).encode()
        digest = hashlib.sha256(held + words).digest() * 4
        return [number + (half - 1) * VOCABULARY // 2 for number in digest[: asked.tokens]]

    def _prefill(self, tokens: list[int], held: bytes) -> int:
        """Returns how many tokens came from a cache."""
        keys = keys_of(tokens, b"" if "nameless" in FAULTS else held)
        most = (len(tokens) - 1) // BLOCK
        there = 0
        while there < most and (
            self._own.has(keys[there]) or (self._gets and self._outside.has(keys[there]))
        ):
            there += 1
        for number, key in enumerate(keys):
            if number >= there and number % 64 == 0:
                time.sleep(PROMPT_S * 64 * BLOCK / LONGEST * (SLOWER if self._puts else 1))
            self._own.add(key)
            if self._puts:
                self._outside.add(key)
        return there * BLOCK


def keys_of(tokens: list[int], held: bytes) -> list[str]:
    """Of each whole block, with all that is before it."""
    chain, found = hashlib.sha256(held), []
    for at in range(0, len(tokens) // BLOCK * BLOCK, BLOCK):
        chain.update(repr(tokens[at : at + BLOCK]).encode())
        found.append(chain.hexdigest())
    return found
