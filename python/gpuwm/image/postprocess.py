"""Runs an engine's post-processing again, on memory that is thrown away, for the Python state that
it leaves. The bytes come from the image."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from .. import errors
from .._c import lib
from .._torch import fit, init
from .._torch.bind import no_collections
from .kinds import SIMPLE, Opaque, owner_kind
from .plan import Matching
from .slots import Slot, is_mutable, of_object, slots
from .tree import Tree

Replay = Iterable[tuple[nn.Module, Callable[[Any], object]]]
# Scratch memory that is left after the exchange is held by cycles of Python objects, or by
# somebody. To look for cycles takes a tenth of a second, so it is done only for at least this many
# bytes.
COLLECT_BYTES = 1 << 30


@contextlib.contextmanager
def own_calls() -> Iterator[None]:
    """Inside, gpuwm itself looks at tensors: subclasses don't see it, and torch records nothing."""
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        torch._C.DisableTorchFunctionSubclass(),
        no_collections(),
    ):
        yield


_Weak: Any = StorageWeakRef  # torch has no types for it


class Replaying:
    def __init__(
        self,
        matching: Matching,
        replay: Replay,
        tree: Tree,
        opaque: Sequence[str],
        device: torch.device,
    ) -> None:
        self._matching = matching
        self._entries = _checked(replay, tree.names)
        self._tree = tree
        self._opaque = Opaque(opaque)
        self._device = device
        self._left = Counter(id(module) for module, _ in self._entries)
        self._had_memory: dict[int, torch.Tensor] = {}
        self._scratch: list[tuple[str, torch.Tensor, torch.Tensor, _Weak, int]] = []
        self._lingering: list[tuple[str, _Weak, int]] = []

    def run(self) -> list[str]:
        """Runs all entries, in their order. Returns problems; then the caller undoes everything."""
        if not self._entries:
            return []
        with own_calls():
            self._save()
        for module, function in self._entries:
            with own_calls():
                self._give_memory(self._members(module))
            with torch.inference_mode(False), torch.no_grad():
                function(module)
            self._left[id(module)] -= 1
            if self._left[id(module)]:
                continue
            with own_calls():
                self._tree.look_below(module)
                self._matching.look(self._tree.names[id(each)] for each in self._members(module))
                if self._matching.problems:
                    return self._matching.problems
                self._matching.apply()
                self._throw_away()
        return self._still_held()

    def _save(self) -> None:
        modules = list(self._tree.modules.values())
        for owner, found in _reached(modules, self._opaque, self._tree.names):
            if is_mutable(owner):
                self._matching.journal.save(owner)
            for slot in found:
                if isinstance(slot.value, torch.Tensor) and not slot.value.is_meta:
                    self._had_memory[id(slot.value)] = slot.value
        self._matching.journal.saves = False

    def _members(self, module: nn.Module) -> list[nn.Module]:
        """The module, and those below it that are not replayed by themselves later."""
        return [
            each
            for each in module.modules()
            if each is module or (not self._left[id(each)] and id(each) in self._tree.names)
        ]

    def _give_memory(self, members: Sequence[nn.Module]) -> None:
        for owner, found in _reached(members, self._opaque, self._tree.names):
            for slot in found:
                tensor = slot.value
                if isinstance(tensor, torch.Tensor) and tensor.is_meta and init.is_plain(tensor):
                    self._give(f"{slot.key} of a {type(owner).__name__}", tensor)

    def _give(self, name: str, tensor: torch.Tensor) -> None:
        if held := fit.unswappable(tensor):
            raise errors.Unsupported(
                f"{name} can't get scratch memory and stay the same object, since {held}",
                "install before that is made",
            )
        new = scratch(tensor, self._device)
        storage = new.untyped_storage()
        empty = init.of_class(type(tensor), new)
        init.swap(tensor, empty)  # it exchanges the contents of the two
        self._scratch.append((name, tensor, empty, _Weak(storage), storage.nbytes()))

    def _throw_away(self) -> None:
        """Throws away all tensors that are not the image's. `undo` gives back tensors without
        memory."""
        undone = self._matching.journal.exchanged
        undone[:] = [each for each in undone if id(each[0]) in self._had_memory]
        while self._scratch:
            self._empty(*self._scratch.pop(0))
        self._look_for_holders(COLLECT_BYTES)

    def _empty(
        self,
        name: str,
        tensor: torch.Tensor,
        empty: torch.Tensor,
        storage: _Weak,
        nbytes: int,
    ) -> None:
        """Empties a tensor that still has scratch memory, because it is not the image's. For one
        that is, notes how to undo the exchange."""
        if self._matching.has_claimed(tensor):
            undo = functools.partial(init.swap, tensor, empty)
            self._matching.journal.exchanged.append((tensor, undo))
        else:
            # somebody holds it; that is reported at the end
            with contextlib.suppress(RuntimeError):
                init.swap(tensor, empty)
        self._lingering.append((name, storage, nbytes))

    def undo(self) -> None:
        """Takes back the memory that a function had when it failed. Call it after
        `Matching.undo`."""
        for _, tensor, empty, _, _ in self._scratch:
            init.swap(tensor, empty)

    def _look_for_holders(self, collect_bytes: int) -> None:
        self._lingering = [each for each in self._lingering if not each[1].expired()]
        if sum(nbytes for _, _, nbytes in self._lingering) > collect_bytes:
            gc.collect()
            self._lingering = [each for each in self._lingering if not each[1].expired()]

    def _still_held(self) -> list[str]:
        self._look_for_holders(0)
        return [
            f"scratch: something that gpuwm can't see holds memory of {name}, which replay= gave "
            f"it, {nbytes} bytes: it would read other values than the version's"
            for name, _, nbytes in self._lingering
        ]


def _checked(
    replay: Replay, names: dict[int, str]
) -> list[tuple[nn.Module, Callable[[Any], object]]]:
    wanted = "pairs of a module and a function that takes it"
    if not isinstance(replay, Iterable):
        raise lib.wrong("replay", replay, wanted)
    found = []
    for entry in replay:
        if not (isinstance(entry, tuple) and len(entry) == 2 and callable(entry[1])):
            raise lib.wrong("replay", entry, wanted)
        if id(entry[0]) not in names:
            raise errors.Invalid(
                f"replay= names a {type(entry[0]).__name__} that is no module of the model",
                "give modules that model.modules() has",
            )
        found.append(entry)
    return found


def _reached(
    modules: Sequence[nn.Module], opaque: Opaque, tree: Container[int]
) -> Iterator[tuple[Any, list[Slot]]]:
    """Yields each owner once, with its slots: the modules, and what they refer to besides other
    modules of the tree. tree: the ids of all its modules."""
    seen: dict[int, Any] = {id(module): module for module in modules}
    queue: deque[Any] = deque(modules)
    while queue:
        owner = queue.popleft()
        found = of_object(owner) if isinstance(owner, torch.Tensor) else slots(owner)
        yield owner, found
        for slot in found:
            value = slot.value
            if type(value) in SIMPLE or id(value) in seen or id(value) in tree:
                continue
            if isinstance(value, torch.Tensor):
                looked_into = bool(of_object(value))
            else:
                looked_into = owner_kind(value, opaque) is not None
                looked_into &= not isinstance(owner, torch.Tensor)
            if looked_into:
                seen[id(value)] = value
                queue.append(value)


def scratch(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Memory of that shape: ones if the dtype is a floating-point number of 16 bits or more, zeros
    in all other dtypes. So scales are not zero, and indices are within bounds."""
    made = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=device)
    if like.dtype.is_floating_point and like.dtype.itemsize >= 2:
        made.fill_(1)
    else:
        storage = made.untyped_storage()
        whole = torch.empty(0, dtype=torch.uint8, device=device)
        whole.set_(storage, 0, (storage.nbytes(),), (1,)).zero_()
    return made
