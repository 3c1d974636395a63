"""The file that a group of engines shares. The engine that has locked it is the active one, and its
content says which processes that engine has.

When the process that holds the lock (flock) ends, in whatever way, the kernel gives the lock back.
A change to the file, and the end of a process that had it open, make a descriptor readable
(inotify), so nobody has to look again and again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import weakref

from .. import errors

RECORD_BYTES_MAX = 1 << 20  # the record of an engine with a thousand ranks has a tenth of this
_MODE = 0o600
_EVENTS_BYTES = 4096
# constants of inotify(7)
_IN_MODIFY, _IN_CLOSE_WRITE = 0x2, 0x8
_libc = ctypes.CDLL(None, use_errno=True)


class LockFile:
    """The file at `path`. With `create` it is made if it is not there; its folder must be there.

    Raises Invalid if the folder is missing, the file can't be opened, or other users may write into
    it (its content decides which processes are killed), and NotFound if it is not there.
    """

    def __init__(self, path: str, create: bool = True) -> None:
        self.path = path
        self._create = create
        self.is_locked: bool = False
        self._descriptor = self._changes = -1
        self._open()
        _open_files.add(self)

    def close(self) -> None:
        """Gives the lock back. Others that have the file open learn of it."""
        for descriptor in (self._changes, self._descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._changes = -1
        self.is_locked = False

    @property
    def changes(self) -> int:
        """A descriptor that is readable if, since the last `forget_changes`, the file was written,
        or closed by a process that could write it."""
        return self._changes

    def forget_changes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._changes, _EVENTS_BYTES):
                pass

    def try_lock(self) -> bool:
        """Returns whether this process has the lock now. Raises Unsupported if the file system has
        no locks."""
        while not self.is_locked:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                raise errors.Unsupported(
                    f"{self.path} can't be locked: {os.strerror(error.errno or 0)}",
                    "choose a file on a local file system, such as /run",
                ) from error
            if self._is_at_path():
                self.is_locked = True
                break
            self.close()  # somebody removed the file, so engines that start later lock another one
            self._open()
        return True

    def read(self) -> bytes:
        return os.pread(self._descriptor, RECORD_BYTES_MAX, 0)

    def write(self, content: bytes) -> None:
        """Replaces the content of the file in one write, so that a process that is killed leaves
        the old content or the new one. A shorter text gets spaces at its end."""
        size = os.fstat(self._descriptor).st_size
        os.pwrite(self._descriptor, content.ljust(min(size, RECORD_BYTES_MAX)), 0)

    # ---- how ----

    def _open(self) -> None:
        folder = os.path.dirname(self.path) or "."
        if not os.path.isdir(folder):
            raise errors.Invalid(
                f"the lock {self.path} needs the folder {folder}, which is not there",
                "make the folder, one that only the engines' user may write",
            )
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        flags |= os.O_CREAT if self._create else 0
        try:
            self._descriptor = os.open(self.path, flags, _MODE)
        except FileNotFoundError:
            raise errors.NotFound(
                f"there is no lock {self.path}", "give the --lock of the group's engines"
            ) from None
        except OSError as error:
            raise errors.Invalid(
                f"the lock {self.path} can't be opened: {os.strerror(error.errno or 0)}",
                "give a path at which the engines' user may make and write a file",
            ) from error
        try:
            self._check()
            self._changes = _watch(self.path, self._descriptor)
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise errors.Invalid(f"the lock {self.path} is no regular file", "give another path")
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise errors.Invalid(
                f"the lock {self.path} belongs to user {found.st_uid} and has mode "
                f"{stat.S_IMODE(found.st_mode):o}, this engine runs as user {os.geteuid()}",
                "only the engines' user may write it, since it says which processes to kill: start "
                f"all engines of the group as one user, with a file of mode {_MODE:o}",
            )

    def _is_at_path(self) -> bool:
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))


def _watch(path: str, descriptor: int) -> int:
    changes = int(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if changes < 0:
        raise _no_inotify(path)
    # Through the descriptor, since another file may be at the path by now.
    name = f"/proc/self/fd/{descriptor}".encode()
    if _libc.inotify_add_watch(changes, name, _IN_MODIFY | _IN_CLOSE_WRITE) < 0:
        error = _no_inotify(path)
        os.close(changes)
        raise error
    return changes


def _no_inotify(path: str) -> errors.Unsupported:
    number = ctypes.get_errno()
    limits = number in (errno.EMFILE, errno.ENOSPC)
    return errors.Unsupported(
        f"changes of the lock {path} can't be watched (inotify): {os.strerror(number)}",
        "raise the limits in /proc/sys/fs/inotify" if limits else "choose a local file system",
    )


# Files to close in a forked child, which would hold the lock beyond its parent's end.
_open_files: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _close_in_child() -> None:
    for file in list(_open_files):
        file.close()


os.register_at_fork(after_in_child=_close_in_child)
