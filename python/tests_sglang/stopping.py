"""Loaders of SGLang that stop their process (SIGSTOP) at a moment, so that a test can kill it there
or let it go on. The environment variable `STOP` of an engine names the moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

from sglang.srt.model_loader.loader import DefaultModelLoader

from gpuwm import image
from gpuwm._publish.making import Making

from . import STOP

_weights = DefaultModelLoader._get_all_weights
_end = Making._end
_install = image.install


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _at_start(self: Any, *arguments: Any) -> Iterator[Any]:
    """Before anything is read: whoever builds has been elected then."""
    _stop()
    yield from _weights(self, *arguments)


def _halfway(self: Any, *arguments: Any) -> Iterator[Any]:
    weights = list(_weights(self, *arguments))
    yield from weights[: len(weights) // 2]
    _stop()
    yield from weights[len(weights) // 2 :]


def _then_fails(self: Any, *arguments: Any) -> Iterator[Any]:
    _stop()
    raise OSError("the test's disk is broken")
    yield


def _in_publish(making: Making, call: Any) -> Any:
    """When the version is filled, before its commit."""
    _stop()
    return _end(making, call)


def _before_install(*arguments: Any, **named: Any) -> Any:
    """When a model was built around a version that is attached."""
    _stop()
    return _install(*arguments, **named)


def apply() -> None:
    moment = os.environ.get(STOP)
    if moment == "in-publish":
        Making._end = _in_publish  # type: ignore[assignment, method-assign]
    elif moment == "before-install":
        image.install = _before_install
    elif moment is not None:
        DefaultModelLoader._get_all_weights = {
            "at-start": _at_start,
            "halfway": _halfway,
            "then-fails": _then_fails,
        }[moment]
