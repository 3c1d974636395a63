"""The options in `kv_connector_extra_config`.

- region: the region's name; default "kv". Each rank has a region of its own, "kv-r0", "kv-r1".
  Engines that name the same region share it.
- gib, blocks: the size of each rank's region, in GiB or in blocks. The first engine creates the
  region and needs one of the two. An engine that finds the region takes it as it is.
- device: where the region lies: "cuda:N" as the process counts, or a UUID of gpuwmd's. Absent: on
  the rank's own GPU. An engine on a neighbour GPU reaches it over NVLink.
- identity: a text that names the weights, for an engine whose weights are not gpuwm's. Whoever
  gives the same text to two engines promises that their weights are the same.
- lora: "name": requests with a LoRA adapter are shared too, under the adapter's name. Whoever sets
  it promises that a name means the same adapter in all engines, for as long as the region is there.
  Absent: such requests are computed, and not shared.
- socket: gpuwmd's socket. Absent: $GPUWM_SOCKET or the usual places.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ... import errors

_WHERE = "kv_connector_extra_config"
_NAME_BYTES_MAX = 100  # with "-r" and a rank's number it is below a region's limit of 128


@dataclass(frozen=True)
class Settings:
    """The options; the module's docstring says what they mean. puts, gets: what the engine's
    `kv_role` lets it do."""

    region: str = "kv"
    gib: float | None = None
    blocks: int | None = None
    device: str | None = None
    identity: str | None = None
    lora: str | None = None
    socket: str | None = None
    puts: bool = True
    gets: bool = True

    def region_of(self, rank: int) -> str:
        """The name of a rank's region."""
        return f"{self.region}-r{rank}"

    def blocks_of(self, block_bytes: int) -> int:
        """How many blocks of this size a new region gets. Raises Invalid if no size was given, or
        if it holds no block."""
        if self.blocks is not None:
            return self.blocks
        if self.gib is None:
            raise _wrong("gib", None, 'the size of a region that is not there yet: "gib": 8')
        count = int(self.gib * (1 << 30)) // block_bytes
        if count < 1:
            raise _wrong("gib", self.gib, f"at least a block, which has {block_bytes:,} bytes")
        return count


def parse(transfer: Any) -> Settings:
    """Reads vLLM's KVTransferConfig. Raises Invalid, which names the option, its value, and what is
    allowed."""
    given = transfer.kv_connector_extra_config or {}
    for key in given:
        if key not in CHECKS:
            near = difflib.get_close_matches(str(key), CHECKS, 1)
            guess = f'did you mean "{near[0]}"? ' if near else ""
            raise errors.Invalid(
                f"{_WHERE} has a key {key!r}, which GpuwmConnector does not know",
                f"{guess}the keys are {', '.join(CHECKS)}",
            )
    found = {key: CHECKS[key](key, value) for key, value in given.items()}
    if found.get("gib") is not None and found.get("blocks") is not None:
        raise _wrong("blocks", found["blocks"], 'left out beside "gib": both are the size')
    return Settings(**found, puts=transfer.is_kv_producer, gets=transfer.is_kv_consumer)


def _wrong(key: str, value: Any, allowed: str) -> errors.Invalid:
    said = "is missing" if value is None else f"is {value!r}"
    return errors.Invalid(f'"{key}" in {_WHERE} {said}', allowed)


def _text_like(example: str, most: int = 1 << 10) -> Callable[[str, Any], str]:
    def check(key: str, value: Any) -> str:
        if not isinstance(value, str) or not value or "\0" in value or len(value.encode()) > most:
            raise _wrong(key, value, f"a text of at most {most:,} bytes: {example}")
        return value

    return check


def _gib(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1 << 20:
        raise _wrong(key, value, "GiB, more than 0: 8")
    return float(value)


def _blocks(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(key, value, "how many blocks, 1 or more: 4096")
    return value


def _device(key: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return f"cuda:{value}"
    return _text_like('"cuda:1", or the UUID of a GPU')(key, value)


def _lora(key: str, value: Any) -> str:
    if value != "name":
        raise _wrong(key, value, '"name", or absent')
    return str(value)


CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "region": _text_like('"kv"', _NAME_BYTES_MAX),
    "gib": _gib,
    "blocks": _blocks,
    "device": _device,
    "identity": _text_like('"llama-3-8b of 2026-03"'),
    "lora": _lora,
    "socket": _text_like('"/run/gpuwm/gpuwm.sock"'),
}
