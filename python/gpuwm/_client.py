"""A connection to gpuwmd: what gpuwmd has, and what an operator can do. `gpuwm._connection` makes
one."""

from __future__ import annotations

import builtins
import ctypes
import json
import math
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from . import errors
from ._c import abi, lib, threads
from ._c import events as _events
from ._c.owner import Owner
from ._shown import logs
from ._shown.progress import Hook, Operation, Progress
from ._shown.tables import Listing
from ._shown.watch import watched

_libc = ctypes.CDLL(None)
_libc.free.argtypes = (ctypes.c_void_p,)
_libc.free.restype = None


class Device(NamedTuple):
    """A device of gpuwmd. total and budget are in bytes. The size of a segment is a multiple of
    granularity."""

    id: str  # "host", "GPU-…", "MIG-…"
    name: str
    is_cuda: bool
    total: int
    budget: int
    granularity: int
    lost: str  # how the GPU was lost; it then takes no load and no publish. "": it was not lost


class Job(int):
    """The number of a job. It has methods to wait for the job, and it can be awaited.

    - what: "load", "verify", "demote", "promote" or "describe".
    - ref: the version that it is about, as it was named.
    """

    client: Client
    what: str
    ref: str

    def __new__(cls, number: int, client: Client, what: str, ref: str) -> Job:
        job = super().__new__(cls, number)
        job.client, job.what, job.ref = client, what, ref
        return job

    def __str__(self) -> str:
        return int.__repr__(self)

    def __repr__(self) -> str:
        return f"<gpuwm.Job {self}: {self.what} {self.ref}>"

    def wait(self, wait: float | None = math.inf, *, progress: Hook | None = None) -> bool:
        """Does what Client.wait_job does."""
        return self.client.wait_job(self, wait, progress=progress)

    def status(self) -> dict[str, Any]:
        """The job's row of Client.jobs: its state, phases, notes and error."""
        return self.client.jobs(self)[0]

    @property
    def progress(self) -> Progress:
        """How far it is now. It asks gpuwmd, as `status` does."""
        row = self.status()
        ended = {"done": "done", "failed": "failed", "cancelled": "failed"}.get(row["state"])
        return Progress(self.what, self.ref, ended or row["phase"], row["done"], row["total"])

    def cancel(self) -> None:
        """Does what Client.cancel does."""
        self.client.cancel(self)

    def __await__(self) -> Generator[Any, None, bool]:
        return _events.job_end(self.client, self).__await__()


class Replaced(str):
    """The id of the version that an alias named before it moved; empty if it named none. kept: why
    gpuwmd did not retire that version, though `retire_old` asked for it. None: gpuwmd retired it,
    or nobody asked."""

    kept: errors.Error | None = None

    def __repr__(self) -> str:
        return f"Replaced({str(self)!r}, kept={self.kept!r})"


class Client:
    """A connection. Any thread may use it. Calls on it wait for each other. See `connect`.

    Methods that change something, and clients() and jobs(), need `connect(admin=True)`, and raise
    Refused without it. Results have the keys of docs/protocol.md.
    """

    def __init__(self, pointer: int, socket: str | None = None, admin: bool = False) -> None:
        self.socket = socket  # None: the socket was found without a path
        self.admin = admin  # whether the connection is to admin.sock, in the folder of that path
        self._library = lib.load()
        self._owner: Owner | None = Owner(pointer, self._library.gpuwm_close)

    def __repr__(self) -> str:
        role = "admin " * self.admin
        where = f"on {self.socket}" if self.socket else "on the socket that was found"
        return f"<gpuwm.Client {role}{where}{', closed' * (self._owner is None)}>"

    def _held(self) -> Owner:
        if self._owner is None:
            raise errors.Closed("the client was closed", "connect again")
        return self._owner

    @property
    def handle(self) -> int:
        """The address of the `struct gpuwm_client`, for calls to the C library. It is valid while
        the client lives and is not closed."""
        return self._held()._as_parameter_

    def close(self) -> None:
        """Closes the client. The connection ends when the last mapping that was made from it is
        gone, and calls of other threads have returned."""
        self._owner = None

    def __reduce__(self) -> Any:
        raise TypeError("a gpuwm.Client is a connection of this process: connect() there")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, function: str, *arguments: Any) -> int:
        """Makes a call that gpuwmd answers. Ctrl-C ends the wait for the answer."""
        owner, call = self._held(), getattr(self._library, function)
        return threads.wait_for(lambda: lib.check(call(owner, *arguments)))

    # ---- looking ----

    def ping(self) -> float:
        """Makes one round trip. Returns its time in seconds."""
        ns = ctypes.c_uint64()
        self._call("gpuwm_ping", ctypes.byref(ns))
        return ns.value / 1e9

    @property
    def instance(self) -> str:
        """gpuwmd's id. Each start of gpuwmd has another one."""
        return lib.text(self._library.gpuwm_instance(self._held()))

    @property
    def devices(self) -> builtins.list[Device]:
        """gpuwmd's devices, `host` first, as they were when the connection was made."""
        found = ctypes.POINTER(abi.Device)()
        count = self._library.gpuwm_devices(self._held(), ctypes.byref(found))
        return [
            Device(
                lib.text(d.id),
                lib.text(d.name),
                d.is_cuda,
                d.total,
                d.budget,
                d.granularity,
                lib.text(d.lost),
            )
            for d in found[:count]
        ]

    def list(self, model: str | None = None) -> Listing:
        """The versions and aliases of one model, or of all: {"versions": [...], "aliases": [...],
        "seq": ...}. A notebook shows them as a table."""
        return Listing(self._query("list", model))

    def status(self) -> dict[str, Any]:
        """The state of gpuwmd itself: devices, limits, what it holds."""
        return self._query("status")

    def clients(self) -> builtins.list[dict[str, Any]]:
        """The clients that are connected, and what each of them holds."""
        found: builtins.list[dict[str, Any]] = self._query("clients")["clients"]
        return found

    def metrics(self) -> dict[str, Any]:
        """Tells what gpuwmd has counted and timed since its start: counters, refusals, histograms
        and users."""
        return self._query("metrics")

    def jobs(self, job: int | None = None) -> builtins.list[dict[str, Any]]:
        """One job, or all of them, with their phases, progress and errors."""
        filter_text = None if job is None else str(_job(job))
        found: builtins.list[dict[str, Any]] = self._query("jobs", filter_text)["jobs"]
        return found

    def _query(self, method: str, filter_text: str | None = None) -> dict[str, Any]:
        out = ctypes.c_void_p()
        text = lib.maybe_text(filter_text, "model")
        self._call("gpuwm_query", method.encode(), text, ctypes.byref(out))
        return self._take_json(out)

    @staticmethod
    def _take_json(out: ctypes.c_void_p) -> dict[str, Any]:
        try:
            result: dict[str, Any] = json.loads(ctypes.string_at(out.value or 0))
        finally:
            _libc.free(out)
        return result

    def events(self, after: int | None = None) -> _events.Events:
        """The events of gpuwmd, from now on, or after the event with the number `after`: for `for`,
        and for `async for`."""
        return _events.Events(self, after)

    async def ready(self, ref: str) -> dict[str, Any]:
        """Waits until a version is ready. gpuwmd need not know it yet. Returns its row of list().

        ref: "model", "model@tag" or "model@alias". If the version fails, raises its error.
        """
        return await _events.ready(self, ref)

    # ---- operating ----

    def load(
        self,
        source: str | os.PathLike[str],
        name: str,
        *,
        devices: Sequence[str] | str | None = None,
        alias: str | None = None,
        dry_run: bool = False,
        key: lib.Key | None = None,
        expect: str | None = None,
        retire_old: bool = False,
        share_with: str | None = None,
        segment_bytes: int | None = None,
        ranks: int | None = None,
        cut: str | None = None,
        fingerprint: str | None = None,
        files: Mapping[str, int] | None = None,
        only: Sequence[str] | str | None = None,
        companion_of: str | None = None,
    ) -> Job:
        """Starts to load a checkpoint as `name` ("model@tag"). Returns the job without waiting for
        it.

        - source: an absolute path beneath one of gpuwmd's roots; or another node's version,
          "peer://HOST[:PORT]/MODEL@TAG", or "peer:///MODEL@TAG" of the first peer that has it.
        - devices: the device of each replica, or of each rank. None: the only GPU, or the host if
          there is none.
        - alias: is moved to the version when the version is ready.
        - dry_run: the job only makes a plan.
        - key: the version's key, which `attach(key=...)` can ask for.
        - expect: the load fails, and changes nothing, if `alias` does not name this version id when
          the load begins, and when the version is ready. 32 zeros: if there is such an alias.
        - retire_old: retire the version that `alias` named.
        - share_with: a version that is ready. The new version takes its segments where the bytes
          are equal, so that both use the same memory. The job's notes say what they share.
        - segment_bytes: the size of segments, a multiple of 2 MiB. None: 2 GiB with `share_with`,
          else 16 GiB.
        - ranks, cut: cut the checkpoint into this many ranks by the text of a cut plan. Then
          `devices` has one device for each rank, or one for all of them.
        - fingerprint: of another node's version. The load fails, and takes nothing, if the SHA-256
          over that version is another one.
        - files: the checkpoint's files by their names, as descriptors that are open for reading.
          They need no root, and who may publish may load them. `source` is then a name that
          `jobs` shows. The descriptors stay the caller's, and may be closed after the call.
        - only: globs of tensor names, such as "model.layers.3.*". The version has only the tensors
          that one of them matches; each must match one. With `ranks`, the plan cuts what is left.
        - companion_of: as in `publish`.
        """
        if not isinstance(files, Mapping | None):
            raise lib.wrong("files", files, "descriptors by name")
        passed = [
            abi.LoadFile(lib.text_bytes(file, "files"), lib.count(fd, "files", 2**31 - 1))
            for file, fd in (files or {}).items()
        ]
        fields, field_count = lib.key_fields(key)
        names, count = lib.sequence(
            None if devices is None else lib.names(devices, "devices"), "devices"
        )
        globs, glob_count = lib.sequence(None if only is None else lib.names(only, "only"), "only")
        if only is not None and not glob_count:
            raise ValueError("only: there is no glob; None takes all tensors")
        options = abi.LoadOptions(
            size=ctypes.sizeof(abi.LoadOptions),
            source=lib.path_bytes(source, "source"),
            name=lib.text_bytes(name, "name"),
            devices=names,
            device_count=count,
            alias=lib.maybe_text(alias, "alias"),
            dry_run=dry_run,
            key=fields,
            key_count=field_count,
            expect=lib.maybe_text(expect, "expect"),
            retire_old=retire_old,
            share_with=lib.maybe_text(share_with, "share_with"),
            segment_bytes=lib.count(segment_bytes or 0, "segment_bytes", 2**64 - 1),
            ranks=lib.count(ranks or 0, "ranks", 2**32 - 1),
            cut=lib.maybe_text(cut, "cut"),
            fingerprint=lib.maybe_text(fingerprint, "fingerprint"),
            files=(abi.LoadFile * len(passed))(*passed) if passed else None,
            file_count=len(passed),
            only=globs,
            only_count=glob_count,
            companion_of=lib.maybe_text(companion_of, "companion_of"),
        )
        job = ctypes.c_uint64()
        self._call("gpuwm_load", ctypes.byref(options), ctypes.byref(job))
        logs.client.info("job %d loads %s from %s", job.value, name, source)
        return Job(job.value, self, "load", name)

    def wait_job(
        self, job: int, wait: float | None = math.inf, *, progress: Hook | None = None
    ) -> bool:
        """Waits for the end of a job. wait: in seconds. None: not at all. progress: gets each
        gpuwm.Progress; None: what `gpuwm.set_progress` says.

        Returns True if the job did all it should. Returns False if its version is ready, but its
        alias could not be moved, or the old version not retired: jobs(job) says why. Raises the
        job's error if it failed, TimedOut, Cancelled, NotFound, and Disconnected if gpuwmd ended
        with the job. Other calls of this client wait meanwhile; `await job` blocks nobody.
        """
        number, wait_ms = _job(job), lib.milliseconds(wait, "wait")
        owner, call = self._held(), self._library.gpuwm_job_wait
        what, name = (job.what, job.ref) if isinstance(job, Job) else ("job", str(number))
        with Operation(what, name, progress) as told:
            result = watched(
                lambda: lib.check(call(owner, number, wait_ms)),
                told,
                self,
                lambda: lambda event: event.data["job"] == number,
            )
        return result == 0

    def cancel(self, job: int) -> None:
        """Cancels a job, and waits until it has ended, about 2 seconds at most. Raises NotFound if
        there is no such job, or it has ended already; the message says how."""
        self._call("gpuwm_job_cancel", _job(job))

    def swap(
        self,
        model: str,
        to: str | None,
        *,
        alias: str = "current",
        expect: str | None = None,
        retire_old: bool = False,
    ) -> Replaced:
        """Moves an alias in one step. Returns the id of the version that it named before; an empty
        one if it named none.

        - to: a tag, an alias or a version id. None removes the alias.
        - expect: move the alias only if it names the version with this id now ("0" * 32: only if
          there is no such alias). Otherwise raises Busy.
        - retire_old: retire the version that the alias named. If that is not possible, because
          another alias names it, the alias moves nevertheless, and `kept` of the result says why.
        """
        options = abi.SwapOptions(
            size=ctypes.sizeof(abi.SwapOptions),
            model=lib.text_bytes(model, "model"),
            alias=lib.text_bytes(alias, "alias"),
            to=lib.maybe_text(to, "to"),
            expect=lib.maybe_text(expect, "expect"),
            retire_old=retire_old,
        )
        owner, old = self._held(), ctypes.create_string_buffer(33)

        def call() -> errors.Error | None:
            library = self._library
            if lib.check(library.gpuwm_swap(owner, ctypes.byref(options), old)) == 0:
                return None
            return lib.last_error(library.gpuwm_error().contents.code)

        kept = threads.wait_for(call)
        replaced = Replaced(lib.text(old.value))
        replaced.kept = kept
        logs.client.info("%s@%s is %s now", model, alias, "gone" if to is None else to)
        return replaced

    def set_alias(self, model: str, alias: str, to: str, *, expect: str | None = None) -> Replaced:
        """Makes an alias or moves it, in one step: from then on "model@alias" is that version.
        Returns the id of the version that the alias named before; an empty one if there was no such
        alias.

        - to: a tag, another alias or a version id, of a version that is ready.
        - expect: as in `swap`.

        Raises NotFound if there is no such version, Exists if `alias` is a tag of the model, and
        Refused.
        """
        return self.swap(model, lib.ref_bytes(to, "to").decode(), alias=alias, expect=expect)

    def remove_alias(self, model: str, alias: str, *, expect: str | None = None) -> Replaced:
        """Removes an alias. The version stays, and so do the leases on it. Returns the id of the
        version that the alias named. Raises NotFound if there is no such alias, and Refused."""
        return self.swap(model, None, alias=alias, expect=expect)

    def rollback(self, model: str, alias: str = "current") -> Replaced:
        """Moves an alias back to the version that it named before. Returns the id of the version
        that it named until now.

        Raises NotFound if there is no such alias, or it has named no other version, or that one is
        retired. Raises Busy if somebody else moves the alias meanwhile.
        """
        lib.text_bytes(alias, "alias")
        aliases = {
            row["alias"]: row for row in self.list(model)["aliases"] if row["model"] == model
        }
        row = aliases.get(alias)
        if row is None:
            raise errors.NotFound(f'model "{model}" has no alias "{alias}"', "list() tells aliases")
        # An older gpuwmd knows it of current only.
        before = row.get("before") or (
            alias == "current" and aliases.get("previous", {}).get("version")
        )
        if not before:
            raise errors.NotFound(
                f"{model}@{alias} has named no other version, or that one is retired",
                "swap() moves it to a version of your choice",
            )
        return self.swap(model, before, alias=alias, expect=row["version"])

    def pin(self, ref: str, name: str) -> None:
        """Pins a version under a name: gpuwmd keeps it, whoever else leaves, also across restarts.
        Raises Exists if the name is taken."""
        self._call("gpuwm_pin", lib.ref_bytes(ref), lib.text_bytes(name, "name"))

    def unpin(self, ref: str, name: str) -> None:
        """Removes a pin. Raises NotFound if there is none."""
        self._call("gpuwm_unpin", lib.ref_bytes(ref), lib.text_bytes(name, "name"))

    def retire(
        self, ref: str, wait: float | None = None, *, force: bool = False, after: float = 0
    ) -> None:
        """Retires a version: gpuwmd gives no new leases on it, and frees it when the last lease and
        pin are gone. wait: seconds to wait for that. Raises TimedOut, and Busy if an alias names
        the version.

        force: `after` this many seconds gpuwmd revokes the leases that are left and frees the
        version, whatever its workers do. Raises Busy also if it has pins.
        """
        version, wait_ms = lib.ref_bytes(ref), lib.milliseconds(wait, "wait")
        after_ms = lib.milliseconds(after, "after")
        if after_ms < 0 or (after_ms and not force):
            raise errors.Invalid(f"after={after!r}", "seconds that a retire by force leaves")
        if force:
            self._call("gpuwm_retire_by_force", version, after_ms, wait_ms)
        else:
            self._call("gpuwm_retire", version, wait_ms)
        logs.client.info("retired %s", ref)

    def remove(self, ref: str) -> None:
        """Removes a failed version from list(). gpuwmd does so by itself after a day. Raises an
        Error if the version did not fail (`detail` says what frees it), and NotFound."""
        self._call("gpuwm_remove", lib.text_bytes(ref, "ref"))

    def kick(
        self, lease: int | None = None, *, pid: int | None = None, uid: int | None = None
    ) -> builtins.list[dict[str, Any]]:
        """Revokes a lease (its number is in clients()), or all leases of a process or a user.
        Returns the leases. gpuwmd tells the holders, who do not get these leases again. Raises
        NotFound if there is no such lease."""
        given = [
            (by, lib.count(number, name, lib.UINT64_MAX))
            for by, name, number in (
                (abi.KICK_LEASE, "lease", lease),
                (abi.KICK_PID, "pid", pid),
                (abi.KICK_UID, "uid", uid),
            )
            if number is not None
        ]
        if len(given) != 1:
            raise errors.Invalid(f"{len(given)} of lease, pid and uid", "kick takes one of them")
        out = ctypes.c_void_p()
        self._call("gpuwm_kick", *given[0], ctypes.byref(out))
        kicked: builtins.list[dict[str, Any]] = self._take_json(out)["leases"]
        return kicked

    def verify(
        self, ref: str, device: str | None = None, *, source: bool = False
    ) -> builtins.list[Job]:
        """Has the memory of a version read again and compared with its digests. Returns a job for
        each replica. A job fails with Damaged if the memory differs. With `source` it reads the
        files from which the version would come back instead, with a job for each rank; the version
        may lie on any tier. Raises Invalid if no such files are known."""
        numbers = (ctypes.c_uint64 * abi.VERIFY_JOBS_MAX)()
        count = ctypes.c_size_t()
        version, where = lib.ref_bytes(ref), lib.maybe_text(device, "device")
        call = "gpuwm_verify_source" if source else "gpuwm_verify"
        self._call(call, version, where, numbers, ctypes.byref(count))
        return [Job(number, self, "verify", ref) for number in numbers[: count.value]]

    def _moves(self, what: str, ref: str, *more: bytes | None) -> builtins.list[Job]:
        numbers = (ctypes.c_uint64 * abi.VERIFY_JOBS_MAX)()
        count = ctypes.c_size_t()
        self._call(f"gpuwm_{what}", lib.ref_bytes(ref), *more, numbers, ctypes.byref(count))
        return [Job(number, self, what, ref) for number in numbers[: count.value]]

    def demote(self, ref: str, tier: str) -> builtins.list[Job]:
        """Moves a version without leases and pins to the tier "host" (host memory) or "files" (no
        memory: it can be loaded again from its source). Returns a job for each part that moves.
        There are none if the version lies there already or has a host copy, or while the move
        waits for room (`moving` in list()). It keeps its name, id and aliases. attach brings it
        back."""
        return self._moves("demote", ref, lib.maybe_text(tier, "tier"))

    def promote(self, ref: str) -> builtins.list[Job]:
        """Moves a version back to its devices. Returns a job for each part that moves. There are
        none if it lies there already, or while the move waits for room (`moving` in list())."""
        return self._moves("promote", ref)

    def describe(self, ref: str, source: str | os.PathLike[str]) -> builtins.list[Job]:
        """Has files compared with the memory of a version. If they have every byte of it, they are
        its source, and it can be demoted to "files". A job fails with Damaged if the bytes differ.
        """
        return self._moves("describe", ref, os.fsencode(source))

    def drain(self, device: str | None = None) -> None:
        """Has gpuwmd refuse new leases and free everything that is unused, until it is restarted.
        With the device of a lost GPU: has gpuwmd revoke the leases on the versions that were lost
        with the GPU, and free those versions."""
        where = lib.maybe_text(device, "device")
        if where is None:
            self._call("gpuwm_drain")
        else:
            self._call("gpuwm_drain_device", where)

    def reload(self) -> None:
        """Makes gpuwmd read its configuration again. If the new one is wrong, the old one stays in
        force, and the exception names the file, the line and the error."""
        self._call("gpuwm_reload")


def _job(number: int) -> int:
    return lib.count(number, "job", lib.UINT64_MAX)
