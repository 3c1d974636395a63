"""How much GPU memory an engine may use besides the versions that gpuwm holds: plain arithmetic.

vLLM's `gpu_memory_utilization` is the part of a GPU that engines may fill. Two rules here differ
from vLLM's own:

- A version counts once, whoever made it and whoever uses it: all that gpuwm holds on the GPU is
  subtracted from what may be filled, and the rest is for engines. For an engine with sleep mode,
  versions do not count that only engines hold which sleep.
- If several engines share the GPU, each gets an equal share of the rest. The share does not depend
  on what is in use at the moment, so it is the same for engines that start at once and for engines
  that start one after the other. If one engine serves while the others stand by, each gets all of
  the rest but what each engine has outside of torch's memory.

All figures are in bytes unless they say GiB. This module imports neither vLLM nor torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from .. import errors

GIB = 1 << 30
ENGINES_MAX = 64  # with contexts of 0.5 GiB they fill a third of the largest GPU
# What an engine has on the GPU besides torch's memory: the CUDA context, kernels and captured
# graphs. An engine with graphs had 0.87 GiB of it on an H200 (vLLM 0.25.1).
OVERHEAD = GIB
# Buffers of a rank's collective operations, besides `OVERHEAD`: NCCL allocates them itself.
COMMUNICATION_OVERHEAD = GIB
OVERHEAD_GIB_MAX = 64.0

ENGINES_KEY, OVERHEAD_KEY = "engines", "engine_overhead_gib"
STANDBY_KEY = "standby"
STANDBY_ENGINES = 2  # one that serves, and one that stands by


class Sharing(NamedTuple):
    """How a GPU is shared.

    - engines: how many run on it.
    - overhead: of each engine, besides torch's memory. It counts only if there are several engines:
      vLLM measures that of a single one.
    - standby: only one of them serves at a time, and has a KV cache.
    """

    engines: int = 1
    overhead: int = OVERHEAD
    standby: bool = False


def sharing(extra_config: Mapping[str, Any] | None, ranks: int = 1) -> Sharing:
    """Reads these settings from `--model-loader-extra-config`. ranks: of this engine, each on its
    own GPU. Raises Invalid, which names the key and its possible values."""
    given = extra_config or {}
    overhead = OVERHEAD + (COMMUNICATION_OVERHEAD if ranks > 1 else 0)
    standby = STANDBY_KEY in given
    engines = engines_of(ENGINES_KEY, given.get(ENGINES_KEY, STANDBY_ENGINES if standby else 1))
    if OVERHEAD_KEY in given:
        overhead = math.ceil(overhead_of(OVERHEAD_KEY, given[OVERHEAD_KEY]) * GIB)
    return Sharing(engines, overhead, standby)


def engines_of(key: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= ENGINES_MAX:
        return value
    raise errors.Invalid(
        f'"{key}" in --model-loader-extra-config is {value!r}',
        f"the number of engines that share the GPU, 1 to {ENGINES_MAX}",
    )


def overhead_of(key: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= value <= OVERHEAD_GIB_MAX:
        return float(value)
    raise errors.Invalid(
        f'"{key}" in --model-loader-extra-config is {value!r}',
        f"GiB that each engine has beside torch's memory, 0 to {OVERHEAD_GIB_MAX:g}",
    )


def requested(total: int, utilization: float) -> int:
    """The bytes of a GPU that engines, and the versions they use, may fill."""
    return math.ceil(total * utilization)


def held(listing: Mapping[str, Any], device: str, leaving: Collection[str] = ()) -> dict[str, int]:
    """The bytes on a device of each version there that is ready or retiring, by its id. listing:
    the result of gpuwm.Client.list. A version that is being made counts when it is ready: the
    engine that makes it learns its size then. leaving: versions that do not count, as `parked`
    tells them."""
    found: dict[str, int] = {}
    for version in listing["versions"]:
        if version["state"] in ("ready", "retiring") and version["version"] not in leaving:
            there = sum(part["bytes"] for part in version["parts"] if part["device"] == device)
            if there:
                found[version["version"]] = there
    return found


def parked(listing: Mapping[str, Any], clients: Iterable[Mapping[str, Any]]) -> set[str]:
    """The versions that only engines hold which sleep: they leave a device when their room is
    needed. clients: of this user, as gpuwmd tells them; other users' leases count as awake."""
    asleep = Counter(
        lease["version"] for each in clients for lease in each["leases"] if lease.get("parked")
    )
    return {
        version["version"]
        for version in listing["versions"]
        if 0 < version["leases"] <= asleep[version["version"]]
    }


def budget(total: int, utilization: float, versions: int, how: Sharing) -> int:
    """The bytes that one engine may fill with torch's memory: weights of its own, activations,
    graphs' pools and KV cache. versions: the bytes of all versions on this GPU.

    Raises NoRoom if nothing is left; the message has both figures.
    """
    left = requested(total, utilization) - versions
    if how.standby:
        left -= how.engines * how.overhead
    elif how.engines > 1:
        left = left // how.engines - how.overhead
    if left > 0:
        return left
    raise errors.NoRoom(
        f"gpuwm holds {gib(versions)} GiB on this GPU, and with them {how.engines} "
        f"engine{'s' if how.engines > 1 else ''} may fill {gib(requested(total, utilization))} GiB "
        f"of the GPU's {gib(total)} GiB"
        + (
            f", each {gib(how.overhead)} GiB beside torch's memory"
            if how.engines > 1 or how.standby
            else ""
        ),
        "retire versions that nobody needs (gpuwmctl ls), raise --gpu-memory-utilization, or lower "
        f'"{ENGINES_KEY}" in --model-loader-extra-config',
    )


def check_free(free: int, total: int, utilization: float, versions: int, how: Sharing) -> None:
    """Raises NoRoom if less is free at the start than the budget. versions: the bytes of those that
    are there; an engine that builds one learns its size last."""
    needed = budget(total, utilization, versions, how)
    if free >= needed:
        return
    raise errors.NoRoom(
        f"{gib(free)} of the GPU's {gib(total)} GiB are free, this engine's part is "
        f"{gib(needed)} GiB: {utilization:g} of the GPU, without the {gib(versions)} GiB that "
        f"gpuwm holds, over {how.engines} engine{'s' if how.engines > 1 else ''}",
        "tell every engine how many share this GPU: --model-loader-extra-config "
        f"'{{\"{ENGINES_KEY}\": {how.engines + 1}}}'; or lower --gpu-memory-utilization, or free "
        "what other processes have",
    )


def check_cache(free: int, cache: int) -> None:
    """Raises NoRoom if the KV cache that was computed is larger than what is free before it is
    allocated."""
    if cache > free:
        raise errors.NoRoom(
            f"the KV cache would have {gib(cache)} GiB, and {gib(free)} GiB of the GPU are free: "
            "another process has filled it meanwhile",
            f'tell every engine how many share this GPU: "{ENGINES_KEY}" in '
            "--model-loader-extra-config; or lower --gpu-memory-utilization",
        )


def external(
    total: int, utilization: float, versions: int, how: Sharing, builds: bool = False
) -> int:
    """The result that `get_external_weight_memory` of vLLM 0.32 and newer must return so that the
    engine gets `budget`. vLLM subtracts it from `requested`, and later subtracts how much the GPU's
    use grew.

    builds: this engine will make the versions, so vLLM sees them grow and subtracts them itself.
    With one engine the result is 0 then, and `versions` may be unknown. With several, `versions`
    must be the size that they will have.
    """
    left = requested(total, utilization) - budget(total, utilization, versions, how)
    return max(left - versions, 0) if builds else left


def gib(value: int) -> str:
    return f"{value / GIB:.2f}"
