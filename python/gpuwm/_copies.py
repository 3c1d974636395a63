"""A version's tensors as a private copy: `gpuwm.attach(ref, copy=True)`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import errors
from ._c.handle import TensorInfo
from ._mapping import Mapping as Attached
from ._version import Version

if TYPE_CHECKING:
    import numpy
    from torch import Tensor as TorchTensor


class Copies(Mapping[str, "TorchTensor"]):
    """Tensors that are this process's own and may be written. They have no lease."""

    def __init__(self, mapping: Attached) -> None:
        """Copies all tensors. Raises Unsupported without torch."""
        if importlib.util.find_spec("torch") is None:
            raise errors.Unsupported(
                "copy=True makes torch tensors, and there is no torch here",
                'install torch; on host writes="private" needs none',
            )
        self.version: Version = mapping.version
        self.metadata: dict[str, str] = mapping.metadata
        self.files: dict[str, bytes] = dict(mapping.files)
        self._infos = mapping.infos()
        self._tensors = mapping.state_dict(copy=True)

    @property
    def device(self) -> str:
        """The device of the version that they were copied from: "host" or a UUID."""
        return self.version.device

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors. Tensors at the same place count once."""
        return sum(info.nbytes for info in self._infos if info.tied is None)

    def __repr__(self) -> str:
        return f"<gpuwm.Copies of {self.version}: {len(self)} tensors, {self.nbytes:,} bytes>"

    def infos(self) -> list[TensorInfo]:
        return list(self._infos)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    # As a Mapping's, two of them are equal only if they are the same object: tensors are not
    # compared.
    def __eq__(self, other: object, /) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __getitem__(self, name: str) -> TorchTensor:
        """Raises NoTensor, which is a KeyError."""
        try:
            return self._tensors[name]
        except KeyError:
            raise errors.NoTensor(f"{self.version} has no tensor {name}") from None

    def torch(self, name: str) -> TorchTensor:
        return self[name]

    def numpy(self, name: str) -> numpy.ndarray[Any, Any]:
        array: numpy.ndarray[Any, Any] = self[name].numpy()
        return array

    def state_dict(self) -> dict[str, TorchTensor]:
        return dict(self._tensors)
