"""Binds a model: its parameters become the shared memory."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import gc
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import errors
from .._c import lib
from .._c.handle import Handle
from .._shown import texts
from . import (
    aliases,
    counters,
    described,
    extra_state,
    fit,
    guards,
    init,
    parametrized,
    registry,
    sharded,
    steps,
    tensors,
)
from .places import Place, modules_of, places

if TYPE_CHECKING:
    from .._mapping import Mapping

Globs = str | Sequence[str]


class BindError(errors.Mismatch):
    """The model and the version don't fit, and nothing was bound. problems: a line for each
    problem, with the names and both values. The message has all of them."""

    problems: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class BindResult:
    """What `bind` did, as names of the model.

    - shared: they are in the version's memory, read-only.
    - private: they have a copy of their own.
    - missing: the version has no such tensor or extra state, and they are unchanged (only with
      strict=False).
    - unexpected: tensors of the version that the model does not use (only with strict=False).
    - tied: names of one parameter or buffer of the model.
    - views: buffers, attributes and items of the model that were views of memory that was bound.
      They are views of the new memory.
    """

    shared: tuple[str, ...]
    private: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    tied: tuple[tuple[str, ...], ...]
    views: tuple[str, ...]

    def __repr__(self) -> str:
        return texts.of_fields(self)


def bind(
    mapping: Mapping,
    model: nn.Module,
    *,
    strict: bool = True,
    share_buffers: bool | Globs = False,
    private: Globs = (),
    guard: bool = True,
    names: dict[str, str | None] | None = None,
) -> BindResult:
    """Makes the version's memory the memory of the model's parameters, by name, without a copy. It
    binds all of them or none.

    Modules with a `set_extra_state` get the extra state of the version, if it has one for them.

    Parameters stay the same objects, so hooks, optimizers and tied names keep them. They get the
    version's strides, and requires_grad False. Buffers get copies of their values, since models
    write into them. Buffers that the version lacks, and that `__init__` left on the CPU, move to
    the version's device. While bind runs, nobody else may use the model. The model keeps the memory
    and the lease, even without the mapping: gpuwm.mapping_of(model) returns it.

    - strict: a name that only the model or only the version has is a mismatch. With False the
      result lists such names. Other shapes, dtypes and devices, and parameters without memory, are
      mismatches in any case.
    - share_buffers: share buffers too: True, or globs of names.
    - private: globs of names that get a copy of this process's own instead.
    - guard: writes into shared tensors raise if Python sees them (see `gpuwm._torch.guards`).
      Without it they end the process or its CUDA context.
    - names: for tensors of the version that the model calls otherwise, the model's names. None:
      leave the tensor out, as if the version lacked it.

    Raises BindError, which lists all that doesn't fit, and Invalid, for a glob that matches no name
    or a module without parameters and buffers. Nothing is changed then.
    """
    modules = modules_of(model)
    # A tensor made in inference mode could never take part in gradients of others.
    with (
        torch.inference_mode(False),
        fit.let_go(module for _, module in modules),
        no_collections(),
    ):
        plan = _Plan(mapping, modules, share_buffers, private, guard, names or {})
        problems = plan.unmatched() + plan.problems if strict else plan.problems
        if problems:
            lines, prefix = plan.lines(problems), fit.other_prefix(plan.missing, plan.unexpected)
            del plan  # the error's traceback keeps this frame, which would keep the views
            raise _error(mapping, model, lines, prefix)
        aliases.warn(plan.others)
        _do(plan.steps)
    init.allow_calls(module for _, module in modules)
    if guard:
        guards.watch(plan.places)
    plan.remember(mapping)
    return plan.result()


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Turns garbage collection off: all that is made here lives on. In a process that has imported
    torch, a collection would take 100 ms, several times what binding takes, and find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ---- what is to be done -----------------------------------------------------------------------


def _do(planned: Sequence[steps.Step]) -> None:
    """Does all steps, or none."""
    for done, step in enumerate(planned):
        try:
            step.do()
        except BaseException as error:
            for earlier in reversed(planned[:done]):
                earlier.undo()
            if isinstance(error, RuntimeError):
                raise BindError(
                    f"{step.name} could not be bound: {error}", "nothing was bound"
                ) from error
            raise


# The source of a tensor that moves, as the model calls it, or "" if its new memory is its own; and
# whether the memory is the version's.
_Destination = tuple[str, bool]
_Problem = tuple[str, str]  # the name that the problem is about, or "", and a line of text


class _Plan:
    """Looks at every place of the model, and makes the private copies. It does not change the
    model."""

    def __init__(
        self,
        mapping: Mapping,
        modules: Sequence[tuple[str, nn.Module]],
        share_buffers: bool | Globs,
        private: Globs,
        guard: bool,
        called: dict[str, str | None],
    ) -> None:
        self.places = places(modules)
        if not self.places:
            raise errors.Invalid(
                f"{type(modules[0][1]).__name__} has no parameters and no buffers",
                "bind the module that has them",
            )
        names = {name for place in self.places for name in place.names}
        self._private = chosen(names, private, "private")
        every: Globs = "*" if share_buffers is True else share_buffers or ()
        self._shared_names = chosen(names, every, "share_buffers")
        self._guard = guard and not mapping.private_writes
        self._read_only = not mapping.private_writes
        self._of = {ours: name for name, ours in called.items() if ours is not None}
        self.sources = {
            ours: tensor
            for name, tensor in mapping.state_dict().items()
            if (ours := called.get(name, name)) is not None
        }
        self._device = next((t.device for t in self.sources.values()), torch.device("cpu"))
        self.problems: list[_Problem] = []
        self.steps: list[steps.Step] = []
        self.bound: list[registry.Binding] = []
        self.bound_views: list[registry.Binding] = []
        self.extra_states: list[extra_state.Given] = []
        self.shared: list[torch.Tensor] = []  # tensors of the version
        self.missing: list[str] = []
        self.unexpected = [name for name in self.sources if name not in names]
        self._modules, self._names = modules, names
        self._bound = {id(p.tensor) for p in self.places if any(n in self.sources for n in p.names)}
        self._without_memory: list[Place] = []
        self._moved: list[aliases.Moved] = []
        self._moved_to: list[_Destination] = []
        # Tensors over the version's memory that have counters of writes of their own.
        self.followed: list[torch.Tensor] = []
        for place in self.places:
            self._look_at(place)
        found = aliases.views_of(modules[0][1], self._moved)
        self.problems += ((name, f"view: {name} {why}") for name, why in found.problems.items())
        self.others = found.others
        for view in found.views:
            self._take_along(view, self._moved[view.moved], self._moved_to[view.moved])
        self._views = [view.name for view in found.views]
        self._give_extra_states(mapping, called)
        if any(place.tensor.is_meta for place in self.places):
            self._look_for_lost({id(view.tensor) for view in found.views})

    def _look_for_lost(self, taken: Set[int]) -> None:
        """Notes what would be left without memory. taken: the ids of tensors that get memory as
        views."""
        for place in self._without_memory:
            if id(place.tensor) not in taken:
                self.problems.append((place.name, fit.no_memory(place)))
        lost = fit.computed_too_early(self._modules, taken)
        self.problems += (("", line) for line in lost)

    def unmatched(self) -> list[_Problem]:
        missing = [(name, f"missing: the version has no {name}") for name in self.missing]
        return missing + [(name, self._unexpected(name)) for name in self.unexpected]

    def _unexpected(self, name: str) -> str:
        whole = described.whole_of(name, self._names)
        if whole is None:
            return f"unexpected: the model has no {name}"
        return f"parts: the version has tensors below {whole}, which bind gives to nothing"

    def lines(self, problems: Sequence[_Problem]) -> list[str]:
        """The problems as lines. Those with the same reason share a line."""
        reasons = parametrized.explained(self._modules, self._names, self.sources)
        return list(dict.fromkeys(reasons.get(name, line) for name, line in problems))

    def result(self) -> BindResult:
        shared = (n for each in self.bound if not each.private for n in each.place.names)
        private = (n for each in self.bound if each.private for n in each.place.names)
        tied = (tuple(place.names) for place in self.places if len(place.names) > 1)
        return BindResult(
            *(tuple(shared), tuple(private), tuple(self.missing), tuple(self.unexpected)),
            *(tuple(tied), tuple(self._views)),
        )

    def _look_at(self, place: Place) -> None:
        named = [name for name in place.names if name in self.sources]
        if not named:
            self._unnamed(place)
            return
        name = named[0]
        source = self.sources[name]
        shared = self._is_shared(place)
        held = fit.unswappable(place.tensor)
        problem = (
            fit.misfit(place, source)
            or (len(named) > 1 and fit.different(self.sources, named))
            or (held and fit.other_identity(place, source, held))
            or (guards.never_shared(place) if shared and self._read_only else None)
            or described.describes_others(place, source, self.sources, self._bound)
        )
        if problem:
            self.problems.append((name, problem))
            return
        of = self._of.get(name, name)
        at = source.data_ptr()
        self.bound.append(registry.Binding(place, of, not shared, at, source.nbytes))
        if shared:
            self.shared.append(source)
        self._plan_step(place, source, name, shared, held)

    def _is_shared(self, place: Place) -> bool:
        if not self._private.isdisjoint(place.names):
            return False
        return not place.is_buffer or not self._shared_names.isdisjoint(place.names)

    def _unnamed(self, place: Place) -> None:
        """Notes a place that has none of its names in the version."""
        tensor = place.tensor
        if place.persistent:
            self.missing.append(place.name)
        if tensor.is_meta:
            self._without_memory.append(place)
        elif place.is_buffer and tensor.device.type == "cpu" != self._device.type:
            moved = torch.Tensor.detach(tensor).to(self._device)
            self._moved.append(aliases.Moved(place.name, tensor, moved))
            self._moved_to.append(("", False))
            self.steps.append(steps.Swap(place, init.of_class(type(tensor), moved)))

    def _give_extra_states(self, mapping: Mapping, called: dict[str, str | None]) -> None:
        """After the tensors: modules may look at them. A checkpoint has extra states that are
        tensors among its own."""
        states: dict[str, Any] = {
            name: tensors.clone(self.sources[name])
            for name in self.unexpected
            if extra_state.is_name(name)
        }
        for name, state in extra_state.read(mapping).items():
            if (ours := called.get(name, name)) is not None:
                states[ours] = state
        self.unexpected = [name for name in self.unexpected if name not in states]
        self.missing += extra_state.missing(states, self._modules)
        for name, step in extra_state.given(states, self._modules):
            if step is None:
                self.unexpected.append(name)
            else:
                self.steps.append(step)
                self.extra_states.append(step)

    def remember(self, mapping: Mapping) -> None:
        registry.remember(mapping, self.bound + self.bound_views)
        registry.keep(mapping, self.shared)
        for step in self.extra_states:
            extra_state.remember(mapping, step, self._of.get(step.name, step.name))
        handle = registry.handle_of(mapping)
        if self.followed and isinstance(handle, Handle):
            counters.follow(handle, self.followed)

    def _plan_step(
        self, place: Place, source: torch.Tensor, name: str, shared: bool, held: str | None
    ) -> None:
        tensor = place.tensor
        if not shared and place.is_buffer and fit.fillable(tensor, source):
            self.steps.append(steps.Fill(place, source))
            return
        memory = source if shared else tensors.clone(source)
        self._moved.append(aliases.Moved(place.name, tensor, memory))
        self._moved_to.append((name, shared))
        self._become(place, memory, shared, held)

    def _become(self, place: Place, memory: torch.Tensor, shared: bool, held: str | None) -> None:
        """Plans that the tensor object gets that memory. held: the result of fit.unswappable."""
        kind = guards.kind_of(place.tensor, shared and self._guard)
        new = torch.Tensor._make_subclass(kind, memory, False)
        self.steps.append(steps.SetData(place, new) if held else steps.Swap(place, new))
        if shared and held:
            self.followed.append(place.tensor)

    def _take_along(self, view: aliases.View, moved: aliases.Moved, to: _Destination) -> None:
        """Plans that a view becomes a view of the memory that the moved tensor gets."""
        memory, (source, shared) = view.over(moved.memory), to
        mine = next((place for place in self.places if place.tensor is view.tensor), None)
        place = mine or Place(view.tensor, True, False, [view.name], [])
        held = fit.unswappable(view.tensor)
        if held and (problem := fit.other_identity(place, memory, held)):
            self.problems.append((view.name, problem))
            return
        stored = next((name for name in place.names if name in self.sources), None)
        if mine and stored and not fit.equal_bytes(memory, self.sources[stored]):
            self.problems.append((view.name, _other_values(view.name, moved.name)))
            return
        if mine:
            self.steps = [step for step in self.steps if step.name != place.name]
            self.bound = [binding for binding in self.bound if binding.place is not place]
            if shared:
                at = self.sources[source]
                of = self._of.get(source, source)
                named = dataclasses.replace(place, names=[moved.name])  # as an error calls it
                binding = registry.Binding(named, of, False, at.data_ptr(), at.nbytes)
                self.bound_views.append(binding)
        self._become(place, memory, shared, held)
        if shared:
            self.followed.append(view.tensor)


def _other_values(name: str, of: str) -> str:
    return (
        f"values: {name} is a view of {of} in the model, and the version has other values for it "
        "than for that part"
    )


def chosen(names: set[str], globs: Globs, option: str) -> set[str]:
    """The names that match the globs. Raises Invalid if a glob matches none."""
    chosen: set[str] = set()
    for glob in lib.names(globs, option):
        fitting_names = set(fnmatch.filter(names, glob)) if glob != "*" else names
        if not fitting_names:
            raise errors.Invalid(
                f"{option}: {glob!r} fits no parameter or buffer of the model",
                "named_parameters() and named_buffers() have their names",
            )
        chosen |= fitting_names
    return chosen


def _error(
    mapping: Mapping, model: nn.Module, problems: list[str], prefix: str | None
) -> BindError:
    count = "1 thing doesn't" if len(problems) == 1 else f"{len(problems)} things don't"
    error = BindError(
        f"{type(model).__name__} and {mapping.version}: {count} fit, nothing was bound:\n  "
        + "\n  ".join(problems),
        _remedy(problems, prefix),
    )
    error.problems = tuple(problems)
    return error


def _remedy(problems: list[str], prefix: str | None) -> str:
    kinds = {problem.split(":", 1)[0] for problem in problems}
    remedies = [text for kind, text in _REMEDIES.items() if kind in kinds]
    if prefix:
        remedies.insert(0, prefix)
    return "\n" + "\n".join(remedies) if remedies else ""


_REMEDIES = {
    "missing": "missing, unexpected: strict=False if that is meant",
    "no memory": (
        "no memory: build the model outside of empty_init, and bind it as it is, as gpuwm.build "
        "does by itself; parameters that the version lacks need strict=False, too"
    ),
    **described.REMEDIES,
    "sharded": sharded.BEFORE,
    "parametrized": parametrized.REMEDY,
    "dtype": "dtype: model.to(dtype) before it is bound, or torch.set_default_dtype while built",
    "view": "view: set it to None before the model is bound, and make it again afterwards",
    "values": "values: give it memory of its own before the model is bound: clone()",
    "device": "device: build the model in gpuwm.empty_init(), it is then the version's",
}
