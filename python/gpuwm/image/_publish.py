"""Publishes a module as it is after loading."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from .. import errors
from .._c import lib
from .._mapping import Mapping as Attached
from .._publish.making import files_of
from .._publish.publish import Options
from .._publish.publish import publish as publish_tensors
from .._torch import aliases, counters, guards, init, registry
from .._torch.bind import Globs, chosen
from .._torch.places import Place, modules_of, places
from . import _switched, hanging, record, shells
from .graph import Graph, Leaf, plain_class
from .kinds import described
from .postprocess import own_calls
from .slots import step
from .storages import Storages, Stored, View, view_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


def publish(
    model: nn.Module,
    name: str,
    *,
    private: Globs = (),
    share_buffers: bool | Globs = False,
    written: Globs = (),
    guard: bool = True,
    opaque: Sequence[str] = (),
    ignored: Sequence[str] = (),
    makeable: bool = False,
    **options: Unpack[Options],
) -> Attached:
    """Makes a version of a module as it is now, for `install`: an *image*. Returns the version's
    mapping.

    The image has

    - every tensor that is reachable from the module: parameters, buffers (also those that
      state_dict() leaves out), attributes of modules, and what the objects that modules hold refer
      to (instance dicts and slots, dicts, lists, tuples, sets, deques, functools.partial, bound
      methods, closures, defaults and attributes of functions);
    - the names that there are, ties, views and strides;
    - plain values of modules, helper objects and tensors: what `values.encoded` lists, and arrays
      of NumPy.

    A subclass of tensors that flattens (`__tensor_flatten__`) is stored by its parts and its
    context. Not recorded are hooks, globals of functions, tensors on classes, and what objects of
    the classes `opaque` hold. Of these only the class, or the function's name, is recorded, and
    what it says of itself, so that `install` can compare it. All else that has something in it is
    refused, unless `ignored` names it. An object that hangs on a tensor (`weight.quant_state`) is
    recorded if it is made of tensors and plain values, and refused otherwise, unless `ignored`
    names it.

    - opaque: globs of "module.Class", besides `kinds.OPAQUE`; a class counts too if it derives from
      one that matches.
    - ignored: globs of paths of attributes that are neither recorded nor compared. `install` leaves
      them as the fresh module has them. They can't be parameters, buffers or modules.
    - private: globs of names that stay this process's own.
    - share_buffers: share buffers, too, here and in every process that installs the image: True, or
      globs of names. It is for models that only run, such as quantised ones whose weights are
      buffers.
    - written: globs of paths of tensors that the module or its kernels write into, such as
      workspaces. They are private here, and in every process that installs the image. A glob is
      compared with each path to a tensor ("layers.0.workspace", "buffers[0]"), and may match none.
    - makeable: raise Unsupported if `module` could not make the module in another process.
    - guard: as in `Mapping.bind`. Writes through a subclass that flattens are not seen.
    - all other keywords are those of gpuwm.publish. If the model has several parts, each rank
      publishes its own module.

    The module stays in use, and lies in the version. Parameters and tensor attributes are the
    version's memory, read-only, and the same objects. Buffers stay this process's own, since models
    write into them. Tensors move one by one: if nobody else refers to their old memory, no more is
    needed at any time than the model and 2 GiB, as with gpuwm.publish(bind=True). Tensors that
    overlap are shared or private together. If the module is on a GPU, its tensors on the CPU stay
    there, private. Nobody else may use the model meanwhile.

    Raises Unsupported (it lists the tensors that no version can have, objects that hang on tensors,
    and what `module` could not make, and why; or the record is too large), Invalid (a glob matches
    no tensor, or files= has the record's name), and all errors of gpuwm.publish. After an error the
    model is as usable as gpuwm.publish says.
    """
    lib.known(options, Options, "publish")
    contents = files_of(options.get("files"))
    if record.FILE in contents:
        raise errors.Invalid(f"files= has {record.FILE}", "that is the name of the image's record")
    with own_calls():
        graph = Graph(model, lib.names(opaque, "opaque"), lib.names(ignored, "ignored"))
        graph.mark_read(_read_only(model, share_buffers))
        graph.mark_written(lib.names(written, "written"))
        storages = Storages(graph.leaves)
        taken = _Taken(graph, storages, private)
        _refuse(graph, taken, storages, makeable)
        contents[record.FILE] = record.written(graph, storages)
        options["files"] = contents
        if options.get("device") is None:
            options["device"] = storages.device
        aliases.warn(_others(graph, taken))
        mapping = publish_tensors(taken, name, **options)
        _leave(mapping, model, taken, guard)
    return mapping


def _read_only(model: nn.Module, share_buffers: bool | Globs) -> set[str]:
    """All names of the buffers that `share_buffers` means."""
    buffers = [place for place in places(modules_of(model)) if place.is_buffer]
    every: Globs = ("*" if buffers else ()) if share_buffers is True else share_buffers or ()
    found = chosen({name for place in buffers for name in place.names}, every, "share_buffers")
    return {n for place in buffers if not found.isdisjoint(place.names) for n in place.names}


_MAKE_THERE = """
leave these out; or let the other process make its module by itself: with structure= of a builder,
or for gpuwm.image.install"""
_IGNORE = """
keep the objects as attributes of a module. If the module that install() gets, or that
structure= of a builder makes, has such objects already, leave them out: ignored="""


def _refuse(graph: Graph, taken: _Taken, storages: Storages, makeable: bool) -> None:
    problems = [*storages.problems, *taken.written(), *_addresses(graph)]
    on_tensors = dict(hanging.refused(graph, storages.device))
    lost = _lost(graph, on_tensors)
    unmakeable = shells.unmakeable(graph) if makeable and not (on_tensors or lost) else []
    remedies = _MAKE_THERE * bool(unmakeable)
    if on_tensors:
        remedies += _IGNORE + str(sorted({f"*.{path.rpartition('.')[2]}" for path in on_tensors}))
    if lost:
        remedies += _LOST + str(sorted(glob.escape(path) for path in lost))
    if problems := [*problems, *on_tensors.values(), *lost.values(), *unmakeable]:
        raise errors.Unsupported("nothing was published:\n  " + "\n  ".join(problems), remedies)
    if not storages.stored:
        raise errors.Invalid(
            "there are no tensors with elements in it", "publish a module that has some"
        )


_LOST = """
keep what is in them as tensors and plain values, under names or in lists. If the module that
install() gets has such things already, and these are right there, leave them to it: ignored="""


def _lost(graph: Graph, besides: Iterable[str]) -> dict[str, str]:
    """By path, a line for each thing of which the record would have a class's name and nothing
    more. besides: paths of objects that are refused as a whole."""
    modules = [node for node in graph.nodes if node.kind == "module"]
    found: dict[str, str] = {}
    for path, name, value in graph.lost:
        if any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in besides):
            continue
        of = max((n for n in modules if _is_in(path, n.name)), key=lambda n: len(n.name))
        found[path] = (
            f"{name}: {described(value)}, which {of.said} holds; an image can't have what is in it"
        )
    return found


def _is_in(path: str, module: str) -> bool:
    return not module or path.startswith((f"{module}.", f"{module}<"))


def _addresses(graph: Graph) -> Iterator[str]:
    """Plain values that are the address of a tensor, which is another one in every other
    process."""
    at = {
        leaf.tensor.data_ptr(): leaf.name
        for leaf in graph.leaves
        if leaf.parts is None and init.is_plain(leaf.tensor) and leaf.tensor.numel()
    }
    at.pop(0, None)  # tensors on meta
    for node in graph.nodes:
        for kind, key, held in node.slots:
            if type(held) is int and held in at:
                name = step(node.name, kind, key)
                yield (
                    f"{name}: is the address of {at[held]}, which each process has elsewhere: "
                    "compute it when it is used"
                )


def _others(graph: Graph, taken: _Taken) -> list[str]:
    """What the image does not have, and what has memory of tensors that are about to move."""
    moved = [
        aliases.Moved(leaf.name, leaf.tensor, leaf.tensor)
        for stored, moves in taken.moved()
        if moves
        for leaf in stored.leaves
    ]

    def known() -> Iterator[torch.Tensor]:
        yield from (leaf.tensor for leaf in graph.leaves if leaf.parts is None)
        yield from (stored.whole for stored, _ in taken.moved())

    return aliases.others_of(moved, known)


class _Taken(MutableMapping[str, torch.Tensor]):
    """The tensors to store, by name, as `gpuwm.publish` wants them. When publish sets one, all
    tensors that lie in it get the new memory, unless it is private."""

    def __init__(self, graph: Graph, storages: Storages, private: Globs) -> None:
        self._views = storages.views
        self._positions = {id(leaf): position for position, leaf in enumerate(graph.leaves)}
        names = {name for leaf in graph.leaves for name in leaf.names}
        self._private = chosen(names, private, "private")
        self._graph = graph
        # Parts stay plain tensors: the subclass may ask for their class.
        self.parts = {
            graph.leaves[part].name for leaf in graph.leaves for part in (leaf.parts or {}).values()
        }
        self._spread(graph)
        on = storages.device
        # Tensors that move come first: gpuwm.publish looks at the device of the first one.
        ordered = sorted(storages.stored, key=lambda each: each.whole.device != on)
        self._stored = {each.name: each for each in ordered}
        self._kept = {each.name for each in ordered if self._is_private(each, on)}

    def _spread(self, graph: Graph) -> None:
        """Makes the parts of a private subclass private."""
        for leaf in graph.leaves:
            if leaf.parts and not self._private.isdisjoint(leaf.names):
                self._private |= {graph.leaves[part].name for part in leaf.parts.values()}

    def _is_private(self, stored: Stored, device: torch.device) -> bool:
        return stored.whole.device != device or any(
            leaf.is_written or not self._private.isdisjoint(leaf.names) for leaf in stored.leaves
        )

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._stored[name].whole

    def __setitem__(self, name: str, memory: torch.Tensor) -> None:
        if name in self._kept:
            return
        stored = self._stored[name]
        for leaf in stored.leaves:
            tensor = leaf.tensor
            dtype, shape, strides = tensor.dtype, tensor.size(), tensor.stride()
            view = view_of(memory, dtype, shape, strides, self.view(leaf).offset)
            aliases.give(tensor, view)
        stored.whole = memory  # its old memory is freed

    def __delitem__(self, name: str) -> None:
        raise TypeError("what is to be published stays")

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def view(self, leaf: Leaf) -> View:
        return self._views[self._positions[id(leaf)]]

    def moved(self) -> Iterator[tuple[Stored, bool]]:
        """Everything that is stored, and whether it is shared now."""
        return ((each, name not in self._kept) for name, each in self._stored.items())

    def written(self) -> Iterator[str]:
        """Why some tensors can't be shared."""
        shared = {id(leaf.tensor) for each, moves in self.moved() if moves for leaf in each.leaves}
        modules = [(node.name + "." * bool(node.name), node.owner) for node in self._graph.nodes]
        for place in places(modules[: self._graph.modules]):
            if id(place.tensor) in shared and (problem := guards.never_shared(place)):
                yield problem


def _leave(mapping: Attached, model: nn.Module, taken: _Taken, guard: bool) -> None:
    """When everything has its memory: gives shared tensors their guard, and remembers them."""
    lying: list[Lying] = []
    for stored, shared in taken.moved():
        for leaf in stored.leaves:
            seen = _seen(leaf.tensor, taken.view(leaf).offset)
            lying.append(Lying(leaf.tensor, leaf.name, stored.name, seen, not shared))
            if shared:
                _guard(leaf, guard and leaf.name not in taken.parts)
    found = places(modules_of(model))
    remember(mapping, lying, found, [s.whole for s, shared in taken.moved() if shared])
    handle = registry.handle_of(mapping)
    counters.follow(handle, [leaf.tensor for each, s in taken.moved() if s for leaf in each.leaves])
    init.allow_calls(module for _, module in modules_of(model))
    if guard:
        guards.watch(found)


def _guard(leaf: Leaf, guard: bool) -> None:
    tensor: Any = leaf.tensor
    kind = plain_class(tensor)
    tensor.__class__ = kind
    tensor.requires_grad_(False)
    if guard:
        tensor.__class__ = guards.shared_class(kind)


def _seen(tensor: torch.Tensor, offset: int) -> registry.Seen:
    return registry.Seen(tensor.dtype, tuple(tensor.size()), tensor.stride(), offset)


class Lying(NamedTuple):
    """A tensor of the module that lies in one of the version's, or is a private copy of it.
    stored: the name of the version's tensor."""

    tensor: torch.Tensor
    name: str
    stored: str
    seen: registry.Seen
    private: bool


def remember(
    mapping: Attached,
    lying: Iterable[Lying],
    found: Iterable[Place],
    shared: Sequence[torch.Tensor],
) -> None:
    """Remembers for mapping_of, check and switch what was bound. found: the parameters and buffers
    of the module. shared: tensors of the mapping, in whose storages the module's tensors lie: these
    keep the lease."""
    where = mapping.state_dict()
    rest = {id(each.tensor): each for each in lying}
    bindings: list[registry.Binding] = []
    for place in found:
        if each := rest.pop(id(place.tensor), None):
            at, private = where[each.stored], each.private
            span = at.data_ptr(), at.nbytes
            bindings.append(registry.Binding(place, each.stored, private, *span, each.seen))
    registry.remember(mapping, bindings)
    own = [each for each in rest.values() if each.private]
    copies = [(each.tensor, each.stored, each.name, each.seen) for each in own]
    registry.remember_copies(mapping, copies)
    registry.keep(mapping, shared)
    _switched.remember(registry.handle_of(mapping))
