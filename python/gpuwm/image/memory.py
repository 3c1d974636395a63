"""The tensors that an image gives a module: one object for each tensor of the record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .. import errors
from .._mapping import Mapping as Attached
from .._torch import guards, init
from .._torch.bind import Globs, chosen
from . import contexts, values
from .graph import plain_class
from .kinds import class_name
from .objects import Objects
from .record import Record, Tensor
from .storages import view_of

_PLAIN: dict[str, type[torch.Tensor]] = {
    "torch.Tensor": torch.Tensor,
    "torch.nn.parameter.Parameter": nn.Parameter,
}


class Memory:
    """Makes tensors over a version's memory, or over copies of it. It does not change the
    module."""

    def __init__(self, mapping: Attached, record: Record, private: Globs, guard: bool) -> None:
        self._tensors = record.tensors
        self._sources = mapping.state_dict()
        self._guard = guard and not mapping.private_writes
        devices = (tensor.device for tensor in self._sources.values())
        self.device: torch.device = next(devices, torch.device("cpu"))
        names = {name for tensor in record.tensors for name in tensor.names}
        own = chosen(names, private, "private")
        self._parts = {part for t in record.tensors for part in (t.parts or {}).values()}
        # The names of tensors that are copied. Tensors that overlap are copied together.
        self._private: set[str] = set()
        self._on_cpu: set[str] = set()
        for tensor in record.tensors:
            if tensor.on_cpu or tensor.is_written or not own.isdisjoint(tensor.names):
                for each in self.with_parts(tensor):
                    self._private |= {each.stored} if each.stored else set()
            if tensor.on_cpu and tensor.stored:
                self._on_cpu.add(tensor.stored)
        self._copies: dict[str, torch.Tensor] = {}

    def with_parts(self, tensor: Tensor) -> Iterator[Tensor]:
        """The tensor, and all that a subclass is made of."""
        yield tensor
        for part in (tensor.parts or {}).values():
            yield from self.with_parts(self._tensors[part])

    def parts_of(
        self, tensor: Tensor, there: torch.Tensor
    ) -> Iterator[tuple[Tensor, torch.Tensor]]:
        """The tensor as it is in the module, and all that a subclass is made of there."""
        yield tensor, there
        for attribute, part in (tensor.parts or {}).items():
            yield from self.parts_of(self._tensors[part], getattr(there, attribute))

    def is_private(self, tensor: Tensor) -> bool:
        """Whether a tensor that has memory is copied. The result means nothing for others."""
        return tensor.stored in self._private

    def shared(self) -> Sequence[torch.Tensor]:
        """The version's tensors that are not copied."""
        return [t for name, t in self._sources.items() if name not in self._private]

    def copies(self) -> Collection[torch.Tensor]:
        """The private copies that were made, as bytes."""
        return self._copies.values()

    def let_go(self) -> None:
        """Keeps no copies any more: the module has them. Cycles keep this object for a while."""
        self._copies.clear()

    def make(self, position: int, like: torch.Tensor | None) -> torch.Tensor:
        """A new tensor object as the record describes it. like: what the module has there: if the
        names of the classes are equal, its class is used. Raises Unsupported if this process has no
        such class, or the class can't be made of its parts."""
        tensor = self._tensors[position]
        kind = self._class(tensor, like)
        if tensor.parts is not None:
            return self._unflattened(tensor, kind, like)
        memory = self._memory(tensor)
        if memory is None:
            device = torch.device("cpu") if tensor.on_cpu else self.device
            view = torch.empty_strided(
                tensor.shape, tensor.strides, dtype=tensor.dtype, device=device
            )
        else:
            view = view_of(memory, tensor.dtype, tensor.shape, tensor.strides, tensor.offset)
            if position not in self._parts and self._guard and not self.is_private(tensor):
                kind = guards.shared_class(kind)
        return init.of_class(kind, view)

    def _memory(self, tensor: Tensor) -> torch.Tensor | None:
        name = tensor.stored
        if name is None:
            return None
        if name not in self._private:
            return self._sources[name]
        if name not in self._copies:
            source = self._sources[name]
            storage = source.untyped_storage()
            whole = torch.empty(0, dtype=torch.uint8, device=source.device)
            whole = whole.set_(storage, 0, (storage.nbytes(),), (1,))
            copy = whole.to("cpu", copy=True) if name in self._on_cpu else whole.clone()
            self._copies[name] = copy
        return self._copies[name]

    def _class(self, tensor: Tensor, like: torch.Tensor | None) -> type[torch.Tensor]:
        if like is not None:
            there = plain_class(like)
            if class_name(there) == tensor.said:
                return there
        found = _PLAIN.get(tensor.said) or values.imported(tensor.said)
        if found is None or not issubclass(found, torch.Tensor):
            raise errors.Unsupported(
                f"class: {tensor.name} is a {tensor.said} in the version, and this process has "
                "imported no such class: import it"
            )
        return found

    def _unflattened(self, tensor: Tensor, kind: Any, like: torch.Tensor | None) -> torch.Tensor:
        parts = {name: self.make(part, None) for name, part in (tensor.parts or {}).items()}
        context = self._context(tensor, kind, like)
        made: Any = kind.__tensor_unflatten__(
            parts, context, torch.Size(tensor.shape), tensor.strides
        )
        if tensor.is_parameter:
            made._is_param = True
        return made  # type: ignore[no-any-return]

    def _context(self, tensor: Tensor, kind: type, like: torch.Tensor | None) -> Any:
        if tensor.context is not values.NOT_PLAIN:
            try:
                return contexts.decoded(tensor.context, Objects(self.device))
            except (ValueError, LookupError) as error:
                raise errors.Unsupported(f"context: {tensor.name}: {error}") from None
        if like is not None and plain_class(like) is kind and hasattr(like, "__tensor_flatten__"):
            return like.__tensor_flatten__()[1]
        raise errors.Unsupported(
            f"context: {tensor.name} is a {tensor.said}, whose context is no plain data: give "
            "the module a tensor of that class there before install"
        )
