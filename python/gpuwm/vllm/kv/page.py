"""A page that says what a rank's KV is computed with, for the scheduler, which is another process
if there are several ranks.

A rank that moves to other weights writes its new identity before the move returns, so before the
engine resumes. The scheduler reads the page whenever it looks keys up. A message of vLLM's would
reach the scheduler only with the outcome of a step, and by then it has looked up keys of the old
weights.

The page is a memfd. The scheduler opens it as /proc/PID/fd/FD, which the kernel allows to the same
user, and no file is left behind.
"""

from __future__ import annotations

import mmap
import os

from .chain import KEY_BYTES, digest

_BYTES = 2 * KEY_BYTES  # the identity, and a digest of it: a reader may see half of a new identity


class Page:
    """A rank's page. It has no identity until `write`."""

    def __init__(self) -> None:
        self._file = os.memfd_create("gpuwm-kv", os.MFD_CLOEXEC)
        os.ftruncate(self._file, mmap.PAGESIZE)
        self._memory = mmap.mmap(self._file, mmap.PAGESIZE)

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def write(self, identity: bytes) -> None:
        self._memory[:_BYTES] = identity + digest(b"page", identity)

    def clear(self) -> None:
        """The rank has no identity."""
        self._memory[:_BYTES] = bytes(_BYTES)

    def close(self) -> None:
        self._memory.close()
        os.close(self._file)


class Reader:
    """The scheduler's view of a page. Raises OSError if the page can't be opened: the rank is on
    another machine, or has ended."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ)

    def read(self) -> bytes | None:
        """The rank's identity. None: it has none yet, or is writing one."""
        found = self._memory[:_BYTES]
        identity, check = found[:KEY_BYTES], found[KEY_BYTES:]
        return identity if check == digest(b"page", identity) else None

    def close(self) -> None:
        self._memory.close()
