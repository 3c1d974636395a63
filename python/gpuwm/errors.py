"""What can go wrong, by name: the library's errno codes as exceptions."""

from __future__ import annotations

import errno
from typing import ClassVar


class Error(Exception):
    """Something that gpuwm could not do.

    code: the errno, positive (`errno.ENOENT`); 0 where the cause is none of the C library's.
    name: its name ("ENOENT"). message: what happened to what. detail: the limit or the remedy;
    may be empty. `str()` gives message and detail.
    """

    default_code: ClassVar[int] = 0

    def __init__(
        self, message: str, detail: str = "", *, code: int | None = None, name: str = ""
    ) -> None:
        super().__init__(message, detail)
        self.code = self.default_code if code is None else code
        self.name = name or errno.errorcode.get(self.code, "")
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
    """libgpuwm-client is not there, or too old for this package."""


class NotFound(Error):
    """No such model, tag, alias, version, tensor, pin or job."""

    default_code = errno.ENOENT


class NoTensor(NotFound, KeyError):
    """The version has no tensor of that name, or it is outside the subset that was attached."""


class Unreachable(Error):
    """Nobody listens on gpuwmd's socket."""

    default_code = errno.ECONNREFUSED


class NoDevice(Error):
    """No such device, or the version is not on it: the message lists where it is. Or the GPU is
    lost, with what lay there: the message says how."""

    default_code = errno.ENODEV


class Busy(Error):
    """Still in use: tensors live, an alias names the version, `expect` does not hold."""

    default_code = errno.EBUSY


class TimedOut(Error, TimeoutError):
    """It did not happen in the time that was given."""

    default_code = errno.ETIMEDOUT


class NoRoom(Error):
    """No room on the device; the message quotes the budget and what is free."""

    default_code = errno.ENOSPC


class Quota(Error):
    """A limit of gpuwmd; the message has its figure."""

    default_code = errno.EDQUOT


class Exists(Error):
    """The tag, alias, pin or rank is taken."""

    default_code = errno.EEXIST


class Refused(Error):
    """Not allowed: the role is missing, or the source lies outside the roots."""

    default_code = errno.EACCES


class Mismatch(Error):
    """Not the same: a field of the key, or the layout of a version to switch to."""

    default_code = errno.EKEYREJECTED


class Damaged(Error):
    """The bytes are not what they should be, or the version is tainted."""

    default_code = errno.EBADMSG


class Unsupported(Error):
    """Known, but not to be had here: the message says what is missing."""

    default_code = errno.ENOTSUP


class NotInstalled(Unsupported, ImportError):
    """A package that this needs is not installed: the message says which to install."""

    name: str  # of the errno, as in Error; an ImportError's own would be the package's


class InChild(Error):
    """Made by the parent, before a fork: connect or attach anew in the child."""

    default_code = errno.ECHILD


class Lost(Error):
    """The version, or its memory here, is gone."""

    default_code = errno.ESTALE


class Closed(Error):
    """The mapping was closed, or left by its `with`."""

    default_code = errno.EBADF


class Invalid(Error, ValueError):
    """An argument that can't be meant."""

    default_code = errno.EINVAL


class Cancelled(Error):
    """The job or publish was cancelled."""

    default_code = errno.ECANCELED


class Draining(Error):
    """gpuwmd is letting everything go, or stopping."""

    default_code = errno.ESHUTDOWN


class Disconnected(Error):
    """The connection ended. code ECONNABORTED: what was asked may or may not be done: look."""

    default_code = errno.ECONNRESET


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
    errno.EKEYREJECTED: Mismatch,
    errno.EXDEV: Mismatch,
    errno.EBADMSG: Damaged,
    errno.ENOTSUP: Unsupported,
    errno.ECHILD: InChild,
    errno.ESTALE: Lost,
    errno.ENOTRECOVERABLE: Lost,
    errno.EINVAL: Invalid,
    errno.ERANGE: Invalid,
    errno.ECANCELED: Cancelled,
    errno.ESHUTDOWN: Draining,
    errno.ECONNRESET: Disconnected,
    errno.ECONNABORTED: Disconnected,
}
