"""Stand-ins for packages that SGLang imports and that loading a model on a CPU never calls: they
hold kernels for GPUs, or have hundreds of megabytes."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

PACKAGES = ("triton", "sgl_kernel", "IPython", "sentencepiece")
# torchvision's wheels hold operators for a torch with CUDA, and it asks at its import whether these
# are there.
OPERATORS = ("nms", "qnms")
_library: Any = None


class Anything:
    """Whatever is asked of a stand-in: it is called, decorates and has attributes."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        decorates = len(arguments) == 1 and callable(arguments[0]) and not named
        return arguments[0] if decorates else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "active":  # triton's driver: there is no GPU
            raise AttributeError(name)
        return Anything()


class _Module(types.ModuleType):
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        kind = type(name, (Anything,), {"__module__": self.__name__})
        found = kind if name[:1].isupper() else Anything()
        setattr(self, name, found)
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder, so that a package that is installed is not replaced."""

    def __init__(self, packages: Sequence[str], without: Sequence[str]) -> None:
        self._packages, self._without = packages, without

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self._packages or name in self._without:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def add_finder(packages: Sequence[str], without: Sequence[str] = ()) -> None:
    """Stand-ins for these packages, where they are not installed. without: modules of them that
    can't be imported."""
    sys.meta_path.append(_Finder(packages, without))


def install() -> None:
    """Before SGLang is imported."""
    global _library
    import torch

    add_finder(PACKAGES)
    _library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in OPERATORS:
        _library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
