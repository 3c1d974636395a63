"""The record of an image: a file of the version, in JSON, that describes the module."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import errors
from .._c.handle import TensorInfo
from .._mapping import Mapping as Attached
from .._torch import extents, registry
from . import contents, of_classes, values
from .graph import Graph, Leaf
from .kinds import SIMPLE
from .nodes import Held, Node
from .shells import configs_of
from .slots import ATTRIBUTE, CALL, CELL, DATA, DEFAULT, INTERNAL, ITEM, KEY, NAMED, VALUE
from .storages import Storages

FILE = "gpuwm.image.json"
SCHEMA = 1
# The bytes that all files of a version may have together (INDEX_FILES_BYTES_MAX).
FILES_BYTES = 32 << 20
# The kinds of nodes, and the kinds of slots that each may have.
_KINDS: dict[Any, frozenset[str]] = {
    "module": NAMED,
    "object": frozenset((ATTRIBUTE,)),
    "tensor": frozenset((ATTRIBUTE,)),
    "dict": frozenset((ITEM, KEY, VALUE, ATTRIBUTE)),
    "set": frozenset((KEY, ATTRIBUTE)),
    "frozenset": frozenset((KEY, ATTRIBUTE)),
    "deque": frozenset((ITEM, CALL, ATTRIBUTE)),
    "array": frozenset((DATA,)),
    "list": frozenset((ITEM, ATTRIBUTE)),
    "tuple": frozenset((ITEM, ATTRIBUTE)),
    "partial": frozenset((CALL, ATTRIBUTE)),
    "method": frozenset((CALL,)),
    "function": frozenset((CELL, DEFAULT, ATTRIBUTE)),
}
_SLOT_KINDS = frozenset((*NAMED, ITEM, KEY, VALUE, DATA, CELL, DEFAULT, CALL))
# Whose slots are counted, and how: see `_is_in_order`.
_COUNTED = frozenset(("list", "tuple", "deque", "dict", "set", "frozenset", "array"))
# Subclasses of tensors whose parts are such subclasses too: how deep, and how many in one.
_PARTS_DEEP = 32
_PARTS_IN_ONE = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor object of the published module.

    - names, is_written: see `graph.Leaf`. A tensor that is written into is a copy in each process.
    - said: its class.
    - on_cpu: it was on the CPU, though the version is on a GPU.
    - stored, offset: where its bytes are: the name of the version's tensor (None: it has no bytes),
      and the bytes from its begin.
    - parts, context, is_parameter: of a subclass that flattens, which has no bytes of its own.
    """

    names: tuple[str, ...]
    said: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    on_cpu: bool
    is_written: bool
    stored: str | None
    offset: int
    attributes: int | None
    parts: Mapping[str, int] | None
    context: values.Json
    is_parameter: bool

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def seen(self) -> registry.Seen:
        return registry.Seen(self.dtype, self.shape, self.strides, self.offset)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """nodes, modules: see `graph.Graph`. configs: see `shells`. class_tensors: see `of_classes`.
    contents: what is in objects of which the record has only a name, by path (see `contents`)."""

    opaque: tuple[str, ...]
    ignored: tuple[str, ...]
    modules: int
    nodes: Sequence[Node]
    tensors: Sequence[Tensor]
    configs: Mapping[str, values.Json]
    class_tensors: Mapping[str, str]
    contents: Mapping[str, contents.Content]


# ---- writing -----------------------------------------------------------------------------------


def written(graph: Graph, storages: Storages) -> bytes:
    """The text of a record. Raises Unsupported if it is larger than a version's files may be."""
    classes: dict[str, int] = {}
    nodes = [
        [
            *(node.name, node.kind, classes.setdefault(node.said, len(classes))),
            [[kind, values.encoded(key), held] for kind, key, held in node.slots],
        ]
        for node in graph.nodes
    ]
    tensors = [
        _row(leaf, storages, position, classes) for position, leaf in enumerate(graph.leaves)
    ]
    content = {
        "schema": SCHEMA,
        "opaque": list(graph.opaque.globs),
        "ignored": list(graph.ignored.globs),
        "modules": graph.modules,
        "stored": [stored.name for stored in storages.stored],
        "classes": list(classes),
        "nodes": nodes,
        "tensors": tensors,
    }
    if configs := configs_of(graph.nodes[: graph.modules]):
        content["configs"] = configs
    if class_tensors := of_classes.described(graph.tree, graph.ignored):
        content["class_tensors"] = class_tensors
    said = {path: contents.of(value) for path, value in graph.named.items()}
    if said := {path: each for path, each in said.items() if each is not None}:
        content["contents"] = said
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > FILES_BYTES:
        raise errors.Unsupported(
            f"the record of the module has {len(text)} bytes, and all files of a version may have "
            f"{FILES_BYTES}; most of it is {_largest(graph)}",
            "name the classes that are none of the model's state: opaque=[…]",
        )
    return text


def _largest(graph: Graph) -> str:
    said = max(graph.nodes, key=lambda node: len(node.slots))
    return f"{said.name}, a {said.said} with {len(said.slots)} values"


def _row(
    leaf: Leaf, storages: Storages, position: int, classes: dict[str, int]
) -> dict[str, values.Json]:
    tensor = leaf.tensor
    row: dict[str, values.Json] = {
        "names": leaf.names,
        "class": classes.setdefault(leaf.said, len(classes)),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.size()),
        "strides": list(tensor.stride()),
    }
    if storages.device.type != "cpu" == tensor.device.type:
        row["cpu"] = True
    if leaf.is_written:
        row["written"] = True
    if leaf.attributes is not None:
        row["attributes"] = leaf.attributes
    if leaf.parts is not None:
        row["parts"] = leaf.parts
        # torch marks a parameter of a subclass by an attribute
        if isinstance(tensor, torch.nn.Parameter):
            row["parameter"] = True
        if leaf.context is not values.NOT_PLAIN:
            row["context"] = leaf.context
    else:
        row["in"], row["at"] = storages.views[position]
    return row


# ---- reading -----------------------------------------------------------------------------------


def read(mapping: Attached) -> Record:
    """The record of a version that is attached. Raises Invalid if the version is not an image, or
    only a part of it is attached; Unsupported if a newer gpuwm wrote it, or this torch lacks one of
    its dtypes; Damaged if it is not a valid record, or does not fit the version's tensors."""
    try:
        text = mapping.files[FILE]
    except KeyError:
        raise errors.Invalid(
            f"{mapping.version} is no module image: it has no file {FILE}",
            "make one with gpuwm.image.publish; Mapping.bind takes versions of plain tensors",
        ) from None
    infos = mapping.infos()
    if len(infos) != len(mapping._held().table().infos):
        raise errors.Invalid(
            f"only some tensors of {mapping.version} are attached, and an image needs all",
            "attach it without layers= and glob=",
        )
    return parsed(str(mapping.version), text, infos)


def parsed(version: str, text: bytes, infos: Sequence[TensorInfo]) -> Record:
    """Parses the record of a version that has these tensors. version: its name, for the errors,
    which are those of `read`."""
    try:
        try:
            return _Reader(version, text, infos).record
        except RecursionError:
            raise _Wrong("a value in it is nested too deeply") from None
    except _Wrong as error:
        raise errors.Damaged(
            f"the record of {version} ({FILE}) is damaged: {error}",
            "publish the image anew, under another tag",
        ) from None


class _Wrong(Exception):
    """A record says something that no record may say."""


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise _Wrong(what)


class _Reader:
    def __init__(self, version: str, text: bytes, infos: Sequence[TensorInfo]) -> None:
        self._version = version
        self._sizes = {info.name: info.nbytes for info in infos}
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _Wrong(f"it is no JSON: {error}") from None
        _demand(isinstance(content, dict), "it is no object of JSON")
        self._check_schema(content.get("schema"))
        self._classes = self._list(content, "classes", str)
        self._stored = self._list(content, "stored", str)
        for name in self._stored:
            _demand(name in self._sizes, f"it names tensor {name}, and the version has none")
        rows = self._list(content, "nodes", list)
        self._tensor_rows = self._list(content, "tensors", dict)
        self._node_count = len(rows)
        nodes = [self._node(row) for row in rows]
        tensors = [self._tensor(row) for row in self._tensor_rows]
        _refuse_cycles(tensors)
        modules = content.get("modules")
        _demand(type(modules) is int and 0 < modules <= len(nodes), f"{modules!r} modules")
        _demand(
            all(node.kind == "module" for node in nodes[:modules]),
            "a module that is said to be none",
        )
        opaque = tuple(self._list(content, "opaque", str))
        ignored = tuple(self._list(content, "ignored", str))
        configs = _configs(content.get("configs", {}))
        class_tensors = _texts(content.get("class_tensors", {}))
        said = _contents(content.get("contents", {}))
        self.record = Record(
            *(opaque, ignored, modules, nodes, tensors, configs, class_tensors, said)
        )

    def _check_schema(self, schema: Any) -> None:
        _demand(type(schema) is int and schema > 0, f"its schema is {schema!r}")
        if schema > SCHEMA:
            raise errors.Unsupported(
                f"{self._version} is an image of schema {schema}, and this gpuwm reads schema "
                f"{SCHEMA}",
                "install a newer gpuwm here, or publish the image with this one",
            )

    @staticmethod
    def _list(content: dict[str, Any], key: str, kind: type) -> list[Any]:
        found = content.get(key)
        _demand(
            isinstance(found, list) and all(type(each) is kind for each in found),
            f"{key} is no list of the kind {kind.__name__}",
        )
        return found  # type: ignore[return-value]

    # ---- nodes ----

    def _node(self, row: list[Any]) -> Node:
        _demand(len(row) == 4, f"node {row!r:.80}")
        name, kind, said, slots = row
        _demand(
            type(name) is str and type(kind) is str and kind in _KINDS and type(slots) is list,
            f"node {row!r:.80}",
        )
        found = Node(
            name,
            kind,
            self._class(said),
            [slot if self._is_simple(slot) else self._slot(name, slot) for slot in slots],
        )
        _demand(
            all(slot[0] in _KINDS[kind] for slot in slots), f"{name or 'the module'} is no {kind}"
        )
        if kind == "module":
            _demand(
                INTERNAL.isdisjoint(slot[1] for slot in found.slots),
                f"{name or 'the module'} has what torch keeps for itself",
            )
        elif kind in _COUNTED or kind in ("partial", "method"):
            _demand(_is_in_order(found), f"what the {kind} {name} has is not in order")
        return found

    def _is_simple(self, slot: Any) -> bool:
        """Whether a slot's text has a key and a simple value or a node, as most have."""
        if type(slot) is not list or len(slot) != 3:
            return False
        kind, key, held = slot
        if type(kind) is not str or kind not in _SLOT_KINDS or type(key) is not str:
            return False
        if type(held) is dict and len(held) == 1:
            node = held.get("node")
            return type(node) is int and 0 <= node < self._node_count
        return type(held) in SIMPLE

    def _class(self, position: Any) -> str:
        _demand(type(position) is int and 0 <= position < len(self._classes), f"class {position!r}")
        found: str = self._classes[position]
        return found

    def _slot(self, name: str, slot: Any) -> tuple[str, Any, Held]:
        _demand(
            type(slot) is list
            and len(slot) == 3
            and type(slot[0]) is str
            and slot[0] in _SLOT_KINDS,
            f"slot of {name}",
        )
        kind, key, held = slot
        _demand(kind not in NAMED or type(key) is str, f"key {key!r} of {name}")
        _demand(type(held) in SIMPLE or isinstance(held, dict), f"value {held!r:.80} of {name}")
        if isinstance(held, dict):
            self._check_held(name, held)
        if type(key) is str:
            return kind, key, held
        try:
            key = values.decoded(key)
            hash(key)
        except (ValueError, LookupError, TypeError) as error:
            raise _Wrong(f"key {key!r} of {name}: {error}") from None
        return kind, key, held

    def _check_held(self, name: str, held: dict[str, Any]) -> None:
        _demand(len(held) == 1, f"value {held!r:.80} of {name}")
        ((kind, content),) = held.items()
        if kind in ("node", "tensor"):
            count = self._node_count if kind == "node" else len(self._tensor_rows)
            _demand(type(content) is int and 0 <= content < count, f"{kind} {content!r} of {name}")
        elif kind == "other":
            _demand(type(content) is str, f"value {held!r:.80} of {name}")
        else:
            try:
                values.decoded(held)
            # an enum that is not imported here; it is reported where it is needed
            except LookupError:
                pass
            except ValueError as error:
                raise _Wrong(f"value of {name}: {error}") from None

    # ---- tensors ----

    def _tensor(self, row: dict[str, Any]) -> Tensor:
        names = self._list(row, "names", str)
        _demand(bool(names), "a tensor without a name")
        name = names[0]
        try:
            dtype = values.dtype_named(row.get("dtype"))
        except ValueError as error:
            raise errors.Unsupported(
                f"tensor {name} of {self._version}: {error}", "install a torch that has it"
            ) from None
        shape, strides = self._list(row, "shape", int), self._list(row, "strides", int)
        _demand(
            len(shape) == len(strides) and all(n >= 0 for n in (*shape, *strides)),
            f"tensor {name} has the shape {shape} and the strides {strides}",
        )
        attributes, parts = row.get("attributes"), row.get("parts")
        _demand(
            attributes is None or (type(attributes) is int and 0 <= attributes < self._node_count),
            f"attributes of tensor {name}",
        )
        stored: str | None = None
        offset = 0
        if parts is not None:
            self._check_parts(name, parts)
        else:
            stored, offset = self._place(name, row, dtype, shape, strides)
        return Tensor(
            names=tuple(names),
            said=self._class(row.get("class")),
            dtype=dtype,
            shape=tuple(shape),
            strides=tuple(strides),
            on_cpu=bool(row.get("cpu")),
            is_written=bool(row.get("written")),
            stored=stored,
            offset=offset,
            attributes=attributes,
            parts=parts,
            context=row.get("context", values.NOT_PLAIN),
            is_parameter=bool(row.get("parameter")),
        )

    def _check_parts(self, name: str, parts: Any) -> None:
        _demand(
            isinstance(parts, dict)
            and all(type(p) is int and 0 <= p < len(self._tensor_rows) for p in parts.values()),
            f"parts of tensor {name}",
        )

    def _place(
        self,
        name: str,
        row: dict[str, Any],
        dtype: torch.dtype,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> tuple[str | None, int]:
        stored: Any = row.get("in")
        offset: Any = row.get("at")
        _demand(type(offset) is int and offset >= 0, f"tensor {name} begins at {offset!r} bytes")
        if stored is None:
            _demand(0 in shape, f"tensor {name} lies nowhere")
            return None, 0
        _demand(
            type(stored) is int and 0 <= stored < len(self._stored),
            f"tensor {name} lies in tensor {stored!r} of {len(self._stored)}",
        )
        within: str = self._stored[stored]
        item, there = dtype.itemsize, self._sizes[within]
        span = extents.span(shape, strides)
        _demand(
            0 not in shape and offset % item == 0 and offset + span * item <= there,
            f"tensor {name} needs bytes {offset} to {offset + span * item} of {within}, which has "
            f"{there} bytes, and has to begin at a multiple of {item}",
        )
        return within, offset


def _is_in_order(node: Node) -> bool:
    """Whether the slots that have no names are counted from 0, and none is missing."""
    counted = [(kind, key) for kind, key, _ in node.slots if kind != ATTRIBUTE]
    if node.kind in ("dict", "set", "frozenset"):
        keyed = [slot for slot in counted if slot[0] != ITEM]
        each = (KEY, VALUE) if node.kind == "dict" else (KEY,)
        return keyed == [(kind, at) for at in range(len(keyed) // len(each)) for kind in each]
    keys = [key for _, key in counted]
    if node.kind == "array":
        held = node.slots[0][2] if keys == [""] else None
        return isinstance(held, dict) and "array" in held
    if node.kind == "deque":
        is_made, keys = counted[-1:] == [(CALL, "maxlen")], keys[:-1]
        length = node.slots[len(keys)][2] if is_made else -1
        if length is not None and not (type(length) is int and length >= len(keys)):
            return False
    if node.kind == "method":
        return keys == ["__self__", "__func__"]
    if node.kind == "partial":
        has_function, keys = keys[:1] == ["func"], [key for key in keys if type(key) is not str]
        return has_function and keys == list(range(len(keys)))
    return keys == list(range(len(keys)))


def _configs(content: Any) -> Mapping[str, values.Json]:
    _demand(isinstance(content, dict), "its configurations are no object of JSON")
    for name, saved in content.items():
        _demand(
            isinstance(saved, dict)
            and type(saved.get("class")) is str
            and isinstance(saved.get("fields"), dict)
            and type(saved.get("attention")) in (str, type(None)),
            f"the configuration of {name!r}",
        )
    found: Mapping[str, values.Json] = content
    return found


def _texts(content: Any) -> Mapping[str, str]:
    _demand(
        isinstance(content, dict) and all(type(text) is str for text in content.values()),
        "what it says of tensors on classes",
    )
    found: Mapping[str, str] = content
    return found


def _contents(content: Any) -> Mapping[str, contents.Content]:
    _demand(
        isinstance(content, dict) and all(isinstance(each, dict) for each in content.values()),
        "what it says of objects",
    )
    values.types_of(content)  # as deep as a comparison goes: RecursionError comes here
    found: Mapping[str, contents.Content] = content
    return found


def _refuse_cycles(tensors: Sequence[Tensor]) -> None:
    """Refuses a subclass that is one of its own parts, or that has no end for practical purposes:
    each of its parts may be there more than once."""
    counts: dict[int, int] = {}  # of the parts of each, and of their parts

    def look(position: int, above: frozenset[int]) -> int:
        name = tensors[position].name
        _demand(position not in above, f"tensor {name} is a part of itself")
        _demand(len(above) <= _PARTS_DEEP, f"tensor {name} is a part {len(above)} times over")
        if position not in counts:
            parts = (tensors[position].parts or {}).values()
            counts[position] = 1 + sum(look(part, above | {position}) for part in parts)
            _demand(
                counts[position] <= _PARTS_IN_ONE, f"tensor {name} has {counts[position]} parts"
            )
        return counts[position]

    for position in range(len(tensors)):
        look(position, frozenset())
