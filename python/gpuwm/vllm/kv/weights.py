"""With which weights the engine's KV was computed, as the scheduler's half knows it.

Keys are right only if all KV that the engine has was computed with the weights that the ranks are
on now. vLLM has KV of requests and of its own prefix cache. So after a change of weights nothing is
shared until vLLM has dropped all its KV: `reset_prefix_cache(reset_running_requests=True,
reset_connector=True)`. A switch (`gpuwm.vllm._switch`) does that in its pause, before the
exchange.
"""

from __future__ import annotations

from . import chain
from .failures import Failures
from .page import Reader


class Weights:
    """pages: of all ranks. Nothing is shared if one can't be read."""

    def __init__(self, pages: list[str], failures: Failures) -> None:
        self._failures = failures
        self._pages: list[Reader] = []
        self.identities: tuple[bytes, ...] = ()  # those that `root` stands for
        self._root: bytes | None = None
        self._is_dropped = True  # no KV was computed since vLLM had none
        self._is_mixed = False  # some KV was computed with other weights than those of `identities`
        try:
            for page in pages:
                self._pages.append(Reader(page))
        except OSError as error:
            self.close()
            failures.tell("learn what a rank's KV is computed with: nothing is shared", error)

    def root(self) -> tuple[bytes | None, bool]:
        """The begin of all keys, and whether it is another one than at the last call. None: nothing
        can be shared now."""
        now = [page.read() for page in self._pages]
        identities = tuple(each for each in now if each is not None)
        if not now or len(identities) < len(now):
            return None, False
        if self._is_dropped and (identities != self.identities or self._is_mixed):
            self.identities, self._root = identities, chain.root_of(identities)
            self._is_mixed = False
            return self._root, True
        if identities != self.identities or self._is_mixed:
            return None, False
        return self._root, False

    def computed(self) -> None:
        """A step computes KV."""
        if self._pages and self.root()[0] is None and not self._is_mixed:
            self._is_mixed = True
            self._failures.tell(
                "share KV: the weights changed, and vLLM still has KV of others",
                "reset_prefix_cache(reset_running_requests=True, reset_connector=True) drops it",
            )
        self._is_dropped = False

    def dropped(self, is_empty: bool) -> None:
        """vLLM was told to drop all KV. is_empty: whether it has none now."""
        self._is_dropped = is_empty

    def close(self) -> None:
        while self._pages:
            self._pages.pop().close()
