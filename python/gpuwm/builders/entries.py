"""What `Builder.info` tells."""

from __future__ import annotations

from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A result of a builder.

    - tag: of its version: the key, or what a person can read of it and a digest.
    - version: its id. None: it is in this process only.
    - state: of the version ("building", "checking", "ready", "retiring"); "local".
    - nbytes, leases: of the version; None if it is local.
    - made, expires: seconds since 1970. made: None: it is not ready. expires: None: nobody said.
    """

    tag: str
    version: str | None
    state: str
    nbytes: int | None
    leases: int | None
    made: float | None
    expires: float | None


def entry_of(told: dict[str, Any]) -> Entry:
    """told: a version of gpuwmd's list."""
    made, expires = told.get("ready_ms"), told.get("expire_at_ms")
    return Entry(
        told["tag"],
        told["version"],
        told["state"],
        told["bytes"],
        told["leases"],
        None if made is None else made / 1000,
        None if expires is None else expires / 1000,
    )
