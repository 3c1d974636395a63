"""`gpuwm.attach` and its awaitable form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from . import _lease, errors
from ._c import threads
from ._copies import Copies
from ._mapping import Mapping

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._lease import MapOptions, Options


@overload
def attach(ref: str, *, copy: Literal[False] = False, **options: Unpack[MapOptions]) -> Mapping: ...


@overload
def attach(ref: str, *, copy: Literal[True], **options: Unpack[Options]) -> Copies: ...


def attach(ref: str, *, copy: bool = False, **options: Unpack[MapOptions]) -> Mapping | Copies:
    """Takes a lease on a version and maps it: its tensors are shared, in about a millisecond. An
    option that is not given is None or False, if nothing else is said.

    - ref: "model", "model@tag", "model@alias" or a version id.
    - device: "host", a UUID, "cuda:N" or N as this process counts, or a torch.device. None: the
      device that the version is on, if it is on one device only, else the current one.
    - rank: for a version in parts; 0 if it is not given.
    - wait: seconds to wait for a version that is not there yet, or not ready. It bounds the whole
      call, connecting to gpuwmd included. None does not wait, math.inf waits for ever. Ctrl-C ends
      a wait.
    - layers, glob: attach only to tensors of these layers, or whose names match. Layers are found
      by names such as model.layers.7.mlp, transformer.h.7, blocks.7 or layers.0007; one that
      matches nothing is an error. Only segments that hold one of these tensors are mapped, and the
      mapping has no other tensors.
    - copy: return copies of this process's own (torch), which may be written. The lease ends at
      once.
    - writes: "refused" (the default): a write faults. "private" (host): a page that is written is
      copied, and the write stays in this process, as with torch.load(mmap=True).
    - key: fields that the version's key must have, with equal values, as texts: {"dtype": "bf16",
      "world": 2}.
    - owner: who must have made the version: a user's number, "operator", or several of them: [1000,
      "operator"]. None: the version of whoever was first to publish under the name.
    - look: for operators, whose client is connect(admin=True): attach also to a version that gives
      no leases because it is tainted or retiring.
    - address: where this process serves requests, "host:port", "[IPv6]:port" or "unix:/path": it is
      announced when the memory is mapped, as by Mapping.announce. Listen there first. Not with
      `copy`, which has no lease.
    - transport: "fd" (the default). "cuda_ipc" (a GPU): the memory is a copy of the version, for
      this user, which another process holds and legacy CUDA IPC opens. It takes its bytes and a
      CUDA context once more, and dies with its holder and with gpuwmd: `Mapping.check` then raises
      Lost. There is no switch. It is for programs that can't take descriptors; see `gpuwm.handles`.
    - room: the bytes that this process takes on the version's device besides the version: caches,
      activations, the CUDA context. gpuwmd counts them as used, and makes room for them together
      with the version, until the mapping is parked or ends. `Mapping.unpark(room=)` changes it. Not
      with `copy`.
    - progress: is told of a wait: a function that gets each gpuwm.Progress. None: what
      `gpuwm.set_progress` says.
    - client: None: a client that the whole process shares.

    Raises NotFound, NoDevice (the message lists where the version is), TimedOut, NoRoom, Mismatch
    (it names the field of the key), Refused (another owner), Damaged, Unsupported, Quota, Draining
    or Unreachable.
    """
    if copy and options.get("address") is not None:
        raise errors.Invalid(
            "copy=True with an address", "copies have no lease to announce it with"
        )
    if copy and options.get("room"):
        raise errors.Invalid("copy=True with room", "copies have no lease that holds it")
    mapping = Mapping(_lease.take(ref, **options))
    if not copy:
        return mapping
    try:
        return Copies(mapping)
    finally:
        mapping.drop()


@overload
async def attach_async(
    ref: str, *, copy: Literal[False] = False, **options: Unpack[MapOptions]
) -> Mapping: ...


@overload
async def attach_async(ref: str, *, copy: Literal[True], **options: Unpack[Options]) -> Copies: ...


async def attach_async(ref: str, **options: Any) -> Mapping | Copies:
    """Does what attach does, without blocking the event loop. If it is cancelled, the call goes on
    in its thread until it would have returned (at most `wait` seconds), and then gives back at once
    what it got."""
    return await threads.awaited(lambda: attach(ref, **options))


def attach_mapping(ref: str, **options: Unpack[MapOptions]) -> Mapping:
    """Does what `gpuwm.attach` does without `copy`."""
    return Mapping(_lease.take(ref, **options))
