"""The settings in `--model-loader-extra-config`, which are checked before anything is connected."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .. import errors
from .._c import lib

MODES = ("auto", "load", "save", "raw")
FALLBACKS = ("auto",)
CACHES = ("off", "own", "owner")
# Loaders that do not read a plain checkpoint. Mode raw has plain checkpoints only, and what the
# other loaders leave refers to memory that a module image does not hold.
REFUSED_INNER: Mapping[str, str] = {
    "gpuwm": "the inner loader is the one that reads the checkpoint",
    "bitsandbytes": "bitsandbytes keeps the state of its quantisation outside of the module",
    "gguf": "a GGUF checkpoint becomes tensors of its own kind while it is loaded",
    "sharded_state": "a sharded state has its own layout on disk: load the plain checkpoint",
    "runai_streamer_sharded": "a sharded state has its own layout: load the plain checkpoint",
}
Check = Callable[[str, Any], Any]  # takes a key and its value; returns the setting, or raises


@dataclass(frozen=True)
class Settings:
    """The keys that all engines have; `gpuwm.vllm.model_loader` documents each."""

    ref: str | None = None
    mode: str = "auto"
    inner: str = "auto"
    inner_config: Mapping[str, Any] = field(default_factory=dict)
    fallback: str | None = None
    owner: tuple[lib.OneOwner, ...] = ()
    wait: float | None = None
    socket: str | None = None
    private: tuple[str, ...] = ()
    caches: str = "off"

    def after(self, since: float) -> Settings:
        """These settings with what is left of `wait`, which began at `since`, by
        time.monotonic()."""
        if self.wait is None:
            return self
        return dataclasses.replace(self, wait=lib.seconds_left(self.wait, since))

    @property
    def owners(self) -> tuple[lib.OneOwner, ...]:
        """Whose versions are accepted: those of `owner`, else this user's and the operators'."""
        return self.owner or (os.getuid(), "operator")


S = TypeVar("S", bound=Settings)


def parse(given: Any, kind: type[S], checks: Mapping[str, Check], where: str = "") -> S:
    """Reads the settings from a mapping. Raises Invalid, which names the key, its value, and what
    is allowed.

    checks: of each key of the engine, in the order in which errors list the keys. where: follows
    "does not know" in the error about an unknown key.
    """
    if not isinstance(given, Mapping):
        raise errors.Invalid(
            f"--model-loader-extra-config is a {type(given).__name__}",
            f"an object with any of {', '.join(checks)}",
        )
    for key in given:
        if key not in checks:
            near = difflib.get_close_matches(str(key), checks, 1)
            guess = f'did you mean "{near[0]}"? ' if near else ""
            raise errors.Invalid(
                f"--model-loader-extra-config has a key {key!r}, which load format gpuwm does not "
                f"know{where}",
                f"{guess}the keys are {', '.join(checks)}",
            )
    settings = kind(**{key: checks[key](key, value) for key, value in given.items()})
    _check_together(settings)
    return settings


def _check_together(settings: Settings) -> None:
    ref = settings.ref
    if settings.mode in ("load", "raw") and ref is None:
        what = "a version to attach to" if settings.mode == "load" else "the plain checkpoint"
        raise wrong("ref", None, f'"mode": "{settings.mode}" needs {what}: "ref": "llama@v1"')
    if settings.mode in ("auto", "save") and ref is not None and "@" not in ref:
        raise wrong(
            "ref",
            ref,
            f'"mode": "{settings.mode}" may have to build the version, so it needs a tag: '
            f'"ref": "{ref}@v1"',
        )
    if settings.mode == "save" and settings.fallback is not None:
        raise wrong(
            "fallback", settings.fallback, '"mode": "save" is there to publish: leave it out'
        )


# ---- a check for each key ----------------------------------------------------------------------


def wrong(key: str, value: Any, allowed: str) -> errors.Invalid:
    said = "is missing" if value is None else f"is {value!r}"
    return errors.Invalid(f'"{key}" in --model-loader-extra-config {said}', allowed)


def text_like(example: str) -> Check:
    """A check for a text that is not empty. example: for the error."""

    def check(key: str, value: Any) -> str:
        if not isinstance(value, str) or not value or "\0" in value:
            raise wrong(key, value, f"a text: {example}")
        return value

    return check


def one_of(allowed: tuple[str, ...]) -> Check:
    def check(key: str, value: Any) -> str:
        if value not in allowed:
            last = f'"{allowed[-1]}"'
            others = ", ".join(f'"{each}"' for each in allowed[:-1])
            raise wrong(key, value, f"{others} or {last}" if others else f"{last}, or absent")
        return str(value)

    return check


_ref_text = text_like('"llama@v1"')
_inner_text = text_like('"auto", "safetensors", "runai_streamer"')


def _ref(key: str, value: Any) -> str:
    text: str = _ref_text(key, value)
    try:
        lib.ref_bytes(text)
    except errors.Invalid as error:
        raise wrong(key, value, str(error)) from None
    return text


def _inner(key: str, value: Any) -> str:
    text: str = _inner_text(key, value)
    if text in REFUSED_INNER:
        raise wrong(key, value, REFUSED_INNER[text])
    return text


def _object(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(key, value, "an object: the extra configuration of the inner loader")
    return dict(value)


def _owner(key: str, value: Any) -> tuple[lib.OneOwner, ...]:
    several = isinstance(value, (list, tuple))
    owners: tuple[lib.OneOwner, ...] = tuple(value) if several else (value,)
    try:
        lib.owner_fields(owners)
    except (errors.Invalid, TypeError):
        raise wrong(
            key, value, 'the number of a user, "operator", or a list of these: [1000, "operator"]'
        ) from None
    return owners


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise wrong(key, value, "seconds, 0 or more: 600")
    return float(value)


def _globs(key: str, value: Any) -> tuple[str, ...]:
    globs = (value,) if isinstance(value, str) else value
    if not isinstance(globs, (list, tuple)) or not all(
        isinstance(each, str) and each for each in globs
    ):
        raise wrong(key, value, 'a pattern of names, or a list of them: ["*.bias"]')
    return tuple(globs)


CHECKS: Mapping[str, Check] = {
    "ref": _ref,
    "mode": one_of(MODES),
    "inner": _inner,
    "inner_config": _object,
    "fallback": one_of(FALLBACKS),
    "owner": _owner,
    "wait": _seconds,
    "socket": text_like('"/run/gpuwm/gpuwm.sock"'),
    "private": _globs,
}
