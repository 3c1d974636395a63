"""The errors of gpuwm: the library's errno codes as exceptions."""

from __future__ import annotations

import errno
from typing import ClassVar


class Error(Exception):
    """Something that gpuwm could not do.

    - code: the errno, positive (`errno.ENOENT`); 0 if the C library did not fail.
    - name: the name of the errno ("ENOENT").
    - message: what failed, on what, and why.
    - detail: the limit or the remedy; may be empty.

    `str()` returns message and detail.
    """

    default_code: ClassVar[int] = 0

    def __init__(
        self, message: str, detail: str = "", *, code: int | None = None, name: str = ""
    ) -> None:
        super().__init__(message, detail)
        self.code: int = self.default_code if code is None else code
        self.name: str = name or errno.errorcode.get(self.code, "")
        self.message = message
        self.detail = detail

    def __str__(self) -> str:
        between = "" if self.detail.startswith("\n") else ": "
        return f"{self.message}{between}{self.detail}" if self.detail else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_again, (type(self), self.message, self.detail, self.code, self.name))


def _again(kind: type[Error], message: str, detail: str, code: int, name: str) -> Error:
    return kind(message, detail, code=code, name=name)


class LibraryError(Error):
    """libgpuwm-client is not there, or is too old for this package."""


class NotFound(Error):
    """There is no such model, tag, alias, version, tensor, pin or job."""

    default_code: ClassVar[int] = errno.ENOENT


class NoTensor(NotFound, KeyError):
    """The version has no tensor of that name, or the tensor is outside of the subset that was
    attached."""


class Unreachable(Error):
    """Nobody listens on gpuwmd's socket."""

    default_code: ClassVar[int] = errno.ECONNREFUSED


class NoDevice(Error):
    """There is no such device, or the version is not on it (the message lists where it is), or the
    GPU is lost with what it held (the message says how)."""

    default_code: ClassVar[int] = errno.ENODEV


class Busy(Error):
    """It is still in use: tensors live, an alias names the version, or `expect` does not hold."""

    default_code: ClassVar[int] = errno.EBUSY


class TimedOut(Error, TimeoutError):
    """It did not happen in the given time."""

    default_code: ClassVar[int] = errno.ETIMEDOUT


class NoRoom(Error):
    """The device has no room. The message says the budget and what is free."""

    default_code: ClassVar[int] = errno.ENOSPC


class Quota(Error):
    """A limit of gpuwmd was reached. The message has its figure.

    gpuwmd frees nothing in the first 10 seconds after its start (`grace_ms`), so that workers can
    take their leases again. If versions of this user are on their way to be freed, the message says
    what they give back, and when. `publish`, and pools, queues, blocks and scratch memory where
    they are created or opened, wait for that with `wait=60`."""

    default_code: ClassVar[int] = errno.EDQUOT


class Exists(Error):
    """The tag, alias, pin or rank is taken."""

    default_code: ClassVar[int] = errno.EEXIST


class Refused(Error):
    """It is not allowed: the role is missing, the version has another owner than was asked for, or
    the source lies outside of the roots."""

    default_code: ClassVar[int] = errno.EACCES


class Mismatch(Error):
    """Two things that must be equal differ: a field of the key, or the layout of a version to
    switch to."""

    default_code: ClassVar[int] = errno.EKEYREJECTED


class Damaged(Error):
    """The bytes are not those that were stored, or the version is tainted."""

    default_code: ClassVar[int] = errno.EBADMSG


class Unsupported(Error):
    """This machine can't do it: no driver, no torch, no such dtype. The message says what is
    missing."""

    default_code: ClassVar[int] = errno.ENOTSUP


class NotInstalled(Unsupported, ImportError):
    """A package that is needed is not installed. The message says which to install."""

    # the name of the errno, as in Error; in an ImportError it would be that of the package
    name: str


class InChild(Error):
    """The parent made it before a fork. Connect or attach anew in the child."""

    default_code: ClassVar[int] = errno.ECHILD


class Lost(Error):
    """The version, or its memory here, is gone. Of a TensorRef: its chunk has another content now,
    all its readers have come, or it was withdrawn. Of blocks: one has made room."""

    default_code: ClassVar[int] = errno.ESTALE


class Ended(Lost):
    """The region (a pool, queue, blocks, scratch) was closed by its owner, or removed, or it was
    damaged."""

    default_code: ClassVar[int] = errno.ESHUTDOWN


class OwnerDied(Lost):
    """The process that owned the pool or queue, or that was to write the bytes, has exited. The
    message names it."""

    default_code: ClassVar[int] = errno.EOWNERDEAD


class Already(Error):
    """This process has opened the region, or has taken the chunk, or holds the scratch memory. Of a
    release: this process does not hold it."""

    default_code: ClassVar[int] = errno.EALREADY


class NotYet(Error):
    """It can't be done now, but later it may be."""

    default_code: ClassVar[int] = errno.EAGAIN


class PoolFull(NotYet):
    """There is no room until readers finish. The message names who holds the oldest chunk of the
    pool, or most of the blocks."""


class NotOpen(Error):
    """A message needs a pool that this process has not opened."""

    default_code: ClassVar[int] = errno.ENXIO


class TooLarge(Error):
    """A message is larger than it may be. The error says both sizes."""

    default_code: ClassVar[int] = errno.EMSGSIZE


class Closed(Error):
    """The mapping or region was closed, or its `with` block has ended."""

    default_code: ClassVar[int] = errno.EBADF


class Invalid(Error, ValueError):
    """An argument is wrong."""

    default_code: ClassVar[int] = errno.EINVAL


class Cancelled(Error):
    """The job or publish was cancelled."""

    default_code: ClassVar[int] = errno.ECANCELED


class Draining(Error):
    """gpuwmd is draining or stopping."""

    default_code: ClassVar[int] = errno.ESHUTDOWN


class Disconnected(Error):
    """The connection ended. With the code ECONNABORTED the request was done or it was not: look,
    then repeat it."""

    default_code: ClassVar[int] = errno.ECONNRESET


KINDS: dict[int, type[Error]] = {
    errno.ENOENT: NotFound,
    errno.ENODATA: NoTensor,
    errno.ECONNREFUSED: Unreachable,
    errno.ENODEV: NoDevice,
    errno.EBUSY: Busy,
    errno.ETIMEDOUT: TimedOut,
    errno.ENOSPC: NoRoom,
    errno.EDQUOT: Quota,
    errno.EEXIST: Exists,
    errno.EACCES: Refused,
    errno.EPERM: Refused,
    errno.EKEYREJECTED: Mismatch,
    errno.EXDEV: Mismatch,
    errno.EBADMSG: Damaged,
    errno.ENOTSUP: Unsupported,
    errno.ECHILD: InChild,
    errno.ESTALE: Lost,
    errno.EOWNERDEAD: OwnerDied,
    errno.EALREADY: Already,
    errno.EAGAIN: NotYet,
    errno.ENXIO: NotOpen,
    errno.EMSGSIZE: TooLarge,
    errno.EPIPE: Closed,
    errno.ESRCH: NotFound,
    errno.EUCLEAN: Damaged,
    errno.ENOTRECOVERABLE: Lost,
    errno.EINVAL: Invalid,
    errno.ERANGE: Invalid,
    errno.ECANCELED: Cancelled,
    errno.ESHUTDOWN: Draining,
    errno.ECONNRESET: Disconnected,
    errno.ECONNABORTED: Disconnected,
}
