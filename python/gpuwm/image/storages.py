"""Decides which bytes of a module a version stores, and how each tensor lies in them.

Tensors whose memory overlaps belong together. If one of them covers the others and is dense, the
version has that one, with its dtype and strides. Otherwise the version has the bytes that they
cover, as U8. The others are views, with an offset in bytes, so that they are views after `install`
too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch.nn.parameter import is_lazy

from .._torch import extents, sharded
from .._torch.init import is_plain
from .._torch.sources import NAMES
from .graph import Leaf, plain_class

# If no tensor covers the bytes that are stored, their begin is moved down to a multiple of this.
# Kernels ask for no larger alignment, and a version aligns its tensors in the same way.
ALIGN_BYTES = 256


class View(NamedTuple):
    """Where a tensor lies. stored: its position in the list of what is stored. None: it has no
    bytes."""

    stored: int | None
    offset: int  # bytes from the begin


@dataclasses.dataclass(slots=True)
class Stored:
    """Bytes that the version has as one tensor. leaves: the tensors that lie in it. whole: a tensor
    over all of it, with the dtype, shape and strides that the version has."""

    name: str
    leaves: list[Leaf]
    whole: torch.Tensor
    begin: int
    nbytes: int


class _Range(NamedTuple):
    begin: int
    end: int
    leaf: Leaf


class Storages:
    """What is stored, and views by the position of the leaf. problems: a line for each tensor that
    no version can have. device: the one that parameters are on."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.stored: list[Stored] = []
        self.problems: list[str] = []
        self.views: dict[int, View] = {}
        self._positions = {id(leaf): position for position, leaf in enumerate(leaves)}
        self._names = {leaf.name for leaf in leaves}
        ranges: dict[torch.device, list[_Range]] = {}
        for leaf in leaves:
            if leaf.parts is not None:
                continue
            if problem := unstorable(leaf.tensor):
                self.problems.append(f"{leaf.name}: {problem}")
            elif leaf.tensor.numel() == 0:
                self.views[self._positions[id(leaf)]] = View(None, 0)
            else:
                found = _Range(*extents.addresses(leaf.tensor), leaf)
                ranges.setdefault(leaf.tensor.device, []).append(found)
        gpus = [device for device in ranges if device.type != "cpu"]
        for device in gpus if len(gpus) > 1 else ():
            self.problems.append(f"{ranges[device][0].leaf.name}: on {device}")
        if len(gpus) > 1:
            self.problems.append("a version is on one device: move the model to one first")
        self.device: torch.device = gpus[0] if gpus else torch.device("cpu")
        for device in sorted(ranges, key=lambda device: device.type == "cpu"):
            # Not by address: two processes with the same model make the same image.
            for together in sorted(_overlapping(ranges[device]), key=self._first):
                self._add(together)

    def _first(self, together: list[_Range]) -> int:
        """The position of the first of these tensors."""
        return min(self._positions[id(each.leaf)] for each in together)

    def _add(self, together: list[_Range]) -> None:
        begin = min(each.begin for each in together)
        end = max(each.end for each in together)
        whole = _covering(together, begin, end)
        first = min((each.leaf for each in together), key=lambda leaf: self._positions[id(leaf)])
        if whole is not None:
            name, tensor = whole.name, torch.Tensor.detach(whole.tensor)
        else:
            found = _bytes(together, begin, end)
            if found is None:
                self.problems.append(
                    f"{first.name}: overlaps another tensor, and no storage covers both: copy one"
                )
                return
            tensor, begin = found, found.data_ptr()
            name = self._unused(f"{first.name}.bytes")
        leaves = [each.leaf for each in together]
        for each in together:
            place = View(len(self.stored), each.begin - begin)
            self.views[self._positions[id(each.leaf)]] = place
        self.stored.append(Stored(name, leaves, tensor, begin, end - begin))

    def _unused(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def unstorable(tensor: torch.Tensor) -> str | None:
    """Why the tensor's bytes, shape and strides don't say everything about it, or can't be read."""
    if is_part := sharded.said(tensor):
        return f"{is_part}: {sharded.REMEDY}"
    said = plain_class(tensor).__name__
    if is_lazy(tensor):
        return "lazy: it has no shape before the module's first call"
    if not is_plain(tensor):
        return (
            f"a {said} of layout {tensor.layout}, neither plain data nor made of parts "
            "(__tensor_flatten__): publish its parts as plain tensors"
        )
    if tensor.is_meta:
        return "has no memory: give it its values first, or delete it"
    if tensor.is_conj() or tensor.is_neg():
        return "a conjugate or negated view: resolve_conj().resolve_neg() first"
    if tensor.requires_grad and not tensor.is_leaf:
        return "computed with gradients: detach() it, or load under torch.no_grad()"
    return None


def _overlapping(ranges: list[_Range]) -> Iterator[list[_Range]]:
    """The groups of tensors that overlap, in the order of their addresses."""
    found: list[_Range] = []
    end = 0
    for each in sorted(ranges, key=lambda each: each.begin):
        if found and each.begin >= end:
            yield found
            found = []
        end = each.end if not found else max(end, each.end)
        found.append(each)
    if found:
        yield found


def _covering(together: list[_Range], begin: int, end: int) -> Leaf | None:
    """The tensor that a version can have as it is, and whose memory holds all others, or None."""
    for each in together:
        tensor = each.leaf.tensor
        if (each.begin, each.end) != (begin, end) or tensor.dtype not in NAMES:
            continue
        packed = NAMES[tensor.dtype] == "F4"
        fits = tensor.is_contiguous() and tensor.dim() > 0 if packed else _is_dense(tensor)
        if fits and all(
            (other.begin - begin) % other.leaf.tensor.element_size() == 0 for other in together
        ):
            return each.leaf
    return None


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill its memory, each of them once, in any order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _bytes(together: list[_Range], begin: int, end: int) -> torch.Tensor | None:
    for each in together:
        storage = each.leaf.tensor.untyped_storage()
        first = storage.data_ptr()
        if first <= begin and end <= first + storage.nbytes():
            offset = (begin - first) // ALIGN_BYTES * ALIGN_BYTES
            size = end - first - offset
            empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
            return empty.set_(storage, offset, (size,), (1,))
    return None


def view_of(
    memory: torch.Tensor,
    dtype: torch.dtype,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
) -> torch.Tensor:
    """A tensor in the same storage. offset: bytes from the begin of `memory`."""
    begin = memory.storage_offset() * memory.element_size() + offset
    empty = torch.empty(0, dtype=dtype, device=memory.device)
    return empty.set_(memory.untyped_storage(), begin // dtype.itemsize, shape, strides)
