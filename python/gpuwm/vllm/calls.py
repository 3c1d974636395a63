"""Calls the methods that `gpuwm.vllm.Extension` gives the ranks of an engine. What fails becomes an
error of gpuwm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .. import errors
from .targets import Answers, Target


class Ranks:
    """All ranks of an engine, for one switch. token: tells the ranks one switch from another."""

    def __init__(self, target: Target, token: str) -> None:
        self._target, self._token = target, token

    async def call(self, method: str, arguments: list[str], timeout: float, what: str) -> Answers:
        """The answers of all ranks, if none failed. what: what the method does, for errors. Raises
        a gpuwm.Error."""
        name = self._target.name
        with as_gpuwm_errors(name, what):
            answers = await self._target.call(method, [self._token, *arguments], timeout)
        for answer in answers:
            if "error" in answer:
                raise _error_of(name, what, answer)
        if not answers:
            raise errors.Error(f"{name} has no ranks that could {what}", "is it up?")
        return answers


@contextlib.contextmanager
def as_gpuwm_errors(name: str, what: str) -> Iterator[None]:
    """Turns other errors of an engine into errors of gpuwm. name: of the engine. what: what it was
    to do."""
    try:
        yield
    except errors.Error:
        raise
    except TimeoutError as error:
        raise errors.TimedOut(f"{name} could not {what}: {error}", "does it hang?") from error
    except Exception as error:
        raise _broken(name, what, error) from error


def _broken(name: str, what: str, error: Exception) -> errors.Error:
    """Makes a gpuwm.Error. vLLM's own errors have no common base class."""
    text = f"{type(error).__name__}: {error}"
    if "has no attribute 'gpuwm_" in text:
        return errors.Unsupported(
            f"the ranks of {name} can't {what}: {text}",
            "start it with --worker-extension-cls gpuwm.vllm.Extension",
        )
    return errors.Error(f"{name} could not {what}: {text}", "see the engine's log")


def _error_of(name: str, what: str, answer: dict[str, Any]) -> errors.Error:
    kind = getattr(errors, answer["error"], errors.Error)
    if not (isinstance(kind, type) and issubclass(kind, errors.Error)):
        kind = errors.Error
    said = answer["message"]
    if kind is errors.Error:
        said = f"{answer['error']}: {said}"
    return kind(f"{name}, rank {answer['rank']}, could not {what}: {said}", answer["detail"])
