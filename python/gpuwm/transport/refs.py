"""References to tensors that are passed to other processes."""

from __future__ import annotations

import abc
import contextlib
import ctypes
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from .. import errors
from .._c import abi_region, devices, lib, threads
from . import frameworks, regions
from .chunks import Chunk
from .layouts import Framework, Layout, framework_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from .._tensor import Ref

Mode = Literal["default", "share", "pool"]
How = Literal["view", "copy"]
MODES, _HOWS = get_args(Mode), get_args(How)

TOKEN_BYTES = ctypes.sizeof(abi_region.Token)


def checked_how(how: str, device: Any = None) -> None:
    """Raises what these arguments of `unwrap` and `Queue.get` are wrong in, before anything is
    taken."""
    lib.choice(how, "how", _HOWS)
    if not _means_cpu(device):
        frameworks.of_torch().device_of(device)


def _means_cpu(device: Any) -> bool:
    return devices.named(device) in (None, "host", "cpu")


class TensorRef(abc.ABC):
    """A tensor that one process passes to others: a few hundred bytes, for any pickle and channel.

    A process that gets it calls one of `view`, `copy`, `to` and `release`, once. Shape and strides
    count elements.

    - mode: how it travels. "default": by a copy in a pool on host; "pool": by a copy in a pool on
      its own device; "share": in a version of its own.
    - device: where it lies, "host" or the UUID of a GPU. source: where the sender had it.
    - dtype: its name in torch and NumPy.
    - framework: "torch" or "numpy", of what was sent.
    """

    mode: Mode
    device: str
    source: str
    layout: Layout

    @property
    def dtype(self) -> str:
        return self.layout.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.layout.strides

    @property
    def nbytes(self) -> int:
        return self.layout.nbytes

    @property
    def framework(self) -> Framework:
        return self.layout.framework

    @overload
    def view(self, framework: Literal["torch"]) -> Tensor: ...

    @overload
    def view(self, framework: Literal["numpy"]) -> NDArray[Any]: ...

    @overload
    def view(self, framework: Framework | None = None) -> Tensor | NDArray[Any]: ...

    def view(self, framework: Framework | None = None) -> Any:
        """The tensor in place, without a copy. It is read-only: a write into it ends the process
        (host) or its CUDA context; an array of NumPy refuses the write. It keeps its memory until
        the last view of it is gone. On a GPU the memory is free again when the stream that was
        current here has passed all that was queued by then: let work on other streams end before.

        framework: "torch" or "numpy". None: what was sent.

        Raises Lost if the memory has another content now, Already if this process has taken it,
        and OwnerDied. Unsupported, if the framework has no such dtype or can't read the device, is
        raised before the tensor is taken.
        """
        return self._view(framework_of(framework, self.layout.framework))

    @abc.abstractmethod
    def _view(self, framework: Framework) -> Any: ...

    @abc.abstractmethod
    def copy(self, device: Any = None) -> Any:
        """A copy in memory of its own, made on the current stream, on `device` or where the tensor
        lies. The memory that is passed is free again when the copy is made. Raises as `view`, and
        before the tensor is taken Invalid, NoDevice, NoRoom for the copy, and Unsupported for an
        array of NumPy on a GPU."""

    @abc.abstractmethod
    def release(self) -> None:
        """Says that this process does not need it. Nothing happens if this process has taken it."""

    @abc.abstractmethod
    def withdraw(self) -> None:
        """Takes it back, in the process that sent it: readers that have not come get Lost."""

    def to(self, device: Any) -> Any:
        """The tensor in place if it lies on `device`, else a copy there. Raises as `copy`."""
        if self.framework == "numpy":
            _refuse_array_on(device)
            return self.view()
        target = frameworks.of_torch().device_of(device)
        if devices.on_cpu(self.device):
            is_there = target.type == "cpu"
        else:
            is_there = target.type == "cuda" and target.index == devices.ordinal(self.device)
        return self.view() if is_there else self.copy(target)

    def _target(self, device: Any) -> Any:
        """Where a copy for `device` is made, for torch."""
        of_torch = frameworks.of_torch()
        return of_torch.place_of(self.device) if device is None else of_torch.device_of(device)

    def open(self, device: Any, how: How) -> Any:
        """What `unwrap` makes of it. Arrays of NumPy stay on host."""
        device = None if self.framework == "numpy" else device
        if how == "copy":
            return self.copy(device)
        return self.view() if device is None else self.to(device)

    def __repr__(self) -> str:
        return (
            f"<gpuwm.TensorRef {self.dtype} {list(self.shape)} on {self.device}, mode {self.mode}>"
        )


class ChunkRef(TensorRef):
    """A tensor in a chunk of a pool. token: the bytes of the library's token."""

    mode: Mode
    device: str
    source: str

    def __init__(
        self,
        token: bytes,
        socket: str | None,
        layout: Layout,
        place: tuple[Mode, str, str],  # mode, device, source
    ) -> None:
        self.token = token
        self.socket = socket
        self.layout = layout
        self.mode, self.device, self.source = place
        self._chunk: Chunk | None = None  # if it came with a message of a queue
        self._taken = False
        self._lost = False

    def came(self, chunk: Chunk | None) -> None:
        """It came with a message of a queue, which has taken the chunk. None: the reference was out
        of date by then."""
        self._chunk = chunk
        self._lost = chunk is None

    def described(self) -> tuple[Any, ...]:
        """All but the token, for a message that has the token elsewhere."""
        return self.socket, tuple(self.layout), (self.mode, self.device, self.source)

    def __reduce__(self) -> Any:
        self.check_sendable()
        return received, (self.token, *self.described())

    def check_sendable(self) -> None:
        """Raises Already if this process has taken the chunk."""
        if self._taken or self._chunk is not None:
            raise errors.Already(
                "this process has taken the tensor, and can't pass it on",
                "send the tensor itself, or have the sender name more readers: others=2",
            )

    @property
    def region(self) -> regions.Region:
        return regions.of_reference(self.token[:16].hex(), self.socket)

    def _c_token(self) -> Any:
        return ctypes.byref(abi_region.Token.from_buffer_copy(self.token))

    # ---- reading ----

    def _view(self, framework: Framework) -> Any:
        self._check_place(framework)
        stream = self._stream()
        chunk = self._take(stream)
        try:
            return chunk.place(self.layout, framework)
        finally:
            _finish(chunk, stream)

    def _check_place(self, framework: Framework) -> None:
        """Raises Unsupported if the framework can't have the tensor."""
        if framework == "torch":
            frameworks.of_torch().check_dtype(self.layout)
            return
        if not devices.on_cpu(self.device):
            raise errors.Unsupported(
                f"the tensor lies on {self.device}, where NumPy can't read", "use torch"
            )
        frameworks.of_numpy().dtype_of(self.layout.dtype)

    def copy(self, device: Any = None) -> Any:
        self._check_fresh()
        self._check_place(self.framework)
        if self.framework == "numpy":
            _refuse_array_on(device)
            with self._reading() as chunk:
                return frameworks.of_numpy().copied(chunk.place(self.layout, "numpy"))
        of_torch = frameworks.of_torch()
        made = of_torch.room(self.layout, self._target(device))
        with self._reading() as chunk:
            return of_torch.copied(chunk.place(self.layout, "torch"), self.layout, made)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Chunk]:
        """Takes the chunk, and finishes with it behind what was queued in the block. An export that
        was made in the block keeps the chunk."""
        stream = self._stream()
        chunk = self._take(stream)
        try:
            yield chunk
        finally:
            _finish(chunk, stream)

    def _stream(self) -> int | None:
        if devices.on_cpu(self.device):
            return None
        found: int = frameworks.of_torch().stream(self.device)
        return found

    def _check_fresh(self) -> None:
        if self._taken:
            raise errors.Already("this reference was used already", "keep the tensor")
        if self._lost:
            raise errors.Lost("the tensor was withdrawn before its message came")

    def _take(self, stream: int | None) -> Chunk:
        """Takes the chunk, and waits for its bytes, or has the stream wait."""
        self._check_fresh()
        chunk = self._chunk
        if chunk is None:
            chunk = self._asked(stream)
        elif stream is None:
            _wait(chunk)
        else:
            chunk.call("gpuwm_chunk_wait_in_stream", stream)
        self._chunk = None
        self._taken = True
        return chunk

    def _asked(self, stream: int | None) -> Chunk:
        out = ctypes.c_void_p()
        region = self.region
        if stream is None:
            # On host a token is made when the bytes are there.
            region.call("gpuwm_chunk_take", self._c_token(), 0, ctypes.byref(out))
        else:
            region.call("gpuwm_chunk_take_in_stream", self._c_token(), stream, ctypes.byref(out))
        return Chunk(region, out.value or 0, region.library.gpuwm_chunk_finish)

    def release(self) -> None:
        if self._taken:
            return
        with contextlib.suppress(errors.Lost, errors.Already), self._reading():
            pass

    # ---- the sender's ----

    def withdraw(self) -> None:
        self.region.call("gpuwm_token_withdraw", self._c_token())

    def finished(self, wait: float | None = math.inf) -> None:
        """Waits until all readers have finished. Raises TimedOut."""
        milliseconds = lib.milliseconds(wait, "wait")
        region, token = self.region, self._c_token()
        threads.wait_for(lambda: region.call("gpuwm_token_finished", token, milliseconds))


def _refuse_array_on(device: Any) -> None:
    """Raises Unsupported if the device is no CPU."""
    if not _means_cpu(device):
        raise errors.Unsupported(
            f"an array of NumPy can't be on {device}", 'view("torch"), and copy that'
        )


def _finish(chunk: Chunk, stream: int | None) -> None:
    if stream is None:
        chunk.consume("gpuwm_chunk_finish")
    else:
        chunk.consume("gpuwm_chunk_finish_in_stream", stream)


def _wait(chunk: Chunk) -> None:
    try:
        chunk.call("gpuwm_chunk_wait", 0)  # they usually are there
    except errors.TimedOut:
        threads.wait_for(lambda: chunk.call("gpuwm_chunk_wait", -1))


def received(
    token: bytes,
    socket: str | None,
    layout: tuple[Any, ...],
    place: tuple[Mode, str, str],
) -> ChunkRef:
    """The reference that another process sent."""
    if len(token) != TOKEN_BYTES:
        raise errors.Invalid(f"a token has {TOKEN_BYTES:,} bytes, not {len(token):,}")
    return ChunkRef(token, socket, Layout(*layout), place)


class SharedRef(TensorRef):
    """A tensor in a version of its own, which is freed when no process has it any more. So the
    sender keeps this object until the receivers have opened theirs.

    keeps: the shared tensor, in the process that sent it.
    """

    mode: Mode = "share"
    device: str
    source: str

    def __init__(self, ref: Ref, layout: Layout, source: str, keeps: Any = None) -> None:
        self.ref = ref
        self.device = ref.device
        self.layout = layout
        self.source = source
        self._keeps = keeps

    def __reduce__(self) -> Any:
        return SharedRef, (self.ref, self.layout, self.source)

    def _view(self, framework: Framework) -> Any:
        found = self.ref.torch()
        return found.numpy() if framework == "numpy" else found

    def copy(self, device: Any = None) -> Any:
        of_torch = frameworks.of_torch()
        made = of_torch.room(self.layout, self._target(device))
        return of_torch.copied(self.view(), self.layout, made)

    def release(self) -> None:
        """Nothing: a reference holds nothing before it is opened."""

    def withdraw(self) -> None:
        self._keeps = None
