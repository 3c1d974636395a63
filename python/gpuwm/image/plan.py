"""Compares a module with the published one, side by side, and plans what has to change."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from .. import errors
from .._torch import fit, init
from . import arrays, contents, hanging, of_classes, values
from .graph import is_carried, plain_class
from .journal import Journal
from .keys import Keys, pairs_of
from .kinds import SIMPLE, Opaque, class_name, described, owner_kind, said_of
from .memory import Memory
from .nodes import Held, Node
from .objects import MISSING as _MISSING
from .objects import Objects
from .record import Record, Tensor
from .slots import (
    ATTRIBUTE,
    ITEM,
    KEY,
    MODULE,
    NAMED,
    VALUE,
    Ignored,
    Slot,
    drop,
    is_mutable,
    put,
    rebuilt,
    slots,
    step,
)
from .tree import Tree

# Tuples and bound methods that hold each other. Each takes some of Python's stack.
_DEEPEST = 100
_CONTAINERS = frozenset(
    (
        *("builtins.list", "builtins.dict", "builtins.tuple", "builtins.set", "builtins.frozenset"),
        *("collections.deque", "collections.OrderedDict", "collections.defaultdict"),
    )
)


@dataclasses.dataclass(slots=True)
class Changes:
    """Names of what was changed in a module: tensors that it lacked, that only it had, that had
    another class, dtype, shape or role, and plain values that were different."""

    registered: list[str] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)
    retyped: list[str] = dataclasses.field(default_factory=list)
    values: list[str] = dataclasses.field(default_factory=list)


class Matching:
    """Plans changes in `look`, and makes them in `apply`.

    problems: a line for each difference that can't be removed; then nothing may be applied.
    unlike: a line for each difference in what an image does not carry.
    objects: the tensor object for each of the record's tensors that was reached.
    journal: all changes that were made.

    makes: what makes the helper objects that the module lacks. None: they are problems.
    """

    def __init__(
        self, record: Record, memory: Memory, tree: Tree, makes: Objects | None = None
    ) -> None:
        self._makes = makes
        self._makes_on_tensors = Objects(memory.device)
        self._hanging = hanging.positions(record.nodes, record.modules)
        self.record = record
        self._memory = memory
        self._opaque = Opaque(record.opaque)
        self._ignored = Ignored(record.ignored)
        self.tree = tree
        modules = record.nodes[: record.modules]
        self._positions = {node.name: position for position, node in enumerate(modules)}
        self.problems: list[str] = []
        self.unlike: list[str] = []
        self.changes: Changes = Changes()
        self.objects: dict[int, torch.Tensor] = {}
        self.claimed: dict[int, torch.Tensor] = {}  # tensors of the module, by id
        self.journal: Journal = Journal()
        self._steps: list[Callable[[], None]] = []
        self._queue: deque[tuple[int, Any]] = deque()
        self.seen: dict[tuple[int, int], Any] = {}
        self._building: set[int] = set()
        self._new_owners: dict[int, Any] = {}  # by position
        # Objects of the module that hang on tensors: one for each position, and none for two.
        self._kept_owners: dict[int, Any] = {}
        self._kept_ids: set[int] = set()
        self._keys = Keys(self)

    def look(self, names: Iterable[str]) -> None:
        """Looks at these modules, and at what they refer to besides other modules of the tree."""
        for name in names:
            position = self._positions.get(name)
            if position is None:
                continue  # look_at_structure reports it
            node = self.record.nodes[position]
            module = self.tree.modules.get(name)
            if module is None:
                self.problems.append(
                    f"module: {node.name} is a {node.said} in the version, there is none here"
                )
            else:
                self._enqueue(position, module)
        while self._queue:
            self._match(*self._queue.popleft())

    def look_at_structure(self) -> None:
        """Looks at modules that the version lacks, and at what hangs on the modules' classes."""
        for name in self.tree.names.values():
            if name not in self._positions:
                said = class_name(type(self.tree.modules[name]))
                self.problems.append(f"module: {name} is a {said} here, the version has none")
        here = of_classes.described(self.tree.modules, self._ignored)
        found = of_classes.problems(self.record.class_tensors, here)
        self.problems += [f"class: {line}" for line in found]

    def _enqueue(self, position: int, owner: Any) -> None:
        if (position, id(owner)) not in self.seen:
            self.seen[(position, id(owner))] = owner
            self._queue.append((position, owner))

    # ---- one owner ----

    def _match(self, position: int, owner: Any) -> None:
        node = self.record.nodes[position]
        if node.kind != "tensor" and (problem := self.other_class(position, owner)):
            self.problems.append(problem)
            return
        there = self._comparable(node.name, owner)
        for kind, key, held in node.slots:
            if kind in (KEY, VALUE):
                continue
            slot = there.pop(_key(kind, key), None)
            has = _MISSING if slot is None else slot.value
            if type(has) is type(held) in SIMPLE and has == held and slot.kind == kind:  # type: ignore[union-attr]
                continue  # as for most
            name = step(node.name, kind, key)
            final = self.final(position, name, held, has)
            if final is _MISSING:
                continue
            if final is not has or slot is None or slot.kind != kind:
                self._put(owner, kind, key, final)
                self._tell(name, held, has, slot is not None and slot.kind != kind)
        for slot in reversed(there.values()):
            self._drop(step(node.name, slot.kind, slot.key), owner, slot)
        if isinstance(owner, dict | set):
            self._keys.match(position, owner)

    def _comparable(self, name: str, owner: Any) -> dict[Any, Slot]:
        """The slots of the owner at that path, by `_key`."""
        found: dict[Any, Slot] = {}
        for slot in slots(owner):
            kind, key, _ = slot
            if kind == ATTRIBUTE:  # as most slots are
                if not self._ignored.fits(name, key):
                    found[key] = slot
            elif kind not in (KEY, VALUE):
                found[_key(kind, key)] = slot
        return found

    def _tell(self, name: str, held: Held, has: Any, other_kind: bool) -> None:
        if isinstance(held, dict) and "tensor" in held:
            if not isinstance(has, torch.Tensor):
                self.changes.registered.append(name)
            elif other_kind:
                self.changes.retyped.append(name)
        elif isinstance(has, torch.Tensor):
            self.changes.dropped.append(name)
        else:
            self.changes.values.append(name)

    def _drop(self, name: str, owner: Any, slot: Any) -> None:
        if slot.kind == MODULE:
            if slot.value is None:
                self.do(owner, lambda: drop(owner, slot.key))
            return  # look_at_structure reports it
        if slot.kind not in (*NAMED, ITEM):
            self.problems.append(
                f"object: {name} is {_said(slot.value)} here, the version has none"
            )
            return
        self.do(owner, lambda: drop(owner, slot.key, slot.kind))
        (
            self.changes.dropped if isinstance(slot.value, torch.Tensor) else self.changes.values
        ).append(name)

    def _put(self, owner: Any, kind: str, key: Any, value: Any) -> None:
        self.do(owner, lambda: put(owner, kind, key, value))

    def do(self, owner: Any, change: Callable[[], None]) -> None:
        def act() -> None:
            self.journal.save(owner)
            change()

        self._steps.append(act)

    def other_class(self, position: int, owner: Any) -> str | None:
        node = self.record.nodes[position]
        kind = owner_kind(owner, self._opaque)
        if kind == node.kind:
            said = class_name(owner if kind == "function" else type(owner))
            if said == node.said:
                return None
        word = "module" if node.kind == "module" else "object"
        return (
            f"{word}: {node.name or 'the module'} is a {node.said} in the version, "
            f"{_said(owner)} here"
        )

    # ---- one value ----

    def final(self, of: int, name: str, held: Held, has: Any) -> Any:
        """What a slot must hold in the end, or _MISSING if there is a problem. of: the position of
        its owner. has: what it holds now."""
        if isinstance(held, dict):
            if said := self.record.contents.get(name):
                self.unlike += contents.differences(name, said, contents.of(has))
            if "tensor" in held:
                return self._tensor(name, held["tensor"], has)
            if "node" in held:
                return self._owner(of, name, held["node"], has)
            if "other" in held:
                return self._other(of, name, held["other"], has)
        return self._plain(name, held, has)

    def _makes_at(self, position: int) -> Objects | None:
        """What makes the objects that the owner at the position lacks."""
        return self._makes_on_tensors if position in self._hanging else self._makes

    def _other(self, of: int, name: str, said: str, has: Any) -> Any:
        if has is not _MISSING and said_of(has) == said:
            return has
        makes = self._makes_at(of)
        made = makes.other(said) if makes else _MISSING
        return self._problem(name, f"a {said}", has) if made is _MISSING else made

    def _problem(self, name: str, said: str, has: Any) -> Any:
        self.problems.append(f"object: {name} is {said} in the version, {_said(has)} here")
        return _MISSING

    def _plain(self, name: str, held: Held, has: Any) -> Any:
        if has is not _MISSING and values.encoded(has) == held and _same_types(has, held):
            return has
        if isinstance(has, nn.Module):
            return self._problem(name, repr(held), has)
        try:
            return values.decoded(held)
        except (LookupError, ValueError) as error:
            self.problems.append(f"value: {name}: this process has not imported {error}")
            return _MISSING

    def _owner(self, of: int, name: str, position: int, has: Any) -> Any:
        node = self.record.nodes[position]
        if node.kind == "array":
            return self._array(name, position, has)
        if position < self.record.modules:
            module = self.tree.modules.get(node.name)
            if module is None:
                return _MISSING  # it is reported when modules are looked at
            is_lacking = has is _MISSING and self._makes_at(of)
            if not is_lacking and not isinstance(has, nn.Module):
                return self._problem(name, f"the module {node.name}", has)
            return module
        if position in self._hanging:
            has = self._kept(position, has)
        kind = None if has is _MISSING else owner_kind(has, self._opaque)
        if kind is None or (kind == node.kind == "deque" and has.maxlen != _maxlen(node)):
            return self._new(name, position, has)
        return self._changed(name, position, has)

    def _array(self, name: str, position: int, has: Any) -> Any:
        """An array is exchanged as a value is. One array in two places is one again."""
        if position not in self._new_owners:
            held = self.record.nodes[position].slots[0][2]
            kind = None if has is _MISSING else owner_kind(has, self._opaque)
            if kind not in (None, "array"):
                return self._problem(name, "an array", has)
            is_equal = kind == "array" and arrays.encoded(has) == held
            final = has if is_equal else self._plain(name, held, _MISSING)
            if final is _MISSING:
                return _MISSING
            self._new_owners[position] = final
        return self._new_owners[position]

    def _kept(self, position: int, has: Any) -> Any:
        """The object of the module that stays for one that hangs on a tensor, or _MISSING: the one
        that was found first, since what was one object must be one again. has: what is there."""
        if position in self._new_owners:
            return _MISSING
        if position not in self._kept_owners and id(has) not in self._kept_ids:
            if owner_kind(has, self._opaque) is None:
                return has
            self._kept_owners[position] = has
            self._kept_ids.add(id(has))
        return self._kept_owners.get(position, _MISSING)

    def _new(self, name: str, position: int, has: Any) -> Any:
        """What the module lacks: one object, also if the record refers to it more than once."""
        if position not in self._new_owners:
            node = self.record.nodes[position]
            made = self._blank(position, node)
            if made is _MISSING:
                return self._problem(name, f"a {node.said}", has)
            self._new_owners[position] = self._changed(name, position, made)
        return self._new_owners[position]

    def _changed(self, name: str, position: int, has: Any) -> Any:
        """Plans what changes in an owner. Returns what is in its place in the end."""
        if is_mutable(has):
            self._enqueue(position, has)
            return has
        return self._rebuilt(name, position, has)

    def _blank(self, position: int, node: Node) -> Any:
        # those of Python are made in any case
        is_known = node.said in _CONTAINERS
        makes = self._makes_on_tensors if is_known else self._makes_at(position)
        return makes.owner(node) if makes else _MISSING

    def _rebuilt(self, name: str, position: int, has: Any) -> Any:
        """A tuple, frozenset or bound method with its new content. If nothing in it changes, it is
        the same object."""
        node = self.record.nodes[position]
        if position in self._building:
            raise errors.Damaged(f"{name} holds itself", "publish the image anew")
        if len(self._building) == _DEEPEST:
            raise errors.Damaged(f"{name} is nested too deeply", "publish the image anew")
        if problem := self.other_class(position, has):
            self.problems.append(problem)
            return _MISSING
        there = {
            _key(slot.kind, slot.key): slot.value for slot in slots(has) if slot.kind != ATTRIBUTE
        }
        self._building.add(position)
        made: list[Any] = []
        if isinstance(has, frozenset):
            pairs = self._keys.final(position, pairs_of(has))
            made = [_MISSING] if pairs is None else [key for key, _ in pairs]
        for kind, key, held in node.slots:
            # a class that derives from tuple can have attributes
            if kind in (ATTRIBUTE, KEY):
                continue
            value = there.get(_key(kind, key), _MISSING)
            made.append(self.final(position, step(node.name, kind, key), held, value))
        self._building.discard(position)
        if any(value is _MISSING for value in made):
            return _MISSING
        if isinstance(has, frozenset):
            same = {id(each) for each in made} == {id(each) for each in there.values()}
        else:
            same = len(made) == len(there) and all(
                a is b for a, b in zip(made, there.values(), strict=True)
            )
        if same:
            return has
        try:
            return rebuilt(has, made)
        except TypeError as error:
            self.problems.append(f"object: {name} can't be made: {error}")
            return _MISSING

    # ---- tensors ----

    def _tensor(self, name: str, position: int, has: Any) -> Any:
        found = self.objects.get(position)
        if found is None:
            like = has if isinstance(has, torch.Tensor) else None
            found = self._made(position, like)
            if found is None:
                return _MISSING
            self.objects[position] = found
        if isinstance(has, torch.Tensor):
            self._report_objects(name, self.record.tensors[position], has)
        if isinstance(has, nn.Module) or (
            has is not _MISSING
            and not isinstance(has, torch.Tensor)
            and owner_kind(has, self._opaque) is not None
        ):
            return self._problem(name, "a tensor", has)
        return found

    def _made(self, position: int, like: torch.Tensor | None) -> torch.Tensor | None:
        """The tensor object for a record's tensor: what the module has there, if that can become
        it, or a new one."""
        tensor = self.record.tensors[position]
        try:
            new = self._memory.make(position, like)
        except errors.Unsupported as error:
            self.problems.append(f"{error.message}")
            return None
        found = new
        if like is not None:
            if _differs(like, new):
                self.changes.retyped.append(tensor.name)
            if id(like) not in self.claimed and _exchangeable(like, new):
                self.claimed[id(like)] = like
                self._steps.append(functools.partial(self.journal.exchange, like, new))
                found = like
            else:
                self._keep_ignored(tensor, new, like)
        self._match_attributes(tensor, found)
        return found

    def _keep_ignored(self, tensor: Tensor, new: torch.Tensor, like: torch.Tensor) -> None:
        """Gives a new tensor what the record ignores of the one whose place it takes, and so for
        the parts of a subclass."""
        for kind, key, value in slots(like):
            if self._ignored.fits(tensor.name, key):
                put(new, kind, key, value)
        for name, part in (tensor.parts or {}).items():
            if isinstance(there := getattr(like, name, None), torch.Tensor):
                self._keep_ignored(self.record.tensors[part], getattr(new, name), there)

    def _match_attributes(self, tensor: Tensor, made: torch.Tensor) -> None:
        """Plans what changes in the attributes of a tensor, and of a subclass's parts."""
        if tensor.attributes is not None:
            self._enqueue(tensor.attributes, made)
        else:
            for slot in self._comparable(tensor.name, made).values():
                self._drop(step(tensor.name, slot.kind, slot.key), made, slot)
        for name, part in (tensor.parts or {}).items():
            self._match_attributes(self.record.tensors[part], getattr(made, name))

    def _report_objects(self, name: str, tensor: Tensor, has: torch.Tensor) -> None:
        """Reports objects that hang on a tensor of the module, if the version has nothing there:
        the module may compute with them. name: the tensor's path in the module."""
        at = tensor.attributes
        known = set() if at is None else {key for _, key, _ in self.record.nodes[at].slots}
        for slot in self._comparable(tensor.name, has).values():
            if slot.key not in known and not is_carried(slot.value):
                self.problems.append(
                    f"attribute: {step(name, slot.kind, slot.key)} is {described(slot.value)} "
                    "here, the version has none"
                )

    # ---- doing it ----

    def apply(self) -> None:
        """Makes all changes that were planned since the last call."""
        steps, self._steps = self._steps, []
        for act in steps:
            act()
        self.seen.clear()

    def has_claimed(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self.claimed


def _key(kind: str, key: Any) -> Any:
    """The key that slots are compared by. For names it is the name, whatever the kind. For items it
    has the type too, since 1, 1.0 and True are equal."""
    return key if kind in NAMED else (kind, type(key), key)


def _maxlen(node: Node) -> int | None:
    return next((held for kind, key, held in node.slots if key == "maxlen"), None)


def _said(value: Any) -> str:
    if value is _MISSING:
        return "not there"
    if values.encoded(value) is not values.NOT_PLAIN:
        return repr(value)
    return f"a {said_of(value)}"


def _same_types(value: Any, held: Held) -> bool:
    """Whether the types are the same too: 1, 1.0 and True are equal."""
    return type(value) is type(held) or values.types_of(values.encoded(value)) == values.types_of(
        held
    )


def _differs(like: torch.Tensor, new: torch.Tensor) -> bool:
    return (
        plain_class(like) is not plain_class(new)
        or like.dtype != new.dtype
        or like.size() != new.size()
    )


def _exchangeable(like: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether the tensor object can become the new tensor."""
    if not (init.is_plain(like) and init.is_plain(new)):
        return False
    same_device = not like.is_meta and like.device == new.device
    return same_device or fit.unswappable(like) is None
