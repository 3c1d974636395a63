"""The tensors of a version that is attached, in place, under a lease."""

from __future__ import annotations

import collections.abc
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _cuts as cutting
from . import errors
from ._c import dtypes, lib
from ._c.handle import Handle, TensorInfo
from ._tensor import Ref, Slice, Tensor, slice_of
from ._version import Files, Version, metadata_of, version_of

if TYPE_CHECKING:
    import numpy
    from torch import Tensor as TorchTensor

    from ._cuts import Cut

T = TypeVar("T")


class Tensors(collections.abc.Mapping[str, Tensor]):
    """What a Mapping is without the calls that need a model, another mapping or a folder."""

    def __init__(self, handle: Handle) -> None:
        self._handle: Handle | None = handle

    # ---- what it is ----

    def _held(self) -> Handle:
        if self._handle is None:
            raise errors.Closed("the mapping was closed", "attach anew")
        return self._handle

    @property
    def handle(self) -> int:
        """The address of the `struct gpuwm_mapping`, for calls to the C library."""
        with self._held().use() as pointer:
            return pointer

    @property
    def private_writes(self) -> bool:
        """Whether this process may write into the tensors. What it writes stays its own."""
        return self._held().private_writes

    @property
    def version(self) -> Version:
        return version_of(self._held().version)

    @property
    def device(self) -> str:
        """The name of its device: "host", or a UUID."""
        return lib.text(self._held().version.device)

    @property
    def nbytes(self) -> int:
        """The bytes of its tensors. Tensors at the same place count once."""
        return sum(info.nbytes for info in self.infos() if info.tied is None)

    @property
    def metadata(self) -> dict[str, str]:
        """The texts of the version."""
        return metadata_of(self._held())

    @property
    def files(self) -> Files:
        """The small files of the version: files["config.json"]."""
        return Files(self._held())

    def __repr__(self) -> str:
        if self._handle is None:
            return "<gpuwm.Mapping, closed>"
        version = self.version
        try:
            has = f"{len(self)} tensors"
        except errors.InChild:
            has = "made before a fork, by the parent process"
        return f"<gpuwm.Mapping {version} on {version.device}: {has}>"

    # ---- tensors ----

    def infos(self) -> list[TensorInfo]:
        """Descriptions of all tensors, in the order of their names' bytes."""
        handle = self._held()
        return list(handle.selection.of(handle.table().infos))

    @property
    def cuts(self) -> dict[str, Cut]:
        """Of each tensor that was split when the checkpoint was cut for ranks: where it lies in the
        whole tensor. Empty if the version was not cut (`gpuwmctl load --cut`)."""
        plan = self.metadata.get(cutting.PLAN)
        return {} if plan is None else cutting.cuts(plan, self.version, self.infos())

    def digests(self) -> dict[str, str]:
        """The digest of each tensor's bytes, 32 digits each, by name. `version.content` covers
        metadata and files too, and so who made the version and when."""
        handle = self._held()
        table = handle.table()
        return {
            info.name: bytes(table.array[table.positions[info.name]].digest).hex()
            for info in handle.selection.of(table.infos)
        }

    def __iter__(self) -> Iterator[str]:
        return iter([info.name for info in self.infos()])

    def __len__(self) -> int:
        return len(self.infos())

    # Two mappings are equal only if they are the same object: their tensors are not compared.
    def __eq__(self, other: object, /) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __contains__(self, name: object) -> bool:
        return (
            isinstance(name, str)
            and name in self._held().table().positions
            and name in self._held().selection
        )

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of this name. Raises NoTensor, which is a KeyError."""
        if not isinstance(name, str):
            raise lib.wrong("name", name, "the name of a tensor: keys() has them")
        handle = self._held()
        position = handle.table().positions.get(name)
        if position is None:
            raise errors.NoTensor(f"{self.version} has no tensor {name}", _similar(self, name))
        if name not in handle.selection:
            raise errors.NoTensor(
                f"tensor {name} of {self.version} was not attached",
                f"only these were: {handle.selection}",
            )
        return Tensor(handle, position, handle.private_writes)

    @overload
    def get(self, name: str, default: None = None, /) -> Tensor | None: ...

    @overload
    def get(self, name: str, default: Tensor | T, /) -> Tensor | T: ...

    def get(self, name: str, default: Any = None, /) -> Any:
        """The tensor of this name, or the default if the mapping has none."""
        if name not in self:
            return default
        return self[name]

    def get_slice(self, name: str, framework: str = "pt") -> Slice:
        """As in safetensors: get_slice(name)[2:4] is a view, without a copy. framework: "pt" or
        "np"."""
        return slice_of(self[name], framework)

    def ref(self, name: str) -> Ref:
        """A reference to a tensor, which can be sent anywhere on this machine: see gpuwm.Ref."""
        return self[name].ref()

    def torch(self, name: str) -> TorchTensor:
        """A tensor for torch, without a copy: see Tensor.torch."""
        return self[name].torch()

    def numpy(self, name: str) -> numpy.ndarray[Any, Any]:
        """An array, without a copy: see Tensor.numpy."""
        return self[name].numpy()

    def state_dict(self, *, copy: bool = False) -> dict[str, TorchTensor]:
        """All tensors for torch by name, in place, without a copy. Names at the same place with the
        same shape are one tensor. copy: copies of this process's own instead, which may be
        written."""
        handle = self._held()
        table = handle.table()
        infos = handle.selection.of(table.infos)
        if not infos:
            return {}
        dtypes.need("torch", infos[0].name)
        from ._torch import tensors as in_torch

        first = _first_alike(infos)  # only of names that are not their own first
        positions = [table.positions[i.name] for i in infos if i.name not in first]
        tensors = in_torch.in_place(handle, positions, handle.private_writes)
        if copy:
            tensors = list(map(in_torch.clone, tensors))
        made = iter(tensors)
        found: dict[str, TorchTensor] = {}
        for info in infos:
            like = first.get(info.name)
            found[info.name] = next(made) if like is None else found[like]
        return found

    def verify(
        self, names: str | Iterable[str] | None = None, *, sample: int | None = None
    ) -> None:
        """Reads tensors again in this process, and compares them with the digests that the version
        got when it was made. Returns nothing if they are equal. Raises Damaged, which names the
        first tensor that differs and has both digests.

        - names: which tensors. None: all that are attached.
        - sample: read only this many of them, chosen at random.

        On a GPU it reads at the memory's speed, after what is queued, and raises Busy while a CUDA
        graph is being captured. `version.content` is the digest of all tensors. If it is equal in
        several processes, and none of them finds a difference, they read the same weights.
        """
        chosen = list(self) if names is None else [*lib.names(names, "names")]
        for name in chosen:
            self[name]  # raises NoTensor
        if sample is not None:
            import random

            most = lib.count(sample, "sample", lib.UINT64_MAX)

            # It has its own generator, so that the program's generator gives the same numbers with
            # and without a call.
            chosen = random.Random().sample(chosen, min(most, len(chosen)))
        handle = self._held()
        # Without names the library reads all that is mapped, whatever was chosen.
        array = lib.texts(chosen, "names")
        with handle.use() as pointer:
            lib.check(handle.library.gpuwm_tensors_verify(pointer, array, len(chosen)))

    # ---- where it is served ----

    def announce(self, address: str | None) -> None:
        """Says where this process serves requests with this version: "host:port", "[IPv6]:port" or
        "unix:/path". gpuwm-follow has a load balancer send requests there. None: nowhere any more.

        `switch` and `exchange` keep the address, and so does a restart of gpuwmd. A process that is
        to exit without losing a request withdraws the address, serves on until requests have ceased
        to come, and then gives the mapping up.

        Raises Invalid (it is no address), Quota, Lost or Unreachable."""
        encoded = lib.maybe_text(address, "address")
        handle = self._held()
        with handle.use() as pointer:
            lib.check(handle.library.gpuwm_announce(pointer, encoded))

    # ---- its end ----

    @property
    def revoked(self) -> bool:
        """Whether an operator revoked the lease. Then `check` raises Lost. The memory stays mapped,
        and gpuwmd counts it as used, until the mapping and its tensors are gone, or `switch` puts
        another version there. It costs no round trip: look at a quiet point."""
        handle = self._held()
        with handle.use() as pointer:
            found: bool = handle.library.gpuwm_mapping_revoked(pointer)
        return found

    @property
    def exports(self) -> int:
        """How many tensors, arrays and views made from it are alive."""
        handle = self._held()
        with handle.use() as pointer:
            count: int = handle.library.gpuwm_mapping_exports(pointer)
        return count

    def drop(self) -> None:
        """Gives the mapping up. Memory and lease go when the last tensor made from it has gone."""
        self._handle = None

    def close(self) -> None:
        """Unmaps and gives the lease back, now. Raises Busy if tensors made from it live (it says
        how many), or if a CUDA stream is being captured. Then nothing was done."""
        if self._handle is not None:
            self._handle.detach()
            self._handle = None

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} is a lease of this process: multiprocessing sends it as a reference, "
            "state_dict(copy=True) has the bytes"
        )

    def __exit__(self, *_: object) -> None:
        self.drop()


def _first_alike(infos: Iterable[TensorInfo]) -> dict[str, str]:
    """For each name at the same place and with the same shape as an earlier one: that first
    name."""
    ties = {info.tied for info in infos}
    first: dict[tuple[object, ...], str] = {}
    found: dict[str, str] = {}
    for info in infos:
        if (place := info.tied or info.name) in ties:
            name = first.setdefault((place, info.shape, info.strides), info.name)
            if name != info.name:
                found[info.name] = name
    return found


def _similar(mapping: Tensors, name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(mapping), 3)
    return f"it has {', '.join(near)}" if near else "keys() has their names"
