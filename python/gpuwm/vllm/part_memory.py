"""The memory of one rank's part of a version, while a publisher makes the version."""

from __future__ import annotations

import torch

from .._c.handle import TensorInfo
from .._publish.making import Making
from .._torch import sources
from ..image.storages import view_of
from . import layouts


class Memory:
    """A part's memory while it is made: flat bytes, by the names of its tensors."""

    def __init__(self, making: Making, part: layouts.Part) -> None:
        self.infos: dict[str, TensorInfo] = {info.name: info for info in part.infos}
        self._bytes: dict[str, torch.Tensor] = {}
        names = [info.name for info in part.infos]
        for position in making.order():
            exported = sources.memory(making, position)
            self._bytes[names[position]] = layouts.bytes_of(exported)
        spans = [(each.data_ptr(), each.nbytes) for each in self._bytes.values() if each.nbytes]
        self._begin = min(begin for begin, _ in spans)
        self._end = max(begin + nbytes for begin, nbytes in spans)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._bytes[name]

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in this memory: all of a part is one range of addresses."""
        return not tensor.is_meta and self._begin <= tensor.data_ptr() < self._end

    def forget(self) -> None:
        self._bytes.clear()


def fits(info: TensorInfo, tensor: torch.Tensor) -> bool:
    found = info_of(info.name, tensor)
    return (found.dtype, found.shape, found.strides) == (info.dtype, info.shape, info.strides)


def info_of(name: str, tensor: torch.Tensor) -> TensorInfo:
    """The description that a version would have of it."""
    spec = sources.spec_of(name, tensor)
    strides = spec.strides
    if strides is None:
        count, found = 1, []
        for size in reversed(spec.shape):
            found.append(count)
            count *= size
        strides = tuple(reversed(found))
    return TensorInfo(name, spec.dtype, spec.shape, strides, spec.nbytes, None)


def placed(memory: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor with that one's dtype, shape and strides, at the begin of the memory."""
    return view_of(memory, like.dtype, like.size(), like.stride(), 0)
