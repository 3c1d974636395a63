"""How a rank of an engine answers a caller of one of its methods through vLLM's executor.

The executor raises the exception of the first rank that failed, and then takes the answers of later
ranks for those of its next call. So such a method never raises: it returns a dict that JSON can
hold. It has `rank` and, if the method failed, `error` (the class), `message` and `detail`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

log: logging.Logger = logging.getLogger("vllm.gpuwm")
Answer = dict[str, Any]


def answering(method: Callable[..., Answer]) -> Callable[..., Answer]:
    """Makes a method of a rank answer as the module's docstring says."""

    @functools.wraps(method)
    def answer(self: Any, *arguments: Any) -> Answer:
        rank = int(getattr(self, "rank", 0))
        try:
            return {"rank": rank, **method(self, *arguments)}
        except Exception as error:  # see the module's docstring
            return {"rank": rank, **failure(error, method.__name__)}

    return answer


def failure(error: Exception, what: str) -> Answer:
    """The answer of a method that failed. what: the name of the method."""
    log.warning("gpuwm: %s failed: %s: %s", what, type(error).__name__, error)
    return {
        "error": type(error).__name__,
        "message": getattr(error, "message", str(error)),
        "detail": getattr(error, "detail", ""),
    }
