"""Watches torch's operations to find out what a load of weights wrote and read.

vLLM loads the tensors that it gets. It does not say whether a part of a fused parameter was
missing, or whether a tensor was larger than the part that it took. That is good enough for files of
a checkpoint; a trainer's tensors may be wrong.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .. import errors
from .._torch import extents

# Dtypes that vLLM converts to each other when it loads, as it does with files.
FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))


_weak: Any = reductions.StorageWeakRef  # torch has no types for it


class Tensors:
    """A trainer's tensors, and how many elements of each were read, by all ranks together."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.last: str = ""  # the name of the last tensor that was given
        self._spans: list[tuple[int, int, str]] = []  # begin, end and name, sorted by address
        self._memory: dict[str, Any] = {}  # by name, for the names in `_spans`
        self.raised: BaseException | None = None  # an error of the trainer's own code
        self._dtype = torch.get_default_dtype()
        cuda: Any = torch.cuda
        self._device = cuda.current_device() if cuda.is_initialized() else -1

    def given(
        self, tensors: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the tensors of one pass, without their gradients. Raises Invalid if a name comes
        twice or is not a text, or if something is not a tensor with memory."""
        seen: set[str] = set()
        self._spans.clear()
        for name, tensor in self._outside(tensors):
            if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
                raise errors.Invalid(
                    f"({name!r}, a {type(tensor).__name__}) among the trainer's tensors",
                    "give pairs of a checkpoint's name and a tensor of torch",
                )
            if name in seen:
                raise errors.Invalid(f"tensor {name} comes twice", "give each tensor once")
            if hasattr(tensor, "full_tensor") or tensor.is_meta:
                raise errors.Invalid(
                    f"tensor {name} is a {type(tensor).__name__} on {tensor.device}, of which this "
                    "process has a shard at most",
                    "give whole tensors: full_tensor()",
                )
            seen.add(name)
            self.last = name
            plain = tensor.detach()
            self.sizes[name], self.shapes[name] = plain.numel(), tuple(plain.size())
            self.read.setdefault(name, 0)
            self._note(name, plain)
            self._memory[name] = _weak(plain.untyped_storage())
            yield name, plain

    def _outside(self, tensors: Iterable[Any]) -> Iterator[Any]:
        """Iterates outside of the load, where this object was made: the trainer's own code may
        compute and gather the tensors that it gives."""
        pairs = iter(tensors)
        while True:
            inside = torch.get_default_dtype()
            torch.set_default_dtype(self._dtype)
            try:
                with _disable_current_modes(), torch.cuda.device(self._device):
                    pair = next(pairs, None)
            except BaseException as error:
                self.raised = error
                raise
            finally:
                torch.set_default_dtype(inside)
            if pair is None:
                return
            yield pair

    def _note(self, name: str, tensor: torch.Tensor) -> None:
        begin, end = extents.addresses(tensor)
        if begin == end:
            return
        at = bisect.bisect_left(self._spans, (begin, 0, ""))
        if at and self._spans[at - 1][1] > begin:
            at -= 1
        last = at
        while last < len(self._spans) and self._spans[last][0] < end:
            last += 1
        self._spans[at:last] = [(begin, end, name)]  # it replaces memory of tensors that are gone

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """The name of the tensor whose memory this one reads, or None if it was computed."""
        begin, end = extents.addresses(tensor)
        at = bisect.bisect_right(self._spans, (begin, 2**64, "")) - 1
        if at < 0 or not begin < end <= self._spans[at][1]:
            return None
        name = self._spans[at][2]
        # If that tensor is gone, something that was computed may have its memory by now.
        return None if self._memory[name].expired() else name

    def check(self) -> None:
        """Raises Mismatch if a part of a tensor was not read. Call it after all ranks have
        loaded."""
        for name, size in self.sizes.items():
            if 0 < self.read[name] < size:
                raise errors.Mismatch(
                    f"tensor {name} {list(self.shapes[name])} has {size:,} elements, and the model "
                    f"takes {self.read[name]:,} of them",
                    "give tensors of the shapes that the model's checkpoint has",
                )

    def ignored(self) -> tuple[str, ...]:
        """The tensors of which vLLM took nothing unchanged."""
        return tuple(name for name, count in self.read.items() if not count and self.sizes[name])


class Watched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, it notes writes into the memory of parameters.

    parameters: by name. Raises Mismatch if a trainer's tensor has a dtype that would be converted
    to another one than vLLM makes of it.
    """

    def __init__(self, parameters: dict[str, torch.Tensor], tensors: Tensors) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tensors = tensors
        self._spans = sorted(
            (*extents.addresses(tensor), name) for name, tensor in parameters.items()
        )
        self._written: dict[str, list[tuple[int, int]]] = {name: [] for name in parameters}
        self._scattered = dict.fromkeys(parameters, 0)  # bytes that were written in several pieces

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if args and isinstance(args[0], torch.Tensor) and _writes(func) and not args[0].is_meta:
            self._note(args[0], [each for each in args[1:] if isinstance(each, torch.Tensor)])
        return found

    def _note(self, to: torch.Tensor, sources: list[torch.Tensor]) -> None:
        for source in sources:
            name = None if source.is_meta else self._tensors.name_of(source)
            if name is not None:
                _check_dtype(name, source.dtype, to.dtype)
                self._tensors.read[name] += source.numel()
        begin, end = extents.addresses(to)
        at = bisect.bisect_right(self._spans, (begin, 2**64, "")) - 1
        if at < 0 or end > self._spans[at][1]:
            return
        name = self._spans[at][2]
        if (end - begin) == to.numel() * to.element_size():
            self._written[name].append((begin, end))
        else:
            self._scattered[name] += to.numel() * to.element_size()

    def missing(self) -> Iterator[tuple[str, bool]]:
        """Parameters that were not written completely, and whether a part of each was."""
        for begin, end, name in self._spans:
            count = _union(self._written[name]) + self._scattered[name]
            if count < end - begin:
                yield name, count > 0


def _writes(func: Any) -> bool:
    """Whether the operation writes into its first argument."""
    schema = getattr(func, "_schema", None)  # operators of higher order have none
    alias = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
    return alias is not None and bool(alias.is_write)


def _union(spans: list[tuple[int, int]]) -> int:
    """The number of bytes that the spans cover together."""
    count, reached = 0, 0
    for begin, end in sorted(spans):
        count += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return count


def _check_dtype(name: str, given: torch.dtype, wanted: torch.dtype) -> None:
    if given != wanted and not {given, wanted} <= FLOATS:
        raise errors.Mismatch(
            f"tensor {name} is {given}, and the model loads it as {wanted}",
            "give tensors of the dtypes that the model's checkpoint has",
        )
