"""The pickle of a message: its tensors are tokens of chunks, or bytes."""

from __future__ import annotations

import collections
import copyreg
import ctypes
import io
import pickle
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from .. import errors
from . import frameworks, layouts
from ._wrap import release_all
from .chunks import Chunk
from .layouts import Layout
from .refs import TOKEN_BYTES, ChunkRef, How, TensorRef, received
from .send import Sending

# The names of functions that a receiver replaces: they need the message.
_AT, _OPENED_AT = "at", "opened_at"

TOKENS_MAX = 1024  # of a message, as the library has it


class Written(NamedTuple):
    """A message to be put: its bytes, and the tokens of its chunks."""

    data: bytes
    tokens: bytes
    token_count: int


def dumps(value: Any, sending: Sending, most: int) -> Written:
    """Pickles a value, as multiprocessing does. Tensors go into the pools of `sending`. most: the
    bytes that a message may have. Nothing is taken from the pools if it has more."""
    data, refs = _collected(value, sending, most)
    try:
        sending.put()
    except BaseException:
        sending.withdraw()
        raise
    return _written(data, refs)


async def adumps(value: Any, sending: Sending, most: int) -> Written:
    """Does the same for asyncio."""
    data, refs = _collected(value, sending, most)
    try:
        await sending.aput()
    except BaseException:
        sending.withdraw()
        raise
    return _written(data, refs)


def _collected(value: Any, sending: Sending, most: int) -> tuple[bytes, list[ChunkRef]]:
    file = io.BytesIO()
    pickler = _Pickler(file, sending)
    pickler.dump(value)
    data, count = file.getvalue(), len(pickler.refs)
    if count > TOKENS_MAX:
        raise errors.TooLarge(
            f"a message can't have {count:,} tensors in pools", f"at most {TOKENS_MAX:,}"
        )
    if len(data) + count * TOKEN_BYTES > most:
        raise errors.TooLarge(
            f"a message with {len(data)} bytes and {count} tokens of {TOKEN_BYTES} bytes has no "
            f"room in an item of {most}",
            "make a queue with larger items, or put large data into a pool",
        )
    return data, pickler.refs


def _written(data: bytes, refs: list[ChunkRef]) -> Written:
    return Written(data, b"".join(ref.token for ref in refs), len(refs))


# multiprocessing's reducers. ForkingPickler copies both tables for each of its objects, which takes
# longer than the rest.
_REDUCERS = collections.ChainMap[Any, Any](
    ForkingPickler._extra_reducers,  # type: ignore[attr-defined]
    copyreg.dispatch_table,
)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, sending: Sending) -> None:
        super().__init__(file, 5)
        self.dispatch_table = _REDUCERS
        self._sending = sending
        self.refs: list[ChunkRef] = []  # of the message; new ones have no tokens yet
        self._positions: dict[bytes, int] = {}  # of the tokens that were there before

    def reducer_override(self, value: Any) -> Any:
        if layouts.is_tensor(value):
            return self._tensor(value)
        if type(value) is ChunkRef:
            value.check_sendable()
            return at, (self._position_of(value), *value.described())
        layout = frameworks.layout_of(value)
        ref = self._sending.add(layout, value, "pool") if layout else None
        # An array without a pool is bytes.
        return NotImplemented if ref is None else self._new(ref)

    def _position_of(self, ref: ChunkRef) -> int:
        position = self._positions.setdefault(ref.token, len(self.refs))
        if position == len(self.refs):
            self.refs.append(ref)
        return position

    def _new(self, ref: ChunkRef) -> Any:
        self.refs.append(ref)
        return opened_at, (len(self.refs) - 1, *ref.described())

    def _tensor(self, tensor: Any) -> Any:
        """Tensors that lie in a version are references to it. Others go into a pool, or are bytes.
        What is not plain data goes torch's way."""
        of_torch = frameworks.of_torch()
        layout = of_torch.layout(tensor)
        if layout is None:
            of_torch.check_kind(tensor)
        if layout is None or of_torch.is_in_version(tensor):
            return NotImplemented
        is_parameter = of_torch.is_parameter(tensor)
        if tensor.requires_grad or is_parameter:
            of_torch.check_leaf(tensor)
            return _with_gradients, (tensor.detach(), is_parameter, tensor.requires_grad)
        ref = self._sending.add(layout, tensor, "pool")
        if ref is None:
            data = of_torch.to_bytes(tensor, layout)
            return _from_bytes, (data, tuple(layout), str(tensor.device))
        return self._new(ref)


# ---- the receiver's ----------------------------------------------------------------------------


class Message:
    """A message that this process got: its bytes, and its chunks, which it has taken."""

    def __init__(self, data: bytes, tokens: list[bytes], chunks: list[Chunk | None]) -> None:
        self._data = data
        self._tokens = tokens
        self._chunks = chunks
        self._refs: list[TensorRef] = []

    def loads(self, device: Any, how: How) -> Any:
        """Unpickles it. If that fails, its chunks are given back."""
        self._device, self._how = device, how
        unpickler = _Unpickler(io.BytesIO(self._data), {_AT: self._at, _OPENED_AT: self._opened})
        try:
            return unpickler.load()
        except BaseException:
            release_all(self._refs)
            # The traceback keeps this object, and the unpickler has what was opened.
            self._chunks.clear()
            del unpickler
            raise

    def _at(self, position: int, *described: Any) -> ChunkRef:
        ref = received(self._tokens[position], *described)
        ref.came(self._chunks[position])
        self._refs.append(ref)
        return ref

    def _opened(self, position: int, *described: Any) -> Any:
        return self._at(position, *described).open(self._device, self._how)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, own: dict[str, Callable[..., Any]]) -> None:
        super().__init__(file)
        self._own = own

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in self._own:
            return self._own[name]
        return super().find_class(module, name)


def at(*_: Any) -> Any:
    """Stands in a pickle for the reference with a chunk of the message."""
    raise errors.Invalid("only gpuwm.Queue can read its messages")


def opened_at(*_: Any) -> Any:
    """Stands in a pickle for the tensor in a chunk of the message."""
    raise errors.Invalid("only gpuwm.Queue can read its messages")


def _from_bytes(data: bytes, layout: tuple[Any, ...], device: str) -> Any:
    return frameworks.of_torch().from_bytes(data, Layout(*layout)).to(device)


def _with_gradients(tensor: Any, is_parameter: bool, requires_grad: bool) -> Any:
    torch: Any = sys.modules["torch"]
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def taken(message: Any, region_of: Callable[[bytes], Any]) -> Message:
    """Takes the chunks out of a message of the library, which it frees."""
    there = message.contents
    count = there.chunk_count
    data = ctypes.string_at(there.data, there.bytes)
    if not count:
        return Message(data, [], [])
    joined = ctypes.string_at(there.tokens, count * TOKEN_BYTES)
    tokens = [joined[n * TOKEN_BYTES : (n + 1) * TOKEN_BYTES] for n in range(count)]
    pointers = (ctypes.c_void_p * count).from_address(there.chunks)
    chunks: list[Chunk | None] = []
    for n, token in enumerate(tokens):
        pointer = pointers[n]
        region = region_of(token) if pointer else None
        finish = region.library.gpuwm_chunk_finish if region else None
        chunks.append(Chunk(region, pointer, finish) if region and finish else None)
        pointers[n] = None
    return Message(data, tokens, chunks)
