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
    def dtype(self) -> str:
        """Its name in safetensors: "BF16", or in GGUF: "Q4_K"."""
        return self.info.dtype

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

    def _export(self, versioned: bool = False) -> Any:
        """Makes a capsule. Memory and lease stay until the capsule, or its consumer, is gone."""
        handle = self._handle
        tensor, library = handle.tensor(self._position), handle.library
        if versioned:
            return self._made(library.gpuwm_dlpack_versioned, tensor, dlpack.VERSIONED)
        return self._made(library.gpuwm_dlpack, tensor, dlpack.PLAIN)

    def _export_bytes(self) -> Any:
        """A capsule of its bytes as uint8: there is one for every dtype."""
        tensor = abi.Tensor.from_buffer_copy(self._handle.table().array[self._position])
        tensor.dtype, tensor.ndim = dtypes.BY_NAME["U8"].code, 1
        tensor.shape = (ctypes.c_uint64 * 1)(self.nbytes)
        tensor.strides = (ctypes.c_int64 * 1)(1)
        return self._made(self._handle.library.gpuwm_dlpack, ctypes.byref(tensor), dlpack.PLAIN)

    def _made(self, export: Any, tensor: Any, kind: bytes) -> Any:
        faults.expect(self._handle)
        out = ctypes.c_void_p()
        with self._handle.use() as pointer:
            lib.check(export(pointer, tensor, ctypes.byref(out)))
        return dlpack.capsule(out.value or 0, kind)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The producer of the array API. Nothing is queued that a stream would have to wait for, so
        `stream` is accepted and ignored. fp8 is exported as bytes of the same shape, fp4 and fp6 as
        packed bytes. Raises BufferError if another device, or a copy, is asked for, and
        Unsupported for the block types of GGUF."""
        if copy:
            raise BufferError(f"tensor {self.name} is exported where it lies: copy what you get")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"tensor {self.name} lies on DLPack device {self.__dlpack_device__()}, "
                f"not {tuple(dl_device)}: copy what you get"
            )
        return self._export(max_version is not None and max_version[0] >= 1)

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
        row = dtypes.BY_NAME[self.dtype]
        if devices.on_cpu(self.device) or row.numpy is None:
            hint = "take its bytes" if self.dtype in dtypes.GGUF else "use DLPack"
            why = "lies on host" if devices.on_cpu(self.device) else f"is {self.dtype}: {hint}"
            raise AttributeError(f"no __cuda_array_interface__: tensor {self.name} {why}")
        self._kept = self._kept or self._export()
        size = row.nbytes
        kind = {"?": "b", "u": "u", "i": "i", "f": "f", "c": "c"}[row.numpy[0]]
        return {
            "shape": self.shape,
            "typestr": f"{'|' if size == 1 else '<'}{kind}{size}",
            "data": (self._address(), True),
            "strides": tuple(stride * size for stride in self.strides),
            "stream": None,
            "version": 3,
        }

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
        code = _FORMATS.get(self.dtype)
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

        dtype = dtypes.numpy_dtype(self.dtype, self.name)
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


class Slice:
    """The result of get_slice, as in safetensors: an index gives a view of the tensor, without a
    copy."""

    def __init__(self, tensor: Tensor, framework: str) -> None:
        self._tensor = tensor
        self._framework = framework

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        whole: Any = self._tensor.torch() if self._framework == "pt" else self._tensor.numpy()
        return whole[index]


def slice_of(tensor: Tensor, framework: str) -> Slice:
    names = {"pt": "pt", "torch": "pt", "np": "np", "numpy": "np"}
    if framework not in names:
        raise errors.Invalid(f"framework {framework!r}", '"pt" or "np"')
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
