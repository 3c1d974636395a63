"""What a builder may be told, and of which functions it may be made."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

from .. import _client as clients
from .. import _connection, errors
from .._c import devices, lib
from .._mode import ByMode, Mode, Wait, mode_of, wait_of
from .._publish.making import cached
from .results import Globs

# What gpuwmd takes for a model's name.
MODEL = re.compile(r"(?!.*\.\.)[A-Za-z0-9_-][A-Za-z0-9._/-]{0,127}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """See `builder`."""

    key: str | None = None
    model: str | None = None
    code: bool = False
    ttl: float | None = None
    keep_last: int | None = None
    structure: Callable[..., Any] | None = None
    ignored: Globs = ()
    private: Globs = ()
    guard: bool = True
    device: Any = None
    owner: lib.Owner | None = None
    mode: Mode | None = None
    wait: Wait = ByMode.WAIT
    client: clients.Client | None = None

    def __post_init__(self) -> None:
        """Raises TypeError, Invalid."""
        lib.names(self.ignored, "ignored")
        if self.structure is not None:
            lib.function(self.structure, "structure", "a function of the same arguments")
        elif self.ignored:
            raise errors.Invalid(
                f"ignored={self.ignored!r} without structure=: other processes would lack these",
                "give structure=, a function whose result has them",
            )
        for name in ("key", "model"):
            if not isinstance(text := getattr(self, name), str | None):
                raise lib.wrong(name, text, "a str")
        if self.model is not None and not MODEL.fullmatch(self.model):
            raise errors.Invalid(
                f"model={self.model!r}", "1 to 128 letters, digits, '.', '_', '-' and '/'"
            )
        if self.mode is not None:
            mode_of(self.mode, "auto")
        cached(self.ttl, self.keep_last)
        lib.milliseconds(wait_of(self.wait, "auto"), "wait")
        lib.owner_fields(self.owner)
        devices.named(self.device)
        _connection.given(self.client)


def refuse(function: Any) -> None:
    """Raises Invalid for callables whose results are no values, or that have no name."""
    if isinstance(function, staticmethod):
        raise errors.Invalid(
            "gpuwm.builder of a staticmethod", "write @staticmethod above @gpuwm.builder"
        )
    if not hasattr(function, "__qualname__"):
        raise errors.Invalid(
            f"a {type(function).__qualname__} has no name and no code of its own",
            "decorate the function that it calls",
        )
    function = inspect.unwrap(function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise errors.Invalid(
            f"{function.__qualname__} is an async function, which returns no value by itself",
            "decorate a plain function, and await asyncio.wrap_future(function.submit(…))",
        )
    if inspect.isgeneratorfunction(function):
        raise errors.Invalid(
            f"{function.__qualname__} is a generator, which can be gone through only once",
            "return a list",
        )
