"""Finds what shares memory with tensors that are about to get other memory.

A module may keep a view of a parameter: as a buffer, an attribute, in a list, a dict, a closure.
Such a view moves together with the parameter. torch counts the uses of each storage, so a view that
the walk over a model does not reach is noticed, too.
"""

from __future__ import annotations

import bisect
import functools
import gc
import os
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from . import extents, fit, guards, init, tensors


class Moved(NamedTuple):
    """A tensor that is to get other memory. memory: a tensor over that memory, or with its shape
    and strides."""

    name: str
    tensor: torch.Tensor
    memory: torch.Tensor


class View(NamedTuple):
    """A tensor that lies in the memory of a moved one. moved: its position. offset: the bytes
    between the first byte of the moved tensor and the view's."""

    name: str
    tensor: torch.Tensor
    moved: int
    offset: int

    def over(self, memory: torch.Tensor) -> torch.Tensor:
        """The same view of the memory that the moved tensor gets."""
        tensor = self.tensor
        begin = memory.storage_offset() * memory.element_size() + self.offset
        found = tensors.of_storage(
            memory.untyped_storage(),
            tensor.dtype,
            tensor.size(),
            tensor.stride(),
            begin // tensor.element_size(),
        )
        return tensors.seen_as(found, tensor.is_conj(), tensor.is_neg())


class Views(NamedTuple):
    """What was found. problems: why a view can't move, by its name. others: a text for each tensor
    that moves while something outside of the model keeps its old memory."""

    views: list[View]
    problems: dict[str, str]
    others: list[str]


class _Storage(NamedTuple):
    """A storage with more uses than by the tensors that move. moved: their positions. object: keeps
    the storage."""

    object: torch.UntypedStorage
    moved: list[int]

    def uses(self) -> int:
        return _uses(self.object._cdata)


def views_of(model: nn.Module, moved: Sequence[Moved]) -> Views:
    """Finds what has memory of tensors of a model that are about to move."""
    found = Views([], {}, [])
    crowded = _crowded(moved)
    if not crowded:  # as for most models
        return found
    from ..image.graph import Graph  # it imports this package

    mine = {id(each.tensor) for each in moved}
    with torch._C.DisableTorchFunctionSubclass():
        reached = [leaf for leaf in Graph(model).leaves if leaf.parts is None]
        lenders = _Lenders(crowded)
        for leaf in reached:
            if id(leaf.tensor) in mine:
                continue
            storage, begin = crowded.get(_key(leaf.tensor)), 0
            if storage is None and (lent := lenders.of(leaf.tensor)):
                storage, begin = lent
            if storage is not None:
                near = [(at, moved[at]) for at in storage.moved]
                _look_at(leaf.name, leaf.tensor, begin, near, found)
        found.others.extend(_others(crowded, moved, [leaf.tensor for leaf in reached]))
    return found


def others_of(moved: Sequence[Moved], known: Callable[[], Iterable[torch.Tensor]]) -> list[str]:
    """As `Views.others`, for a caller that finds all tensors of the model by itself. known: gives
    these, and all others that the caller has."""
    crowded = _crowded(moved)
    with torch._C.DisableTorchFunctionSubclass():
        return list(_others(crowded, moved, known())) if crowded else []


def warn(others: Iterable[str]) -> None:
    """Warns the caller of the package. Call it before anything moves: a warning may be an error."""
    for text in others:
        warnings.warn(text, RuntimeWarning, stacklevel=_callers_level())


def give(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Gives a tensor other memory, without a guard. A view does not keep its old memory, unless it
    takes part in a computation of gradients."""
    if not tensor._is_view() or tensor.requires_grad or fit.unswappable(tensor):
        tensor.data = memory
    else:
        init.swap(tensor, init.of_class(guards.kind_of(tensor, False), memory))


# ---- views -------------------------------------------------------------------------------------


def _crowded(moved: Sequence[Moved]) -> dict[int, _Storage]:
    """The storages that more tensors have than those that move, by their addresses in torch."""
    storages: dict[int, torch.UntypedStorage] = {}
    positions: dict[int, list[int]] = {}
    for at, each in enumerate(moved):
        storage = _storage(each.tensor)
        if storage is not None:
            storages[storage._cdata] = storage
            positions.setdefault(storage._cdata, []).append(at)
    return {
        key: _Storage(storages[key], at) for key, at in positions.items() if _uses(key) > len(at)
    }


def _uses(key: int) -> int:
    """How many tensors of torch hold a storage. Its object in Python, which the caller has, is a
    use too."""
    count: int = torch._C._storage_Use_Count(key)
    return count - 1


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    if tensor.layout is not torch.strided:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a subclass without a storage
        return None


def _key(tensor: torch.Tensor) -> int:
    storage = _storage(tensor)
    return 0 if storage is None else storage._cdata


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that it spans. Tensors without memory have no addresses, but they
    have these."""
    span = extents.span(tensor.size(), tensor.stride())
    begin = int(tensor.storage_offset())
    return begin * tensor.element_size(), (begin + span) * tensor.element_size()


class _Lenders:
    """Storages that may have lent their memory to others: DLPack and NumPy make other ones of the
    same memory."""

    def __init__(self, crowded: dict[int, _Storage]) -> None:
        found = [(_begin_of(each.object), each) for each in crowded.values()]
        self._sorted = sorted((pair for pair in found if pair[0]), key=lambda pair: pair[0])

    def of(self, tensor: torch.Tensor) -> tuple[_Storage, int] | None:
        """The storage that lent the tensor its memory, and where in it the tensor's one begins."""
        if not self._sorted or not (address := _begin(tensor)):
            return None
        at = bisect.bisect_right(self._sorted, address, key=lambda pair: pair[0])
        begin, lender = self._sorted[max(at - 1, 0)]
        if not begin <= address < begin + lender.object.nbytes():
            return None
        return lender, address - begin


def _begin_of(storage: torch.UntypedStorage) -> int:
    """Where a storage begins that is about to be left. 0: it has no memory."""
    if storage.device.type == "meta":  # a FakeTensor's, too, which warns if it is asked
        return 0
    try:
        return int(storage.data_ptr())
    except RuntimeError:  # of a tensor that only stands for one
        return 0


def _begin(tensor: torch.Tensor) -> int:
    """Where the storage begins of any tensor of this process. 0: it has no memory, or is empty."""
    return 0 if _storage(tensor) is None else init.storage_address(tensor)


def _look_at(
    name: str, tensor: torch.Tensor, base: int, moved: Sequence[tuple[int, Moved]], found: Views
) -> None:
    """Notes a tensor that overlaps a moved one: as a view, or as a problem. base: where its storage
    begins in that of the moved ones."""
    if tensor.numel() == 0:
        return
    begin, end = (base + each for each in _range(tensor))
    overlapping = []
    for at, each in moved:
        first, last = _range(each.tensor)
        if each.tensor.numel() and begin < last and first < end:
            if first <= begin and end <= last and _keeps_its_order(each):
                found.views.append(View(name, tensor, at, begin - first))
                return
            overlapping.append(each.name)
    if overlapping:
        found.problems[name] = (
            f"has memory of {', '.join(overlapping)}, and can't be the same view of the version's "
            "memory"
        )


def _keeps_its_order(moved: Moved) -> bool:
    """Whether every element lies in the new memory where it lay in the old one, and nothing else
    lies between them."""
    tensor, memory = moved.tensor, moved.memory
    if tensor.size() != memory.size():
        return False
    span = 1
    for size, old, new in zip(tensor.size(), tensor.stride(), memory.stride(), strict=True):
        if size > 1 and old != new:
            return False
        span += (size - 1) * old
    return span == tensor.numel()


# ---- what the walk does not reach -------------------------------------------------------------


class _Uses:
    """The tensors that explain the uses of some storages, by the storages' addresses in torch."""

    def __init__(self, crowded: dict[int, _Storage]) -> None:
        self._found: dict[int, dict[int, torch.Tensor]] = {key: {} for key in crowded}
        self._bases: set[int] = set()
        self._lenders = _Lenders(crowded)
        # All tensors of a storage that was lent memory are one use of the lender.
        self._lent: dict[int, set[int]] = {key: set() for key in crowded}

    def add(self, tensor: torch.Tensor) -> bool:
        """Adds a tensor, and the one that it is a view of, which torch keeps with it. Returns
        whether the tensor was none of them yet."""
        key = self.key_of(tensor)
        if key not in self._found:
            return False
        if (own := _key(tensor)) != key:
            is_new = own not in self._lent[key]
            self._lent[key].add(own)
            return is_new
        is_new = id(tensor) not in self._found[key]
        if tensor._base is not None:
            self._bases.add(id(tensor._base))
        for each in (tensor, tensor._base):
            if each is not None and (of_storage := self._found.get(_key(each))) is not None:
                of_storage[id(each)] = each
        return is_new

    def key_of(self, tensor: torch.Tensor) -> int:
        """The storage whose memory the tensor has. 0: none of them."""
        key = _key(tensor)
        if key in self._found:
            return key
        lent = self._lenders.of(tensor)
        return lent[0].object._cdata if lent else 0

    def has_views_of_base(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor that was added is a view of what this one is a view of. torch keeps the
        views by way of which it was made."""
        return tensor._base is not None and id(tensor._base) in self._bases

    def of(self, key: int) -> dict[int, torch.Tensor]:
        return self._found[key]

    def unexplained(self, key: int, storage: _Storage) -> int:
        return storage.uses() - len(self._found[key]) - len(self._lent[key])

    def lend(self, key: int, unseen: Sequence[torch.Tensor]) -> None:
        """Adds the tensors that those are views of which have lent their memory to tensors that
        were added. unseen: tensors that only torch has."""
        views = [tensor for tensor in unseen if tensor._base is not None]
        for tensor in views[: len(self._lent[key])]:
            self._found[key][id(tensor._base)] = tensor


def _others(
    crowded: dict[int, _Storage], moved: Sequence[Moved], known: Iterable[torch.Tensor]
) -> Iterator[str]:
    """The uses that neither the known tensors nor computations of gradients explain: these go on
    with the values that they began with."""
    uses = _Uses(crowded)
    for tensor in (*known, *(each.tensor for each in moved)):
        uses.add(tensor)
    left = {
        key: each
        for key, each in crowded.items()
        if uses.unexplained(key, each) > 0 and _can_be_stale(moved[each.moved[0]].tensor)
    }
    if not left:
        return
    held: dict[int, list[torch.Tensor]] = {key: [] for key in left}
    lenders: dict[int, list[torch.Tensor]] = {key: [] for key in left}
    every = list(_all_tensors())
    for tensor in _saved([each.grad_fn for each, _ in every if each.grad_fn is not None]):
        uses.add(tensor)
    for tensor, is_held in every:
        # If only torch has it, and no view was made by way of it, it has lent its memory.
        is_used = is_held or uses.has_views_of_base(tensor)
        key = uses.key_of(tensor)
        if not is_used:
            lenders.get(key, []).append(tensor)
        elif uses.add(tensor) and is_held and key in held:
            held[key].append(tensor)
    holders = _holders([tensor for each in held.values() for tensor in each])
    for key, each in left.items():
        uses.lend(key, lenders[key])
        mine = (held, held[key], uses.of(key))
        others = [
            _described(tensor, holders[id(tensor)], mine)
            for tensor in held[key]
            if not _is_ours(holders[id(tensor)])
        ]
        if (unseen := uses.unexplained(key, each)) > 0:
            others.append(f"{unseen} tensors that Python does not see")
        if others:
            names = ", ".join(moved[at].name for at in each.moved)
            yield (
                f"{names} gets other memory, and something that is not in the model keeps the old "
                f"one: {', '.join(others)}. It does not follow: make it again from the parameter "
                "afterwards, or keep it as an attribute of a module"
            )


def _can_be_stale(tensor: torch.Tensor) -> bool:
    """Whether somebody could compute with its old memory, and should not. Anybody may hold tensors
    of a version."""
    return not tensor.is_meta and tensors.origin_of(tensor) is None


def _callers_level() -> int:
    """The level of the first caller outside of this package, for a warning of the caller."""
    package = os.path.dirname(os.path.dirname(__file__))
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return level


def _all_tensors() -> Iterator[tuple[torch.Tensor, bool]]:
    """All tensors that Python has, and for each whether something of Python refers to it. torch
    itself keeps the object of a tensor that it needs."""
    objects = gc.get_objects()
    for at in range(len(objects)):
        each = objects[at]
        if issubclass(type(each), torch.Tensor):
            # References: of the list, of this variable, of the call; and of torch, if it has the
            # tensor besides.
            of_others = sys.getrefcount(each) - 3 - (each._use_count() > 1)
            yield each, of_others > 0


def _holders(held: Sequence[torch.Tensor]) -> dict[int, list[object]]:
    """What refers to each tensor, by the tensor's id. One look at all objects of Python for all of
    them: it takes a tenth of a second where there are a million."""
    found: dict[int, list[object]] = {id(tensor): [] for tensor in held}
    for holder in gc.get_referrers(*held) if held else ():
        if holder is not held:
            for each in {id(referent) for referent in gc.get_referents(holder)} & found.keys():
                found[each].append(holder)
    return found


def _is_ours(holders: Sequence[object]) -> bool:
    """Whether an object of this package holds a tensor: one that a traceback keeps, of a call that
    was refused."""
    package = __name__.partition(".")[0] + "."
    return any(type(each).__module__.startswith(package) for each in holders)


def _described(tensor: torch.Tensor, holders: Sequence[object], besides: Sequence[object]) -> str:
    """A tensor with the kind of object that holds it. besides: holders that don't count."""
    said = f"a {type(tensor).__name__} {list(tensor.size())}"
    for holder in holders:
        if type(holder) in _HOLDERS and not any(holder is each for each in besides):
            return f"{said} in a {type(holder).__name__}"
    return said


_HOLDERS = (dict, list, tuple, set, frozenset, types.CellType)


def _saved(roots: Sequence[Any]) -> Iterator[torch.Tensor]:
    """All tensors that computations of gradients have saved. It calls no hooks that pack them."""
    seen: set[Any] = set()
    left = list(roots)
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [following for following, _ in node.next_functions]
        kind: Any = type(node)
        for name in _saved_names(kind):
            try:
                saved = getattr(node, name)
            except RuntimeError:  # after backward() nothing is saved
                continue
            for each in saved if isinstance(saved, tuple | list) else (saved,):
                tensor = getattr(each, "data", None)
                if isinstance(tensor, torch.Tensor):
                    yield tensor


@functools.cache
def _saved_names(kind: Any) -> Collection[str]:
    return [name for name in dir(kind) if name.startswith("_raw_saved_")]
