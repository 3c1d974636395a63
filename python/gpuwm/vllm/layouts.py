"""The layout of a version that engines use, for a publisher of other versions with the same
layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import _client as clients
from .. import errors
from .._attach import attach
from .._c import devices, lib
from .._c.handle import TensorInfo
from .._mapping import Mapping as Attached
from .._publish.making import Spec
from ..image import _compare, record
from . import differences

# Parameters smaller than this, such as scales and norms, keep the memory and the values that vLLM's
# constructors give them; another copy of them costs nothing. Larger ones are made without memory,
# and must be loaded completely.
SMALL_BYTES = 1 << 20


@dataclasses.dataclass
class Part:
    """One rank's part of a version. infos, specs: of its tensors; ties are those of `tied`. record:
    of its image. small: copies of its tensors below SMALL_BYTES, on the CPU, as bytes."""

    version: str
    rank: int
    device: str
    infos: Sequence[TensorInfo]
    record: record.Record
    metadata: Mapping[str, str]
    small: Mapping[str, torch.Tensor]

    @property
    def specs(self) -> list[Spec]:
        """The specs for a version of the same layout."""
        return [
            Spec(
                info.name,
                info.dtype,
                info.shape,
                None if info.is_contiguous() else info.strides,
                info.tied,
            )
            for info in self.infos
        ]

    def check_key(self, fields: Mapping[str, str], details: Mapping[str, str]) -> None:
        """Raises Mismatch, which names the first of a publisher's fields that differs in the
        version."""
        try:
            differences.compare(self.version, self.metadata, fields, details, "this publisher")
        except errors.Mismatch as error:
            raise errors.Mismatch(
                error.message,
                "give gpuwm.vllm.publisher the arguments, and its process the environment, of the "
                "engines that use the version",
            ) from None

    def check_record(self, text: bytes, infos: Sequence[TensorInfo]) -> None:
        """Raises Mismatch, which names the first thing that differs in an image of these
        tensors."""
        own = {info.name: info for info in infos}
        for info in self.infos:
            found = own.pop(info.name, None)
            if found is None:
                raise self._differs(f"tensor {info.name} is missing")
            for field in ("dtype", "shape", "strides"):
                here, there = getattr(found, field), getattr(info, field)
                if here != there:
                    raise self._differs(
                        f"tensor {info.name}, {field}: {here} here, {there} in the version"
                    )
        if own:
            raise self._differs(f"tensor {next(iter(own))}, which the version lacks")
        made = record.parsed("the version that is being made", text, infos)
        found_one = _compare.record_difference(self.record, made, differences.WRITTEN_BY_LOADING)
        if found_one is not None:
            raise self._differs(f"{found_one} (here: in {self.version})")

    def _differs(self, what: str) -> errors.Mismatch:
        return errors.Mismatch(
            f"what vLLM made of the trainer's tensors can't stand where {self.version} is: {what}",
            "engines can't take another layout or another plain value: publish such a model by an "
            "engine (load format gpuwm)",
        )


def parts_of(ref: str, owner: lib.Owner, client: clients.Client) -> list[Part]:
    """All parts of a version that engines of load format gpuwm use, in the order of their ranks. It
    keeps no lease. Raises the errors of gpuwm.attach, and Invalid if the version is not a module
    image."""
    row = _row(ref, client)
    places = sorted({part["rank"]: part["device"] for part in row["parts"]}.items())
    found = []
    for rank, device in places:
        mapping = attach(row["version"], rank=rank, device=device, owner=owner, client=client)
        try:
            found.append(_part(mapping, rank, device))
        finally:
            mapping.drop()
    return found


def _is_id(ref: str) -> bool:
    return "@" not in ref and len(ref) == 32


def _row(ref: str, client: clients.Client) -> dict[str, Any]:
    """The row of the ready version that the ref names now."""
    model, _, tag = ref.partition("@")
    listed = client.list(None if _is_id(ref) else model)
    aliases = {each["alias"]: each["version"] for each in listed["aliases"]}
    wanted = ref if _is_id(ref) else aliases.get(tag or "current")
    for row in listed["versions"]:
        if row["state"] == "ready" and (row["version"] == wanted or (tag and row["tag"] == tag)):
            return dict(row)
    raise errors.NotFound(
        f"gpuwmd has no ready version {ref}, whose layout is to be taken",
        "start an engine with load format gpuwm first, or name its version: like=",
    )


def _part(mapping: Attached, rank: int, device: str) -> Part:
    small = {
        info.name: bytes_of(mapping.torch(info.name)).cpu().clone()
        for info in mapping.infos()
        if info.nbytes < SMALL_BYTES
    }
    return Part(
        str(mapping.version),
        rank,
        device,
        mapping.infos(),
        record.read(mapping),
        mapping.metadata,
        small,
    )


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a dense tensor, in the order in which they lie in memory."""
    plain = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    begin = tensor.storage_offset() * tensor.element_size()
    nbytes = tensor.numel() * tensor.element_size()
    return plain.set_(tensor.untyped_storage(), begin, (nbytes,), (1,))


def is_as_before(part: Part, name: str, tensor: torch.Tensor) -> bool:
    """Whether a dense small tensor has the bytes that the part has under that name."""
    before = part.small.get(name)
    return before is not None and torch.equal(bytes_of(tensor).cpu(), before)


def torch_device(name: str, client: clients.Client) -> torch.device:
    """The device with this name of gpuwm's, by this process's count. Raises NoDevice."""
    if devices.on_cpu(name):
        return torch.device("cpu")
    for number in range(torch.cuda.device_count()):
        if devices.resolve(f"cuda:{number}", client) == name:
            return torch.device("cuda", number)
    raise errors.NoDevice(
        f"this process does not see {name}, on which the engines have their weights",
        "let the trainer see that GPU (CUDA_VISIBLE_DEVICES)",
    )
