"""Keys that are no plain values: what sets have, and what dicts have under classes, modules and
tensors. Such keys have no name to compare, so each is looked for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import values
from .kinds import said_of
from .nodes import Held
from .objects import MISSING
from .slots import ITEM, KEY, VALUE, is_plain_key, put_in_order, put_keyed, slots, step

if TYPE_CHECKING:
    from .plan import Matching


_KINDS = {"tensor", "other", "node"}


class Keys:
    """The part of a plan that is about such keys."""

    def __init__(self, plan: Matching) -> None:
        self._plan = plan

    def match(self, position: int, owner: Any) -> None:
        """Plans what changes of keys that are no plain values, and in the order of a dict."""
        node = self._plan.record.nodes[position]
        there = pairs_of(owner)
        wanted = self.final(position, there)
        if wanted is None:
            return  # it was reported
        same = len(wanted) == len(there) and all(
            any(key is each and value is of for each, of in there) for key, value in wanted
        )
        if not same:
            gone = [key for key, _ in there]
            self._plan.do(owner, lambda: put_keyed(owner, gone, wanted))
            self._plan.changes.values.append(node.name)
        if isinstance(owner, dict):
            keys = iter(key for key, _ in wanted)
            order = [
                next(keys) if kind == KEY else key
                for kind, key, _ in node.slots
                if kind in (KEY, ITEM)
            ]
            known = dict.fromkeys(order)
            now = [key for key in owner if key in known]
            now += [key for key in order if key not in owner]
            if not same or now != order:
                self._plan.do(owner, functools.partial(put_in_order, owner, order))

    def final(
        self, position: int, there: Sequence[tuple[Any, Any]]
    ) -> list[tuple[Any, Any]] | None:
        """The keys of an owner that are no plain values, with what is under them in the end. there:
        what is there now. None: there is a problem."""
        node, left = self._plan.record.nodes[position], list(there)
        found: list[list[Any]] = []
        for kind, at, held in node.slots:
            name = step(node.name, kind, at)
            if kind == KEY:
                key, has = self._like(held, left)
                found.append([self._plan.final(position, name, held, key), None])
            elif kind == VALUE:
                found[-1][1] = self._plan.final(position, name, held, has)
        if any(part is MISSING for pair in found for part in pair):
            return None
        return [(key, value) for key, value in found]

    def _like(self, held: Held, left: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Takes from `left` the pair whose key stays for a key of the record, or returns what is
        to be there instead, and MISSING."""
        for at, (key, _) in enumerate(left):
            if self._is_like(held, key):
                return left.pop(at)
        position = held.get("node") if isinstance(held, dict) else None
        if position is not None and position < self._plan.record.modules:
            name = self._plan.record.nodes[position].name
            return self._plan.tree.modules.get(name, MISSING), MISSING
        return MISSING, MISSING

    def _is_like(self, held: Held, key: Any) -> bool:
        if not isinstance(held, dict) or not _KINDS & held.keys():
            return bool(values.encoded(key) == held)
        if "tensor" in held:
            found = self._plan.objects.get(held["tensor"])
            free = found is None and id(key) not in self._plan.claimed
            return found is key or (free and isinstance(key, torch.Tensor))
        if "other" in held:
            return bool(said_of(key) == held["other"])
        position = held["node"]
        if position < self._plan.record.modules:
            return self._plan.tree.modules.get(self._plan.record.nodes[position].name) is key
        if (position, id(key)) in self._plan.seen:
            return True
        is_other = any(at != position and owner == id(key) for at, owner in self._plan.seen)
        return not is_other and self._plan.other_class(position, key) is None


def pairs_of(owner: Any) -> list[tuple[Any, Any]]:
    """The keys of a dict that are no plain values, with what is under each, or what a set has."""
    if isinstance(owner, dict):
        return [pair for pair in owner.items() if not is_plain_key(pair[0])]
    return [(slot.value, None) for slot in slots(owner) if slot.kind == KEY]
