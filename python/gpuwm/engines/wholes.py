"""Tensors that look like whole ones, of which only this rank's rows are there.

`gpuwmctl load --ranks N --cut PLAN` cuts a checkpoint for ranks. An engine's own loader cuts again:
from each whole tensor it takes the rows of its rank. So it is given a `LazyWhole` for each tensor
that the plan split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from .. import errors
from .._c import dtypes
from .._cuts import Cut

if TYPE_CHECKING:
    from .._c.handle import TensorInfo
    from .._mapping import Mapping as Attached
    from .._version import Version


def weights(
    checkpoint: Attached, elsewhere: Iterable[TensorInfo] = ()
) -> Iterator[tuple[str, Tensor]]:
    """The names and tensors of a plain checkpoint, in the order of the names. If it is a part that
    was cut, each tensor that is not there as a whole is a LazyWhole. elsewhere: the tensors of
    which the part has nothing."""
    cuts, version = checkpoint.cuts, checkpoint.version
    missing = {info.name: info for info in elsewhere}
    device = checkpoint.torch(next(iter(checkpoint))).device
    for name in sorted([*checkpoint, *missing]):
        if name in missing:
            yield name, nothing_of(missing[name], version, device)
            continue
        tensor, cut = checkpoint.torch(name), cuts.get(name)
        yield name, tensor if cut is None else LazyWhole(Rows(name, cut, version), tensor)


def nothing_of(info: TensorInfo, version: Version, device: torch.device) -> LazyWhole:
    """A tensor of which the part has nothing. A loader may pass over it: with expert parallelism
    a rank reads no experts of others."""
    shape = info.shape or (1,)
    dtype = dtypes.torch_dtype(info.dtype, info.name)
    part = torch.empty((0, *shape[1:]), dtype=dtype, device=device)
    rows = Rows(info.name, Cut(0, 0, 0, shape), version)
    return _make(LazyWhole, rows, part, info.shape, 0, 0, there=bool(info.shape))


@dataclass(frozen=True)
class Rows:
    """Which rows of the whole tensor a part has. version: says which part."""

    name: str
    cut: Cut
    version: Version

    def __str__(self) -> str:
        dim, first, rows, whole = self.cut
        if rows == 0:
            return "nothing of it"
        return f"rows {first} to {first + rows - 1} of {whole[dim]} in dimension {dim}"

    def refuse(self, wanted: str, use: str = "") -> NoReturn:
        """Raises Mismatch. wanted: the rows that an engine's loader wants. use: of them; the name
        of a function of torch."""
        version = self.version
        for_use = f" for {use}" if use else ""
        raise errors.Mismatch(
            f"the engine's loader wants {wanted} of tensor {self.name}{for_use}, but rank "
            f"{version.rank} of {version.world} of {version} has {self}",
            f'load the checkpoint with a plan that gives all ranks this tensor ("{self.name} copy")'
            " or gives each rank what the engine reads, or without a plan",
        )


class LazyWhole(Tensor):
    """The whole of a tensor, or a view of it, of which only some rows are there.

    It has the shape, dtype and device of the whole. Selecting rows that are there returns a plain
    tensor, which shares their memory. Selecting along other dimensions, reordering dimensions and
    copying return LazyWholes. Everything else raises Mismatch, which names the tensor and the rows:
    nothing is ever computed with rows that are not there.

    - part: what is there of this view; None: nothing, as of a row that `unbind` returned.
    - dim: the dimension of this view along which the whole was cut.
    - begin: the number of this view's first row in the whole tensor.
    """

    rows: Rows
    part: Tensor | None
    cut_dim: int
    begin: int

    @staticmethod
    def __new__(
        cls,
        rows: Rows,
        part: Tensor,
        dim: int | None = None,
        begin: int = 0,
        size: int | None = None,
    ) -> LazyWhole:
        """dim: None: the whole tensor's. size: how many rows the view has; None: all of the
        whole."""
        dim = rows.cut.dim if dim is None else dim
        size = rows.cut.whole[rows.cut.dim] if size is None else size
        shape = [*part.shape[:dim], size, *part.shape[dim + 1 :]]
        return _make(cls, rows, part, shape, dim, begin)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Every call of torch's Python functions with a LazyWhole comes here first."""
        given = kwargs or {}
        if func in _DESCRIBING:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **given)
        select = _SELECTING.get(func)
        first = args[0] if args else None
        if select is None or not isinstance(first, LazyWhole) or first.part is None:
            _refuse(func, (*args, *given.values()))
        return select(first, first.part, *args[1:], **given)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Any = None,
    ) -> Any:
        """Refuses operators that C++ code calls with a LazyWhole."""
        _refuse(func, (*args, *(kwargs or {}).values()))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"<gpuwm LazyWhole of {self.rows.name}: {tuple(self.shape)}, {self.dtype}>"

    # ---- what is there of it ----

    def at(self) -> int:
        """At which row of the view its part begins."""
        return max(self.rows.cut.first - self.begin, 0)

    def like(self, part: Tensor, dim: int) -> LazyWhole:
        """The same rows of another view, of which `part` is there and which was cut along `dim`."""
        return LazyWhole(self.rows, part, dim, self.begin, self.shape[self.cut_dim])

    def piece(self, part: Tensor, start: int, length: int) -> Tensor:
        """Rows of the view; a plain tensor if all of them are there."""
        at, there = self.at(), part.shape[self.cut_dim]
        first = min(max(start - at, 0), there)
        last = min(max(start + length - at, first), there)
        found = part.narrow(self.cut_dim, first, last - first)
        if last - first == length:
            return found
        return LazyWhole(self.rows, found, self.cut_dim, self.begin + start, length)

    def refuse(self, start: int, length: int) -> NoReturn:
        """Refuses rows of the view."""
        first = self.begin + start
        self.rows.refuse(f"rows {first} to {first + length - 1}")


def _make(
    cls: type[LazyWhole],
    rows: Rows,
    part: Tensor,
    shape: Sequence[int],
    dim: int,
    begin: int,
    there: bool = True,
) -> LazyWhole:
    made: LazyWhole = Tensor._make_wrapper_subclass(
        cls, shape, dtype=part.dtype, device=part.device
    )
    # Code that asks for its address gets an error instead of a null pointer.
    torch._C._set_throw_on_mutable_data_ptr(made)
    made.rows, made.part = rows, part if there else None
    made.cut_dim, made.begin = dim, begin
    return made


def _refuse(func: Callable[..., Any], values: Sequence[Any]) -> NoReturn:
    """Refuses a function that would need all rows. values: its arguments."""
    attribute = getattr(func, "__self__", None)  # of which `func` is the getter or setter
    name = str(getattr(attribute, "__name__", "") or getattr(func, "__name__", func))
    for whole in _wholes(values):
        whole.rows.refuse("all rows", name)
    raise AssertionError(f"{name} has no LazyWhole among its arguments")


def _wholes(values: Any) -> Iterator[LazyWhole]:
    for value in values:
        if isinstance(value, LazyWhole):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _wholes(value)


# ---- selections --------------------------------------------------------------------------------
# Each gets the LazyWhole, the part that is there, and the arguments of torch's function.


def _narrow(whole: LazyWhole, part: Tensor, dim: int, start: int, length: int) -> Tensor:
    dim, size = dim % whole.ndim, whole.shape[dim]
    if dim != whole.cut_dim:
        return whole.like(part.narrow(dim, start, length), whole.cut_dim)
    start = start + size if start < 0 else start
    if (start, length) == (0, size):
        return whole
    found = whole.piece(part, start, length)
    if isinstance(found, LazyWhole):
        whole.refuse(start, length)
    return found


def _select(whole: LazyWhole, part: Tensor, dim: int, index: int) -> Tensor:
    dim = dim % whole.ndim
    if dim != whole.cut_dim:
        return whole.like(part.select(dim, index), whole.cut_dim - (dim < whole.cut_dim))
    index = index + whole.shape[dim] if index < 0 else index
    found = whole.piece(part, index, 1)
    if isinstance(found, LazyWhole):
        whole.refuse(index, 1)
    return found.select(dim, 0)


def _unbind(whole: LazyWhole, part: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """A row that is not there is a LazyWhole without a part: a loader may pass over it."""
    dim = dim % whole.ndim
    if dim != whole.cut_dim:
        return tuple(_select(whole, part, dim, index) for index in range(whole.shape[dim]))
    shape = [*whole.shape[:dim], *whole.shape[dim + 1 :]]
    found: list[Tensor] = []
    for index in range(whole.shape[dim]):
        row = whole.piece(part, index, 1)
        absent = isinstance(row, LazyWhole)
        found.append(
            _make(LazyWhole, whole.rows, part, shape, 0, whole.begin + index, there=False)
            if absent
            else row.select(dim, 0)
        )
    return tuple(found)


def _split(
    whole: LazyWhole, part: Tensor, split_size: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """A piece of which some rows are not there is a LazyWhole: a loader may pass over it."""
    dim, size = dim % whole.ndim, whole.shape[dim]
    if dim != whole.cut_dim:
        pieces = part.split(split_size, dim)  # type: ignore[no-untyped-call]
        return tuple(whole.like(piece, whole.cut_dim) for piece in pieces)
    if isinstance(split_size, int):
        split_size = [min(split_size, size - start) for start in range(0, size, split_size)]
    if sum(split_size) != size:
        raise RuntimeError(f"sizes {split_size} do not add up to {size} rows of {whole}")
    starts = [sum(split_size[:number]) for number in range(len(split_size))]
    return tuple(
        whole.piece(part, start, length) for start, length in zip(starts, split_size, strict=True)
    )


def _chunk(whole: LazyWhole, part: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    return _split(whole, part, max(-(-whole.shape[dim] // chunks), 1), dim)


def _getitem(whole: LazyWhole, part: Tensor, index: Any) -> Tensor:
    items = list(index) if isinstance(index, tuple) else [index]
    if any(item is Ellipsis for item in items):
        where = next(number for number, item in enumerate(items) if item is Ellipsis)
        taken = sum(item is not None for item in items) - 1
        items[where : where + 1] = [slice(None)] * (whole.ndim - taken)
    found: Tensor = whole
    dim = 0
    for item in items:
        if item is None:
            found = found.unsqueeze(dim)
        elif isinstance(item, int) and not isinstance(item, bool):
            found = found.select(dim, item)
            continue
        elif isinstance(item, slice) and item.step in (None, 1):
            start, stop, _ = item.indices(found.shape[dim])
            found = found.narrow(dim, start, max(stop - start, 0))
        else:
            whole.rows.refuse("all rows", f"an index of {type(item).__name__}")
        dim += 1
    return found


def _unsqueeze(whole: LazyWhole, part: Tensor, dim: int) -> Tensor:
    dim = dim % (whole.ndim + 1)
    return whole.like(part.unsqueeze(dim), whole.cut_dim + (dim <= whole.cut_dim))


def _permute(whole: LazyWhole, part: Tensor, *dims: Any) -> Tensor:
    order = [dim % whole.ndim for dim in (dims[0] if len(dims) == 1 else dims)]
    return whole.like(part.permute(order), order.index(whole.cut_dim))


def _transpose(whole: LazyWhole, part: Tensor, dim0: int, dim1: int) -> Tensor:
    order = list(range(whole.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(whole, part, order)


def _reversed(whole: LazyWhole, part: Tensor, *_: Any) -> Tensor:
    """Of a matrix, t() and T. (T of more dimensions is deprecated.)"""
    return _permute(whole, part, list(reversed(range(whole.ndim))))


def _copying(func: Callable[..., Any]) -> Callable[..., Tensor]:
    """A function that makes a copy, or a conversion of each element, can be called for the part."""

    def call(whole: LazyWhole, part: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return whole.like(func(part, *args, **kwargs), whole.cut_dim)

    return call


def _is_contiguous(whole: LazyWhole, part: Tensor, *args: Any, **kwargs: Any) -> bool:
    return part.is_contiguous(*args, **kwargs)


# What says nothing about the values: a LazyWhole has these itself.
_DESCRIBING = {
    *(torch.is_floating_point, torch.is_complex, torch.numel),
    *(Tensor.dim, Tensor.size, Tensor.numel, Tensor.nelement, Tensor.element_size, Tensor.__len__),
    *(Tensor.is_floating_point, Tensor.is_complex, Tensor.get_device, Tensor.__hash__),
    *(torch.is_signed, Tensor.is_signed, Tensor.ndimension, Tensor.__format__),
    *(
        getattr(Tensor, name).__get__
        for name in (
            *("shape", "dtype", "device", "layout", "ndim", "itemsize", "nbytes", "requires_grad"),
            *("is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_nested"),
        )
    ),
}
_T, _DATA = (getattr(Tensor, name).__get__ for name in ("T", "data"))
_SELECTING: dict[Callable[..., Any], Callable[..., Any]] = {
    **dict.fromkeys((torch.narrow, Tensor.narrow), _narrow),
    **dict.fromkeys((torch.select, Tensor.select), _select),
    **dict.fromkeys((torch.unbind, Tensor.unbind), _unbind),
    **dict.fromkeys((torch.split, Tensor.split), _split),
    **dict.fromkeys((torch.split_with_sizes, Tensor.split_with_sizes), _split),
    **dict.fromkeys((torch.chunk, Tensor.chunk), _chunk),
    **dict.fromkeys((torch.unsqueeze, Tensor.unsqueeze), _unsqueeze),
    **dict.fromkeys((torch.permute, Tensor.permute), _permute),
    **dict.fromkeys((torch.transpose, Tensor.transpose), _transpose),
    **dict.fromkeys((torch.t, Tensor.t, _T), _reversed),
    Tensor.__getitem__: _getitem,
    Tensor.is_contiguous: _is_contiguous,
    **{
        func: _copying(func)
        for func in (
            *(torch.clone, torch.detach, Tensor.clone, Tensor.detach, _DATA),
            *(Tensor.contiguous, Tensor.to, Tensor.cpu, Tensor.cuda),
        )
    },
}
