"""Writes into shared memory, which are refused by name if Python can see them.

torch has no read-only tensors. Shared parameters have a subclass of their own class, and refuse
writes through them or their `.data`: in-place methods and operators, item assignment,
requires_grad_(True). torch treats the subclass as it does the class itself, so the forward pass
costs nothing. Python does not see writes below it (`out=`, a kernel that gets the pointer, a view's
methods, `.numpy()`): such a write ends the process, or its CUDA context.
"""

from __future__ import annotations

import errno
import functools
import os
import pkgutil
import re
import sys
import types
from collections.abc import Callable, Iterable
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import torch
from torch import nn
from torch._functorch import config as functorch
from torch.nn.modules import batchnorm
from torch.nn.utils import parametrizations
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from .. import errors
from .._received import Origin
from . import init, registry, tensors
from .places import Place


class WriteError(errors.Error):
    """Something would have written into shared memory. Nothing was written."""

    default_code: ClassVar[int] = errno.EROFS


class Shared:
    """What the classes of shared parameters and buffers add to their own class."""

    __slots__ = ()
    gpuwm_plain: ClassVar[type[torch.Tensor]]  # the class that it had before

    def requires_grad_(self: Any, requires_grad: bool = True) -> Any:
        if requires_grad:
            raise _no_gradient(self)
        return self

    @property
    def requires_grad(self) -> bool:
        return False

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        if requires_grad:
            raise _no_gradient(self)

    @property
    def data(self: Any) -> torch.Tensor:
        if torch.compiler.is_compiling():
            plain: torch.Tensor = torch.Tensor.detach(self)
            return plain
        shared: torch.Tensor = _same_memory(shared_class(torch.Tensor), self)
        return shared

    @data.setter
    def data(self: Any, value: torch.Tensor) -> None:
        same = value.data_ptr() == self.data_ptr() and value.dtype == self.dtype
        if not (same and value.device == self.device):
            _unshare(self)
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    def detach(self: Any) -> Any:
        """Keeps the class, as nn.Parameter() demands."""
        if torch.compiler.is_compiling():
            return torch.Tensor.detach(self)
        made = _same_memory(type(self), self)
        made.gpuwm_detached = True
        return made

    def share_memory_(self: Any) -> Any:
        """Does nothing: it is shared already."""
        return self

    def __copy__(self: Any) -> Any:
        """Returns a plain tensor over the same memory, as torch does."""
        made = _same_memory(type(self), self)
        init.give_attributes(made, self)
        return made

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        """Returns a plain copy, which is this process's own and may be written."""
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = _plain_form(self, tensors.clone(self))
        return found

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        """Pickles bytes and the plain class: a file never holds a reference to a version."""
        plain = _plain_form(self, torch.Tensor._make_subclass(torch.Tensor, self, False))
        return plain.__reduce_ex__(protocol)


# In-place methods that change the tensor's description and not the memory.
_HARMLESS = frozenset(
    f"{verb}_"
    for verb in (
        *("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze"),
        *("detach", "rename", "requires_grad", "share_memory"),
    )
)
_OPERATORS = (
    *("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__"),
    *("__ifloordiv__", "__imod__", "__ipow__", "__iand__", "__ior__", "__ixor__"),
    *("__ilshift__", "__irshift__"),
)


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise _refusal(self, f"{name} would write into {{}}, which is shared and read-only")

    refuse.__name__ = name
    return refuse


def _writing_methods() -> Iterable[str]:
    for name in dir(torch.Tensor):
        if name.endswith("_") and not name.startswith("_") and name not in _HARMLESS:
            yield name
    yield from (name for name in _OPERATORS if hasattr(torch.Tensor, name))


for _name in _writing_methods():
    setattr(Shared, _name, _refusing(_name))


def _no_gradient(tensor: Any) -> WriteError:
    return _refusal(tensor, "{} is shared and read-only: it can't be trained")


def _refusal(tensor: Any, what: str, remedy: str = "") -> WriteError:
    plain = f"a {tensor.gpuwm_plain.__name__}"
    name = registry.name_of(tensor) or tensors.name_of(tensor) or plain
    # A model writes into the same tensor of each of its layers.
    glob = _AFTER_A_WORD.sub("*", name)
    private = f"give private=[{glob!r}] to bind, build, publish or builder, for private copies"
    return WriteError(what.format(name) + _writer(), remedy or private)


_AFTER_A_WORD = re.compile(r"(?<=[A-Za-z_]\.)\d+(?=\.)")


def _writer() -> str:
    """The module that runs, and the line of its code."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        module = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        is_any = frame.f_globals.get("__name__") == nn.Module.__module__  # what all modules do
        if isinstance(module, nn.Module) and not is_any:
            where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
            return f"; {type(module).__name__} does so in {code.co_name} ({where})"
        frame = frame.f_back
    return ""


# ---- the classes ------------------------------------------------------------------------------


# torch.compile and pickle refer to a class by its module and name. So this module has an attribute
# for each class. Its name says which class it was made from: short for torch's own, else a path.
_OF_TORCH = {"SharedTensor": torch.Tensor, "SharedParameter": nn.Parameter}
_PREFIX, _DOT = "Shared_", "_dot_"


@functools.cache
def shared_class(plain: type[torch.Tensor]) -> type[torch.Tensor]:
    _let_compile()
    names: dict[str, Any] = {"gpuwm_plain": plain, "__module__": __name__}
    if plain is torch.Tensor:  # as nn.Parameter does: operations don't look at the class
        names["__torch_function__"] = torch._C._disabled_torch_function_impl
    made: type[torch.Tensor] = types.new_class(
        _name_for(plain),
        (Shared, plain),
        {"metaclass": type(plain)},
        lambda namespace: namespace.update(names),
    )
    ForkingPickler.register(made, _reduce)
    return made


def _reduce(tensor: Any) -> tuple[Any, ...]:
    """The reducer for multiprocessing's pickler: who receives it gets a guarded tensor too."""
    origin = tensors.origin_of(tensor)
    if origin is None:
        reduced: tuple[Any, ...] = tensor.__reduce_ex__(2)
        return reduced
    return _receive, (tensors.sent(origin, tensor), tensor.gpuwm_plain, dict(tensor.__dict__))


def _receive(origin: Origin, plain: type[torch.Tensor], attributes: dict[str, Any]) -> Any:
    made = _same_memory(shared_class(plain), tensors.rebuilt(origin))
    made.__dict__.update(attributes)
    return made


def _name_for(plain: type[torch.Tensor]) -> str:
    for name, kind in _OF_TORCH.items():
        if kind is plain:
            return name
    return _PREFIX + f"{plain.__module__}.{plain.__qualname__}".replace(".", _DOT)


def __getattr__(name: str) -> type[torch.Tensor]:
    """The class of that name, also in a process that has made none yet."""
    missing = AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _OF_TORCH:
        return shared_class(_OF_TORCH[name])
    if not name.startswith(_PREFIX):
        raise missing
    try:
        plain = pkgutil.resolve_name(name.removeprefix(_PREFIX).replace(_DOT, "."))
    except (ImportError, AttributeError, ValueError) as error:
        raise missing from error
    return shared_class(plain)


def _let_compile() -> None:
    """Keeps torch 2.13 from failing at the subclass. When what it compiled is first called, torch
    checks once whether custom operators return what they were given, and fails at any subclass
    (pytorch issue 193932). The check would only warn."""
    if hasattr(functorch, "check_custom_op_aliasing"):
        functorch.check_custom_op_aliasing = False


def kind_of(tensor: torch.Tensor, shared: bool) -> type[torch.Tensor]:
    """The class of the tensor that takes a tensor's place."""
    plain = tensor.gpuwm_plain if isinstance(tensor, Shared) else type(tensor)
    return shared_class(plain) if shared else plain


def _same_memory(kind: type[torch.Tensor], tensor: Any) -> Any:
    return torch.Tensor._make_subclass(kind, tensor, False)


def _unshare(tensor: Any) -> None:
    """Removes the guard, because the tensor is about to get other memory."""
    tensor.__class__ = tensor.gpuwm_plain


def _plain_form(tensor: Any, memory: torch.Tensor) -> Any:
    """A tensor over that memory, of the class that torch would have given it."""
    plain: type = tensor.gpuwm_plain
    if getattr(tensor, "_is_param", False):  # nn.Parameter(shared.data)
        plain = nn.Parameter
    elif getattr(tensor, "gpuwm_detached", False):
        plain = torch.Tensor
    new = init.alias(plain, memory, tensor, False)
    for own in ("_is_param", "gpuwm_detached"):
        new.__dict__.pop(own, None)
    return new


# ---- modules and optimizers -------------------------------------------------------------------


def never_shared(place: Place) -> str | None:
    """Why the tensor can't be shared: its module writes into it in each call."""
    for module, key in place.owners:
        if key == "weight" and isinstance(module, _RENORMALISING) and module.max_norm is not None:
            return (
                f"written: {type(module).__name__} with max_norm={module.max_norm} writes into "
                f"{place.name} at every call: private=[{place.name!r}], or max_norm=None"
            )
    return None


_RENORMALISING = (nn.Embedding, nn.EmbeddingBag)


def watch(places: Iterable[Place]) -> None:
    """Makes modules that write into shared buffers while they train refuse calls in that mode, and
    optimizers refuse steps over shared parameters."""
    _watch_optimizers()
    for place in places:
        if place.is_buffer and isinstance(place.tensor, Shared):
            for module, _ in place.owners:
                if _writes_in_training(module):
                    _refuse_in_training(module)


def _writes_in_training(module: nn.Module) -> bool:
    hooks = module._forward_pre_hooks.values()
    return isinstance(module, batchnorm._NormBase | parametrizations._SpectralNorm) or any(
        isinstance(hook, SpectralNorm) for hook in hooks
    )


def _refuse_in_training(module: nn.Module) -> None:
    if _check_training not in module._forward_pre_hooks.values():
        module.register_forward_pre_hook(_check_training, prepend=True)


def _check_training(module: nn.Module, args: tuple[Any, ...]) -> None:
    if not module.training:
        return
    for buffer in module._buffers.values():
        if isinstance(buffer, Shared):
            raise _refusal(
                buffer,
                f"{type(module).__name__} writes into {{}} while it trains, which is shared and "
                "read-only",
                "call eval() on the module, or bind without share_buffers for it",
            )


@functools.cache
def _watch_optimizers() -> None:
    register_optimizer_step_pre_hook(_check_step)


def _check_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if isinstance(parameter, Shared) and parameter.grad is not None:  # type: ignore[attr-defined]
                raise _refusal(
                    parameter,
                    f"{type(optimizer).__name__}.step() would write into {{}}, which is shared and "
                    "read-only",
                )
