"""What an engine's compilers and autotuners leave in folders: a companion of the engine's version.

The first engine compiles, and publishes the files that it has made, as tensors of a version on the
host. That version is a companion: gpuwmd retires it with the engine's version. The next engine with
an equal key gets the files into the same folders before it compiles.

These files are code: who may write them runs code in the engines that take them. So

- an engine takes them only with the setting "caches", which is "off" by default: gpuwmd knows users
  by their numbers, and containers of one number would run each other's code;
- with "own" it takes them from its own user and from operators only, with "owner" also from those
  whose versions it takes;
- it compares every digest before it opens a byte;
- it writes files of mode 0600 into folders of mode 0700, over no link. It replaces no file, and
  leaves a folder that somebody else owns or may write.

Nothing here raises: an engine without caches compiles, and its log says why it has none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import errors
from .._attach import attach
from .._c import devices, lib
from .._publish.publish import publish
from . import fields

if TYPE_CHECKING:
    from .._mapping import Mapping as Attached
    from .._version import Version
    from .engine import Engine
    from .settings import Settings

# What gpuwmd takes of all companions of a version (COMPANION_BYTES_MAX of base/limits.h).
COMPANION_BYTES_MAX = 1 << 30
KEY = "caches.key"  # metadata: JSON of all fields of the key
_DIGITS = 24  # of a tag: 96 bits
# The kernel's times of files lag by one of its ticks at most.
_TICK_SECONDS = 0.01
# Locks, and files that are still being written.
_LEFT_OUT = (".lock", ".tmp")


@dataclasses.dataclass
class Caches:
    """Make it before the engine compiles.

    - roots: the folders, by names that the files' names begin with.
    - key: what the files depend on.
    - found: whether the version has a companion of this key already.
    - began: by time.time(): files that are as young are this engine's.
    """

    roots: dict[str, str]
    key: dict[str, str]
    found: bool = False
    began: float = dataclasses.field(default_factory=lambda: time.time() - _TICK_SECONDS)

    @property
    def key_text(self) -> str:
        return json.dumps(self.key, sort_keys=True)

    def name(self, version: Version) -> str:
        """Of the version's companion."""
        digest = hashlib.sha256(self.key_text.encode()).hexdigest()
        return f"{version.model}@{version.tag}.caches-{digest[:_DIGITS]}"


def folders() -> dict[str, str]:
    """Where compilers and autotuners keep files, whatever the engine, as this process's environment
    says now. Engines change it when they compile."""
    home = os.path.expanduser
    get = os.environ.get
    temporary = os.path.join(tempfile.gettempdir(), f"torchinductor_{_user()}")
    return {
        "inductor": get("TORCHINDUCTOR_CACHE_DIR") or temporary,
        "triton": get("TRITON_CACHE_DIR")
        or os.path.join(get("TRITON_HOME") or home("~"), ".triton", "cache"),
        "flashinfer": os.path.join(
            get("FLASHINFER_WORKSPACE_BASE") or home("~"), ".cache", "flashinfer"
        ),
        "deep_gemm": get("DG_JIT_CACHE_DIR") or home("~/.deep_gemm"),
        "cuda": get("CUDA_CACHE_PATH") or home("~/.nv/ComputeCache"),
    }


def _user() -> str:
    import getpass

    with contextlib.suppress(Exception):  # as many kinds as Python has releases
        return getpass.getuser()
    return str(os.getuid())


def key(
    engine: str, packages: tuple[str, ...], configuration: str, gpu: bool, roots: Mapping[str, str]
) -> dict[str, str]:
    """What compiled files depend on. engine: its name and release. packages: distributions with
    compilers and kernels. configuration: the engine's own hash. gpu: it runs on this process's
    current GPU. Raises Unsupported if the machine does not tell one of the fields."""
    cpu = "flags" if platform.machine() == "x86_64" else "Features"
    return {
        "engine": engine,
        "torch": fields.torch_version(),
        "packages": fields.packages(packages),
        "python": sys.version,
        "machine": " ".join((platform.machine(), *platform.libc_ver())),
        "cpu": _line("/proc/cpuinfo", cpu),
        "driver": _line("/proc/driver/nvidia/version") if gpu else "",
        "gpu": _gpu() if gpu else "",
        "paths": json.dumps([sorted(roots.items()), sys.prefix, fields.torch_folder()]),
        "configuration": configuration,
    }


def _gpu() -> str:
    import torch

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"{found.name} {found.major}.{found.minor} {found.multi_processor_count}"


def _line(path: str, beginning: str = "") -> str:
    """The first line of a file that begins so."""
    try:
        with open(path) as file:
            return next(line.strip() for line in file if line.startswith(beginning))
    except (OSError, StopIteration) as error:
        raise errors.Unsupported(f"{path} has no line {beginning!r}: {error}") from error


def of(engine: Engine, make: Callable[[], Caches]) -> Caches | None:
    """The caches of an engine that has the setting; rank 0 looks after them for all ranks."""
    if not engine.keeps_caches or engine.ranks.rank != 0:
        return None
    try:
        return make()
    except errors.Error as error:
        engine.log.warning("gpuwm: this engine has no caches in gpuwm: %s", error)
        return None


# ---- the next engine -----------------------------------------------------------------------------


def lay_out(engine: Engine, version: Version) -> None:
    """Writes the files of the version's companion into their folders, if there is one. Collective:
    no rank compiles before they are there."""
    if engine.caches is not None:
        _lay_out(engine.caches, engine, version)
    if engine.keeps_caches:
        engine.ranks.agree("wait for the files of compilers")


def _lay_out(caches: Caches, engine: Engine, version: Version) -> None:
    name, owners = caches.name(version), _owners(engine.settings)
    try:
        with attach(name, device=devices.HOST, owner=owners, client=engine.client) as found:
            if found.metadata.get(KEY) != caches.key_text:
                raise errors.Mismatch(f"its metadata {KEY} is not the key that its name stands for")
            found.verify()
            count = sum(_lay_out_file(caches.roots, file, found) for file in found)
            size = found.nbytes
    except errors.NotFound:
        return
    except (errors.Error, OSError) as error:
        engine.log.warning("gpuwm: this engine compiles without %s: %s", name, error)
    else:
        engine.log.info(
            "gpuwm: %d files of %s, %.1f MB, lie in the folders of this engine's compilers now",
            *(count, name, size / 1e6),
        )
    caches.found = True


def _owners(settings: Settings) -> list[lib.OneOwner]:
    """Whose files an engine takes."""
    more = settings.owners if settings.caches == "owner" else ()
    return [os.getuid(), "operator", *more]


def _lay_out_file(roots: Mapping[str, str], file: str, found: Attached) -> bool:
    """Returns whether it was not there yet."""
    root, *parts = file.split("/")
    if root not in roots or not parts or not {"", ".", ".."}.isdisjoint(parts):
        raise errors.Invalid(f"its file {file!r} lies beneath no folder of a compiler")
    os.makedirs(os.path.dirname(roots[root]), exist_ok=True)
    folder = None
    with contextlib.ExitStack() as stack:
        for part in (roots[root], *parts[:-1]):
            folder = _enter(part, folder)
            stack.callback(os.close, folder)
        return _write(parts[-1], folder, found[file].memoryview())


def _enter(name: str, beneath: int | None) -> int:
    """Opens a folder, which is made if it is not there. Raises Refused if somebody else could put
    files into it, and OSError if it is a link."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=beneath)
    opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=beneath)
    status = os.fstat(opened)
    if status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return opened
    os.close(opened)
    raise errors.Refused(
        f"the folder {name} belongs to user {status.st_uid} and has the mode "
        f"{stat.S_IMODE(status.st_mode):04o}",
        "it must be this user's, and nobody else may write it",
    )


def _write(name: str, folder: int | None, content: memoryview) -> bool:
    """A reader never sees a part of the file."""
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return False
    partial = f".gpuwm-{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):  # of a process of this number that was killed
        os.unlink(partial, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(partial, flags, 0o600, dir_fd=folder), "wb") as written:
        written.write(content)
    os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


# ---- the first engine ----------------------------------------------------------------------------


def write(engine: Engine, version: Version) -> None:
    """Publishes the files that this engine has made as the version's companion. Does nothing if the
    version has that companion, or the engine has made no file, since its folders had them.
    Collective: every rank has compiled."""
    if engine.keeps_caches:
        engine.ranks.agree("compile")
    if engine.caches is not None and not engine.caches.found:
        engine.caches.found = True
        _publish(engine.caches, engine, version)


def _publish(caches: Caches, engine: Engine, version: Version) -> None:
    name, began = caches.name(version), time.perf_counter()
    try:
        files = dict(_made(caches))
        _check_size(name, files)
        if not files:
            return
        publish(
            {file: _read(path) for file, path in files.items()},
            name,
            bind=False,
            companion_of=version.id,
            metadata={KEY: caches.key_text},
            device=devices.HOST,
            client=engine.client,
        )
    except errors.Exists:  # another engine was faster
        return
    except (errors.Error, OSError) as error:
        engine.log.warning("gpuwm: what this engine has compiled is not kept: %s", error)
        return
    engine.log.info(
        "gpuwm: %d files that this engine has compiled are kept as %s, in %.2f s",
        *(len(files), name, time.perf_counter() - began),
    )


def _check_size(name: str, files: Mapping[str, str]) -> None:
    size = sum(os.path.getsize(path) for path in files.values())
    if size > COMPANION_BYTES_MAX:
        raise errors.Error(
            f"{name} would have {size:,} bytes, and all companions of a version have at most "
            f"{COMPANION_BYTES_MAX:,}",
            'give the engine folders of its own, or "caches": "off"',
        )


def _made(caches: Caches) -> Iterator[tuple[str, str]]:
    """The names and paths of the files that this engine has made. A folder that lies in another one
    counts there."""
    for root, path in caches.roots.items():
        if any(_is_beneath(path, other) for other in caches.roots.values()):
            continue
        for folder, _, names in os.walk(path):
            for name in names:
                file = os.path.join(folder, name)
                if _is_made(file, caches.began):
                    yield f"{root}/{os.path.relpath(file, path)}", file


def _is_beneath(path: str, other: str) -> bool:
    return path != other and os.path.commonpath([path, other]) == other


def _is_made(path: str, since: float) -> bool:
    """Whether it is a file of this user's that is complete and that this engine may have made."""
    if path.endswith(_LEFT_OUT) or not path.isprintable():
        return False
    try:
        status = os.lstat(path)
    except FileNotFoundError:  # a compiler has just removed it
        return False
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.getuid()
        and status.st_mtime >= since
        and status.st_size > 0
    )


def _read(path: str) -> Any:
    import numpy

    return numpy.fromfile(path, numpy.uint8)
