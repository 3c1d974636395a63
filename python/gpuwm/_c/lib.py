"""libgpuwm-client through ctypes: where it is, its structures, its functions and its errors.

Other threads run during a call. The C library keeps the error of a failed call for the calling
thread, until the next call of that thread. So `check` fetches it at once.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import os
import re
import reprlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from ctypes import c_char_p
from typing import Any, Literal

from .. import errors
from . import abi, abi_blocks, abi_region

__version__ = "0.1.0"
NEEDED = (0, 1, 0)  # the library's version
SONAME = "libgpuwm-client.so.0"

MS_MAX = 2**63 - 1
UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1

_PROTOTYPES = abi.PROTOTYPES | abi_region.PROTOTYPES | abi_blocks.PROTOTYPES

# ---- finding it -----------------------------------------------------------


def _candidates() -> list[str]:
    given = os.environ.get("GPUWM_LIBRARY")
    if given:
        return [given]
    packaged = os.path.join(os.path.dirname(os.path.dirname(__file__)), "lib", SONAME)
    return [packaged] if os.path.exists(packaged) else [SONAME]


def _open() -> ctypes.CDLL:
    (path,) = _candidates()
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise errors.LibraryError(
            f"libgpuwm-client can't be opened: {error}",
            "install gpuwm's wheel, which carries it; or `make install` and ldconfig; "
            "or set GPUWM_LIBRARY to its file",
        ) from None


def _version_of(library: ctypes.CDLL) -> str:
    library.gpuwm_library_version.restype = c_char_p
    library.gpuwm_library_version.argtypes = ()
    return text(library.gpuwm_library_version())


def _too_old(library: ctypes.CDLL, version: str, lacks: str = "") -> errors.LibraryError:
    needed = ".".join(map(str, NEEDED))
    without = f" and has no {lacks}" if lacks else ""
    return errors.LibraryError(
        f"{library._name} is libgpuwm-client {version}{without}; "
        f"the Python package gpuwm {__version__} needs {needed} or newer",
        "install both from one release; GPUWM_LIBRARY names the file to use",
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Returns the library, ready to be called. Raises LibraryError if there is none, or one that is
    too old."""
    library = _open()
    try:
        version = _version_of(library)
    except AttributeError:
        raise errors.LibraryError(f"{library._name} is not libgpuwm-client") from None
    if tuple(int(part) for part in version.split("-")[0].split(".")) < NEEDED:
        raise _too_old(library, version)
    for name, (result, arguments) in _PROTOTYPES.items():
        try:
            function = library[name]
        except AttributeError:
            raise _too_old(library, version, name) from None
        function.restype = result  # type: ignore[assignment]
        function.argtypes = arguments  # type: ignore[assignment]
        setattr(library, name, function)
    return library


# ---- values ---------------------------------------------------------------


def text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def wrong(name: str, value: object, wanted: str) -> TypeError:
    """The error for an argument of the wrong type."""
    return TypeError(f"{name}={reprlib.repr(value)}: give {wanted}")


def path_bytes(value: str | os.PathLike[str] | None, name: str) -> bytes | None:
    if value is None:
        return None
    try:
        encoded = os.fsencode(value)
    except TypeError:
        raise wrong(name, value, "a path") from None
    except UnicodeEncodeError:
        raise _no_unicode(name, value) from None
    if b"\0" in encoded:
        raise _zero_byte(name, encoded)
    return encoded


def text_bytes(value: str, name: str) -> bytes:
    """Encodes a text for the C library. name: the name of the argument, for TypeError and
    Invalid."""
    if not isinstance(value, str):
        raise wrong(name, value, "a str")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise _no_unicode(name, value) from None
    if b"\0" in encoded:
        raise _zero_byte(name, encoded)
    return encoded


def ref_bytes(value: str, name: str = "ref") -> bytes:
    """Encodes the name of a version for the C library."""
    if not isinstance(value, str):
        raise wrong(name, value, 'a str: "model", "model@tag", "model@alias" or a version id')
    return text_bytes(value, name)


def maybe_text(value: str | None, name: str) -> bytes | None:
    return None if value is None else text_bytes(value, name)


def _no_unicode(name: str, value: object) -> errors.Invalid:
    return errors.Invalid(f"{name}={value!r} has half of a surrogate pair", "it is no Unicode text")


def _zero_byte(name: str, value: bytes) -> errors.Invalid:
    return errors.Invalid(f"{name}={text(value)!r} has a zero byte in it")


def names(values: str | Iterable[str], name: str) -> tuple[str, ...]:
    """Accepts one text or several."""
    if isinstance(values, str):
        return (values,)
    wanted = "a str or several"
    if not isinstance(values, Iterable):
        raise wrong(name, values, wanted)
    found = tuple(values)
    if not all(isinstance(each, str) for each in found):
        raise wrong(name, values, wanted)
    return found


def choice(value: str, name: str, among: Collection[str]) -> None:
    """Checks a text that is one of several. Raises TypeError, Invalid."""
    wanted = " or ".join(f'"{each}"' for each in among)
    if not isinstance(value, str):
        raise wrong(name, value, wanted)
    if value not in among:
        raise errors.Invalid(f"{name}={value!r}", wanted)


def function(value: Callable[..., Any], name: str, wanted: str) -> None:
    """Raises TypeError if the value can't be called."""
    if not callable(value):
        raise wrong(name, value, wanted)


def texts(values: Iterable[str], name: str) -> ctypes.Array[c_char_p]:
    encoded = [text_bytes(value, name) for value in values]
    return (c_char_p * len(encoded))(*encoded)


def count(value: int, name: str, most: int) -> int:
    """Checks a whole number from 0 to `most`: a C field would silently change a larger one."""
    try:
        found = operator.index(value)
    except TypeError:
        raise wrong(name, value, "an int") from None
    if not 0 <= found <= most:
        raise errors.Invalid(f"{name}={found}", f"0 to {most}")
    return found


def milliseconds(seconds: float | None, name: str) -> int:
    """Converts seconds. None: 0, no wait. math.inf: -1, for ever."""
    if seconds is None:
        return 0
    try:
        refused = math.isnan(seconds) or seconds < 0
    except (TypeError, ValueError, OverflowError):
        raise wrong(name, seconds, "None, seconds, or math.inf") from None
    if refused:
        raise errors.Invalid(f"{name}={seconds}", "None, seconds, or math.inf")
    if math.isinf(seconds):
        return -1
    return min(math.ceil(seconds * 1000), MS_MAX)


def left(wait_ms: int, since: float) -> int:
    """What is left of a wait that began at `since`, by time.monotonic(). It is never 0, which would
    mean a call that does not wait."""
    if wait_ms <= 0:
        return wait_ms
    return max(wait_ms - int((time.monotonic() - since) * 1000), 1)


def seconds_left(wait: float, since: float) -> float:
    """Does the same for a wait in seconds."""
    if wait == 0 or math.isinf(wait):
        return wait
    return left(milliseconds(wait, "wait"), since) / 1000


Key = Mapping[str, object]


def key_fields(key: Key | None) -> tuple[ctypes.Array[abi.KeyField] | None, int]:
    """Makes the fields key and key_count. Values that are not texts are converted by str()."""
    if key is None:
        return None, 0
    if not isinstance(key, Mapping) or not all(isinstance(name, str) for name in key):
        raise wrong("key", key, "fields by name: {'dtype': 'bf16', 'world': 2}")
    if not key:
        return None, 0
    fields = [
        abi.KeyField(text_bytes(name, "key"), text_bytes(str(key[name]), f"key[{name!r}]"))
        for name in key
    ]
    return (abi.KeyField * len(fields))(*fields), len(fields)


def own_key_fields(key: Key) -> tuple[ctypes.Array[abi.KeyField], int]:
    """Does the same for a call to which NULL means another key than one without fields."""
    fields, size = key_fields(key)
    return (abi.KeyField * 1)() if fields is None else fields, size


OneOwner = int | Literal["operator"]
Owner = OneOwner | Iterable[OneOwner]


def owner_fields(owner: Owner | None) -> tuple[ctypes.Array[ctypes.c_uint32] | None, int, bool]:
    """Makes the fields owner_uids, owner_uid_count and owner_operator."""
    if owner is None:
        return None, 0, False
    wish = 'numbers of users, and "operator": owner=[os.getuid(), "operator"]'
    owners = [owner] if isinstance(owner, (int, str)) else owner
    if not isinstance(owners, Iterable) or isinstance(owners, bytes):
        raise wrong("owner", owner, wish)
    uids: list[int] = []
    operators = False
    for one in owners:
        if not isinstance(one, (int, str)):
            raise wrong("owner", owner, wish)
        if one == "operator":
            operators = True
        elif isinstance(one, int) and not isinstance(one, bool) and 0 <= one < UINT32_MAX:
            uids.append(one)
        else:
            raise errors.Invalid(f"owner={owner!r}", wish)
    if not uids and not operators:
        raise errors.Invalid(f"owner={owner!r} names nobody", wish)
    return (ctypes.c_uint32 * len(uids))(*uids), len(uids), operators


# ---- errors ---------------------------------------------------------------

_NONE: Mapping[int, type[errors.Error]] = {}


def check(result: int) -> int:
    """Returns the result of a call, or raises its error if it is negative."""
    if result < 0:
        raise last_error(result)
    return result


# What the library and gpuwmd call memory that processes share: the word alone, in no longer name.
_REGION = re.compile(r"(?<![\w./\"-])region(?![\w./\"-])")


def last_error(
    result: int, special: Mapping[int, type[errors.Error]] = _NONE, region: str = "region"
) -> errors.Error:
    """The error of this thread's last call, which returned `result`. special: codes that mean
    something else in this call than in errors.KINDS. region: what the caller calls a region."""
    said: abi.ErrorText = load().gpuwm_error().contents
    kind = special.get(-result) or errors.KINDS.get(-result, errors.Error)
    # If a finalizer made a call in between, the message is another error's.
    if said.code != result:
        return kind(os.strerror(-result), code=-result)
    message, detail = (_REGION.sub(region, text(each)) for each in (said.message, said.detail))
    return kind(message, detail, code=-result, name=text(said.name))


def known(options: Iterable[str], declared: type, function: str) -> None:
    """Raises TypeError for an option that `declared`, a TypedDict, does not have."""
    for name in options:
        if name not in declared.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def sequence(values: Sequence[str] | None, name: str) -> tuple[ctypes.Array[c_char_p] | None, int]:
    """Makes an array for a pair of fields, pointer and count."""
    return (None, 0) if not values else (texts(values, name), len(values))
