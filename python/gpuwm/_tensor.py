"""A tensor of a mapping, for NumPy, torch and every other consumer of DLPack, and a reference to it
for other processes of this machine."""

from __future__ import annotations

import builtins
import ctypes
import dataclasses
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from . import _needs, _received, errors
from ._c import abi, devices, dlpack, dtypes, faults, lib
from ._c.dtypes import DType
from ._c.handle import Handle, TensorInfo
from ._received import Origin, View

if TYPE_CHECKING:
    import numpy
    from torch import Tensor as TorchTensor

CPU, CUDA = 1, 2  # DLPack's device types

# The formats that a memoryview can be cast to.
_FORMATS = {
    "BOOL": "?",
    "U8": "B",
    "I8": "b",
    "U16": "H",
    "I16": "h",
    "U32": "I",
    "I32": "i",
    "U64": "Q",
    "I64": "q",
    "F32": "f",
    "F64": "d",
}


class Tensor:
    """A tensor in place: read-only, shared, not copied.

    What is made from it (`torch()`, `numpy()`, `memoryview()`, any DLPack consumer) keeps the
    memory and the lease for as long as it lives. shape and strides count elements. On a GPU only
    frameworks that can use the GPU can read it. After a `switch` of the mapping it is the new
    version's tensor.
    """

    __slots__ = ("_handle", "_kept", "_position", "_private", "info")

    def __init__(self, handle: Handle, position: int, private: bool) -> None:
        self._handle = handle
        self._position = position
        self._private = private  # writes go to copies of this process's own
        self._kept: Any = None  # an export that keeps the memory for those who got its address
        self.info: TensorInfo = handle.table().infos[position]

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def dtype(self) -> DType:
        """It equals its name in safetensors, "BF16", or in GGUF, "Q4_K"."""
        return dtypes.BY_NAME[self.info.dtype]

    @property
    def __numpy_dtype__(self) -> Any:
        return self.dtype.__numpy_dtype__

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in elements."""
        return self.info.strides

    @property
    def nbytes(self) -> int:
        return self.info.nbytes

    @property
    def device(self) -> str:
        """The name of its device: "host", or a UUID."""
        return self._handle.device

    def __repr__(self) -> str:
        return f"<gpuwm.Tensor {self.name}: {self.dtype} {list(self.shape)} on {self.device}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def _address(self) -> int:
        address: int | None = self._handle.table().array[self._position].data
        return address or 0

    # ---- other processes ----

    def ref(self) -> Ref:
        """A reference to it, which can be sent anywhere on this machine. Raises Unsupported if the
        mapping's writes are private: what was written would be missing."""
        if self._private:
            raise errors.Unsupported(
                f"tensor {self.name} may have been written here, where it is private",
                "send a copy, or attach without private writes",
            )
        where = self._handle.where
        return Ref(where.socket, where.id, where.label, where.device, where.rank, self.name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"gpuwm.Tensor {self.name} is a place in memory: pickle .torch() or .numpy() for its "
            "bytes, .ref() for a reference"
        )

    # ---- DLPack ----

    def _export(self, versioned: bool) -> tuple[Any, bool]:
        """A capsule, and whether it shows bytes since the tensor's dtype has no code. Memory and
        lease stay until the capsule, or its consumer, is gone. Raises Unsupported for the block
        types of GGUF."""
        return self._made(self._handle.tensor(self._position), versioned)

    def _export_bytes(self, versioned: bool = False) -> Any:
        """A capsule of its bytes as uint8: there is one for every dtype."""
        tensor = abi.Tensor.from_buffer_copy(self._handle.table().array[self._position])
        tensor.dtype, tensor.ndim = dtypes.BY_NAME["U8"].code, 1
        tensor.shape = (ctypes.c_uint64 * 1)(self.nbytes)
        tensor.strides = (ctypes.c_int64 * 1)(1)
        return self._made(ctypes.byref(tensor), versioned)[0]

    def _made(self, tensor: Any, versioned: bool) -> tuple[Any, bool]:
        faults.expect(self._handle)
        library = self._handle.library
        export = library.gpuwm_dlpack_versioned if versioned else library.gpuwm_dlpack
        out = ctypes.c_void_p()
        with self._handle.use() as pointer:
            shows_bytes = lib.check(export(pointer, tensor, ctypes.byref(out)))
        kind = dlpack.VERSIONED if versioned else dlpack.PLAIN
        return dlpack.capsule(out.value or 0, kind), bool(shows_bytes)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The producer of the array API. Nothing is queued that a stream would have to wait for, so
        `stream` is accepted and ignored. Raises BufferError if another device, or a copy, is asked
        for, and if the capsule can't say the dtype: fp8 and fp4 need a consumer that asks for
        DLPack 1.0 or later; fp6 and GGUF's block types have no capsule. `view_bytes()` has one for
        every dtype."""
        _check_request(self, dl_device, copy)
        versioned = _is_versioned(max_version)
        try:
            capsule, shows_bytes = self._export(versioned)
        except errors.Unsupported:
            shows_bytes = True
        if shows_bytes:
            which = "DLPack" if versioned else "DLPack without a version"
            raise BufferError(
                f"tensor {self.name} is {self.dtype} {list(self.shape)}, which {which} has no type "
                "for: view_bytes() has its bytes as uint8; torch() and numpy() give the tensor, if "
                "torch or NumPy has the dtype"
            )
        return capsule

    def view_bytes(self) -> Bytes:
        """Its bytes in place, for frameworks that lack its dtype."""
        return Bytes(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0) on host, (2, n) on a GPU, where n is this process's number of it."""
        if devices.on_cpu(self.device):
            return (CPU, 0)
        capsule = self._export_bytes()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
        managed = dlpack.Managed.from_address(pointer(capsule, dlpack.PLAIN))
        return (managed.tensor.device_type, managed.tensor.device_id)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. It exists only on a GPU, and for dtypes that it has a name for. Whoever uses
        the pointer must keep this tensor alive, which counts as a tensor that was made from the
        mapping."""
        row = self.dtype
        if devices.on_cpu(self.device) or row.numpy is None:
            why = "lies on host" if devices.on_cpu(self.device) else f"is {row}: use view_bytes()"
            raise AttributeError(f"no __cuda_array_interface__: tensor {self.name} {why}")
        kind = {"?": "b", "u": "u", "i": "i", "f": "f", "c": "c"}[row.numpy[0]]
        return self._interface(f"{'|' if row.nbytes == 1 else '<'}{kind}{row.nbytes}") | {
            "shape": self.shape,
            "strides": tuple(stride * row.nbytes for stride in self.strides),
        }

    def _interface(self, typestr: str) -> dict[str, Any]:
        """The CUDA array interface of its memory, without a shape."""
        self._kept = self._kept or self._export_bytes()
        address = (self._address(), True)
        return {"typestr": typestr, "data": address, "stream": None, "version": 3}

    # ---- host memory ----

    def memoryview(self) -> builtins.memoryview:
        """All bytes in the order of the memory: one dimension of format "B". It is read-only,
        unless the mapping's writes are private. Raises Unsupported if the tensor is on a GPU."""
        if not devices.on_cpu(self.device):
            raise errors.Unsupported(
                f"tensor {self.name} lies on {self.device}, where the CPU can't read",
                "tobytes() copies it",
            )
        if self.nbytes == 0:
            return builtins.memoryview(b"")
        array = (ctypes.c_ubyte * self.nbytes).from_address(self._address())
        array.export = self._export_bytes()  # type: ignore[attr-defined]
        view = builtins.memoryview(array).cast("B")
        return view if self._private else view.toreadonly()

    def __buffer__(self, flags: int) -> builtins.memoryview:
        """The buffer protocol (Python 3.12), with type and shape."""
        code = _FORMATS.get(self.info.dtype)
        if code is None or 0 in self.shape or not self.is_contiguous():
            raise BufferError(f"the buffer protocol can't say what tensor {self.name} is")
        cast: Any = self.memoryview().cast  # type checkers do not know its formats
        typed: builtins.memoryview = cast(code, list(self.shape))
        return typed

    def is_contiguous(self) -> bool:
        """Whether the tensor is dense, with the last dimension fastest."""
        return self.info.is_contiguous()

    def tobytes(self) -> bytes:
        """A copy of its bytes in the order of the memory, on host or on a GPU."""
        buffer = ctypes.create_string_buffer(max(self.nbytes, 1))
        handle = self._handle
        read = handle.library.gpuwm_tensor_read
        with handle.use() as pointer:
            lib.check(read(pointer, handle.tensor(self._position), 0, buffer, self.nbytes))
        return buffer.raw[: self.nbytes]

    # ---- frameworks ----

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """An array in place (host). BF16 and fp8 need the package ml_dtypes. Raises Unsupported if
        NumPy has no such dtype, or the tensor is on a GPU."""
        dtypes.need("numpy", self.name)
        import numpy

        dtype = dtypes.numpy_dtype(self.info.dtype, self.name)
        strides = [stride * dtype.itemsize for stride in self.strides] if self.nbytes else None
        array: numpy.ndarray[Any, Any] = numpy.ndarray(
            self.shape, dtype, buffer=self.memoryview(), strides=strides
        )
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        if dtype is not None and dtype != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def torch(self) -> TorchTensor:
        """A torch tensor in place, in a storage of its own that has the tensor's size. torch does
        not know read-only memory: a write into it ends the process (host; a line on stderr names
        the tensor) or its CUDA context. Raises Unsupported if this torch has no such dtype, or
        can't reach the device."""
        dtypes.need("torch", self.name)
        from ._torch import tensors

        return tensors.in_place(self._handle, [self._position], self._private)[0]


class Bytes:
    """The bytes of a tensor in place, in the order of the memory. Every framework takes them as
    uint8 in one dimension: by DLPack, on host also by numpy.asarray, on a GPU also by the CUDA
    array interface."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __repr__(self) -> str:
        return f"<gpuwm.Bytes of {self._tensor!r}>"

    def __len__(self) -> int:
        return self._tensor.nbytes

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """As Tensor.__dlpack__."""
        _check_request(self._tensor, dl_device, copy)
        return self._tensor._export_bytes(_is_versioned(max_version))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """As Tensor.__cuda_array_interface__. It exists only on a GPU."""
        if devices.on_cpu(self._tensor.device):
            raise AttributeError(
                f"no __cuda_array_interface__: tensor {self._tensor.name} lies on host"
            )
        return self._tensor._interface("|u1") | {"shape": (len(self),), "strides": (1,)}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy

        array = numpy.frombuffer(self._tensor.memoryview(), numpy.uint8)
        if dtype is not None and dtype != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array


def _is_versioned(max_version: tuple[int, int] | None) -> bool:
    """Whether the consumer of a DLPack capsule asks for one with a version."""
    return max_version is not None and max_version[0] >= 1


def _check_request(tensor: Tensor, dl_device: tuple[int, int] | None, copy: bool | None) -> None:
    if copy:
        raise BufferError(f"tensor {tensor.name} is exported where it lies: copy what you get")
    if dl_device is not None and tuple(dl_device) != tensor.__dlpack_device__():
        raise BufferError(
            f"tensor {tensor.name} lies on DLPack device {tensor.__dlpack_device__()}, "
            f"not {tuple(dl_device)}: copy what you get"
        )


class Slice:
    """The result of get_slice, as in safetensors: an index gives a view of the tensor, without a
    copy."""

    def __init__(self, tensor: Tensor, framework: str) -> None:
        self._tensor = tensor
        self._framework = framework

    def __repr__(self) -> str:
        return f"<gpuwm.Slice of {self._tensor!r}>"

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return self._tensor.info.dtype

    def __getitem__(self, index: Any) -> Any:
        tensor, given = self._tensor, index if isinstance(index, tuple) else (index,)
        reaches_last = len(given) >= len(tensor.shape) or any(each is ... for each in given)
        if tensor.info.dtype == "F4" and reaches_last:
            raise errors.Unsupported(
                f"the last dimension of tensor {tensor.name} has elements of F4, and torch has "
                "pairs of them",
                "index torch(), and count pairs",
            )
        whole: Any = tensor.torch() if self._framework == "pt" else tensor.numpy()
        return whole[index]


def slice_of(tensor: Tensor, framework: str) -> Slice:
    names = {"pt": "pt", "torch": "pt", "np": "np", "numpy": "np"}
    lib.choice(framework, "framework", names)
    return Slice(tensor, names[framework])


# ---- other processes ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Ref:
    """A reference to a tensor of a version, or to a view of one: a few hundred bytes, for any
    pickle and any channel.

    It holds nothing. Whoever opens it gets a lease of its own, as often as it likes, as long as the
    version is there.

    - socket: of gpuwmd. None: the one that is found without a path.
    - version: its id. label: "model@tag".
    """

    socket: str | None
    version: str
    label: str
    device: str
    rank: int
    name: str
    view: View | None = None

    def open(self) -> Tensor:
        """The whole tensor, in place. Raises NotFound if the version is gone, NoDevice, and all
        other errors of `attach`."""
        handle = _received.handle_of(_received.received(self._origin()))
        return Tensor(handle, handle.table().positions[self.name], False)

    def torch(self) -> TorchTensor:
        """The tensor, or the view of it, in place."""
        _needs.torch("Ref.torch")
        from ._torch import tensors

        return tensors.rebuilt(self._origin())

    def _origin(self) -> Origin:
        return Origin(
            self.socket, self.version, self.label, self.device, self.rank, self.name, self.view
        )


def _reduce_tensor(tensor: Tensor) -> tuple[Callable[[Ref], Tensor], tuple[Ref]]:
    return Ref.open, (tensor.ref(),)


ForkingPickler.register(Tensor, _reduce_tensor)
