"""Builds a model whose parameters have no memory yet."""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import dis
import errno
import os
import re
import sys
import threading
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch

from .. import errors


class Unbound(errors.Error):
    """A module was called whose parameters were never bound. The message has their names."""

    default_code: ClassVar[int] = errno.EADDRNOTAVAIL


class NeedsMemory(errors.Unsupported):
    """`__init__` needs the memory of a parameter, which has none in empty_init."""


@dataclasses.dataclass
class Emptied:
    """Which parameters a context takes the memory of: those of `smallest` bytes and more.
    parameters: those whose memory it took. decides: whether code may decide something by where a
    parameter is."""

    smallest: int = 0
    decides: bool = True
    parameters: list[nn.Parameter] = dataclasses.field(default_factory=list)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.contexts: list[Emptied] = []


_thread = _Thread()
# The words in which torch says that a tensor has no memory.
_NO_VALUES = re.compile(
    r"(?i)\bmeta (tensor|device|kernel)|'meta'|\b(device|on) meta\b|\bmeta and |\band meta\b"
    r"|\bregister_meta\b|\bMeta[a-z]+Type\b|Tensor\.__format__"
)


@contextlib.contextmanager
def empty_init() -> Iterator[None]:
    """Inside, parameters that modules register have no memory: they are on torch's device `meta`.

        with gpuwm.empty_init():
            model = Model(config)
        mapping.bind(model)

    A parameter loses its memory when it is registered, so at most one has memory at a time. It
    stays the same object, and the values that `__init__` gives it are lost. Buffers, and everything
    else that `__init__` computes, are as usual. What it computes *from* parameters has no memory
    either, and `bind` names it.

    Contexts nest. Only the thread that entered is affected, so that thread builds the model. If a
    model that was built in this way is called before it is bound, it raises Unbound. Raises
    Unsupported if `__init__` asks a parameter for its values.
    """
    with emptying(Emptied()):
        yield


@contextlib.contextmanager
def emptying(emptied: Emptied) -> Iterator[None]:
    """Does what empty_init does for the parameters that `emptied` says, and lists them there."""
    with contextlib.ExitStack() as undo:
        undo.callback(hooks.register_module_parameter_registration_hook(_on_parameter).remove)
        undo.callback(hooks.register_module_module_registration_hook(_on_module).remove)
        undo.enter_context(_NoValues())
        _thread.contexts.append(emptied)
        try:
            yield
        except (RuntimeError, NotImplementedError, TypeError, BufferError) as error:
            if not _NO_VALUES.search(str(error)):
                raise
            raise NeedsMemory(
                f"`__init__` asked a parameter for values, which has none in empty_init: {error}",
                _OUTSIDE,
            ) from error
        finally:
            _thread.contexts.pop()


# Functions that fill a tensor with values: those of torch.nn.init, and the methods that they use.
_FILLS = frozenset(name for name in dir(nn.init) if name.endswith("_") and name[0] != "_") | {
    *("normal_", "uniform_", "zero_", "fill_", "copy_", "clamp_", "erfinv_", "mul_", "add_"),
    *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "random_"),
}


_OUTSIDE = (
    "build the model outside of empty_init, and bind it as it is, as gpuwm.build does by itself"
)
# Functions that take from another tensor its shape and dtype only; besides new_* and *_like.
_TAKE_SHAPES = frozenset(("expand_as", "reshape_as", "resize_as_", "view_as"))


class _NoValues(TorchFunctionMode):
    """Makes filling a tensor without memory do nothing, at once. torch would compute shapes for it,
    with parts of itself that take half a second to import.

    Raises NeedsMemory if code decides by where a parameter is, unless it may, and if torch computes
    values of a tensor without memory. If the other operand is on the CPU, torch.mm, torch.addmm,
    Tensor.div_ and others (of torch 2.13) do so without an error, and the result is whatever was in
    memory."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        context = _thread.contexts[-1] if _thread.contexts else None
        if func in _PLACES and context and not context.decides and args[0].is_meta:
            _check_decision(_PLACES[func], sys._getframe(1))
        if getattr(func, "__name__", "") in _FILLS:
            target = args[0] if args else kwargs.get("tensor")
            if isinstance(target, torch.Tensor) and target.is_meta:
                return target
        result = func(*args, **kwargs)
        if _has_values(result) and _reads_nothing(func, args, kwargs):
            raise NeedsMemory(
                f"`__init__` computed {func.__name__} of a parameter, which has no values in "
                "empty_init",
                _OUTSIDE,
            )
        return result


# Attributes that say where a tensor is, by the functions that read them.
_PLACES: dict[Any, str] = {
    getattr(torch.Tensor, name).__get__: name for name in ("device", "is_cpu", "is_cuda")
}
_COMPARE = frozenset(("COMPARE_OP", "IS_OP", "CONTAINS_OP"))


def _check_decision(name: str, frame: types.FrameType) -> None:
    """Raises NeedsMemory if code decides something by where a parameter is. Code that knows `meta`
    may do so, and torch's."""
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    if package in ("torch", __name__.partition(".")[0]) or "meta" in frame.f_code.co_consts:
        return
    if name != "device" or _compares(frame):
        where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        raise NeedsMemory(
            f"`__init__` decides by a parameter's {name}, which is not the one that it will have "
            f"after empty_init: {frame.f_code.co_name} does so ({where})",
            _OUTSIDE,
        )


def _compares(frame: types.FrameType) -> bool:
    """Whether the code compares the device that it reads, or asks for its type, at once."""
    depth = 1  # of the stack of values, where the device is the first
    for each in dis.get_instructions(frame.f_code):
        if each.offset <= frame.f_lasti:
            continue
        if depth == 1 and each.opname == "LOAD_ATTR":
            return each.argval in ("type", "index")
        if each.opname in _COMPARE:
            return depth <= 2
        depth += dis.stack_effect(each.opcode, each.arg)
        if depth < 1:
            break
    return False


def _has_values(result: Any) -> bool:
    if isinstance(result, tuple):
        return any(_has_values(each) for each in result)
    return isinstance(result, torch.Tensor) and not result.is_meta


def _reads_nothing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the function read the values of a tensor without memory."""
    name = getattr(func, "__name__", "")
    if name in _TAKE_SHAPES or name.startswith("new_") or name.endswith("_like"):
        return False
    return any(
        isinstance(each, torch.Tensor) and each.is_meta for each in (*args, *kwargs.values())
    )


def _on_parameter(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
    if _thread.contexts and parameter is not None:
        context = _thread.contexts[-1]
        if is_plain(parameter) and not parameter.is_meta and parameter.nbytes >= context.smallest:
            empty(module, name, parameter)
            context.parameters.append(parameter)
        _refuse_calls(module)


def _on_module(module: nn.Module, name: str, child: nn.Module | None) -> None:
    if _thread.contexts:
        _refuse_calls(module)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its bytes and strides say everything about it. That is not so for quantised, sparse,
    lazy and wrapped tensors, and for those that only stand for one."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return False
    if type(tensor) in _PLAIN:
        return True
    if is_lazy(tensor) or _python_dispatch.is_traceable_wrapper_subclass(tensor):
        return False
    return not _is_hollow(tensor)


def _is_hollow(tensor: torch.Tensor) -> bool:
    """Whether it says that it has elements on a device, and has no memory there: a FakeTensor."""
    return bool(tensor.numel()) and not tensor.is_meta and storage_address(tensor) == 0


def storage_address(tensor: torch.Tensor) -> int:
    """Where its storage begins; 0: it has no memory. The storage is not asked: a FakeTensor's
    warns, and one that waits for a write to be copied would be copied."""
    found: int = torch._C._data_address(tensor)  # type: ignore[attr-defined]
    return found


_PLAIN = (nn.Parameter, torch.Tensor)


def swap(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Exchanges two tensors in everything but their identity and the attributes that were set on
    them. `other` is new, and nobody else has it. Raises RuntimeError if torch refuses."""
    if weakref.getweakrefcount(tensor) or tensor._use_count() > 1:  # type: ignore[attr-defined]
        # torch checks who else holds it, and makes an accumulator of gradients refuse to go on.
        give_attributes(other, tensor)
        torch.utils.swap_tensors(tensor, other)  # type: ignore[no-untyped-call]
        return
    # The class comes first: if Ctrl-C comes between, no memory is shared without its guard.
    tensor.__class__, other.__class__ = type(other), type(tensor)
    torch._C._swap_tensor_impl(tensor, other)


def of_class(kind: type[torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Makes a tensor that nobody else has one of that class."""
    if getattr(kind, "gpuwm_plain", kind) in _PLAIN:
        tensor.__class__ = kind
        return tensor
    return torch.Tensor._make_subclass(kind, tensor, False)


def alias(kind: type, tensor: torch.Tensor, like: torch.Tensor, requires_grad: bool) -> Any:
    """A tensor of that class over the same memory, with the attributes that were set on `like`."""
    made: Any = torch.Tensor._make_subclass(kind, tensor, requires_grad)
    give_attributes(made, like)
    return made


def has_attributes(tensor: torch.Tensor) -> bool:
    """Whether attributes were set on the tensor, or its class has slots for them."""
    if type(tensor) in _PLAIN:
        return bool(tensor.__dict__)
    return bool(tensor.__dict__ or copyreg._slotnames(type(tensor)))  # type: ignore[attr-defined]


def give_attributes(tensor: torch.Tensor, like: torch.Tensor) -> None:
    """Gives the tensor the attributes that were set on `like`, also in slots of its class."""
    if attributes := like.__dict__:
        tensor.__dict__.update(attributes)
    for name in copyreg._slotnames(type(like)):  # type: ignore[attr-defined]
        if hasattr(like, name):
            setattr(tensor, name, getattr(like, name))


def empty(module: nn.Module, name: str, parameter: torch.Tensor) -> None:
    """Takes a parameter's memory. Whoever refers to the parameter refers to the empty one then."""
    meta = torch.empty_strided(
        parameter.size(), parameter.stride(), dtype=parameter.dtype, device="meta"
    )
    try:
        swap(parameter, of_class(type(parameter), meta.requires_grad_(parameter.requires_grad)))
    except RuntimeError as error:
        raise NeedsMemory(
            f"parameter {name} of {type(module).__name__} can't be built without memory: {error}",
            _OUTSIDE,
        ) from error


# ---- a model that is called before it is bound ------------------------------------------------


def _refuse_calls(module: nn.Module) -> None:
    if _check_bound not in module._forward_pre_hooks.values():
        module.register_forward_pre_hook(_check_bound)


def allow_calls(modules: Iterable[nn.Module]) -> None:
    """Removes the check at each call from modules that have all their memory."""
    for module in modules:
        found = module._forward_pre_hooks
        for key in [key for key, hook in found.items() if hook is _check_bound]:
            del found[key]


def _check_bound(module: nn.Module, args: tuple[Any, ...]) -> None:
    if _thread.contexts or any(isinstance(arg, torch.Tensor) and arg.is_meta for arg in args):
        return  # the model is still being built, or only shapes are computed
    names = [name for name, parameter in module.named_parameters() if parameter.is_meta]
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise Unbound(
            f"parameter {names[0]} of {type(module).__name__}{more} has no memory",
            "the model was built in empty_init: bind it before it is called",
        )
    allow_calls(module.modules())  # they got their memory in some other way
