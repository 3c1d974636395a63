"""The name of the main program's module, which is called __main__ in each program."""

from __future__ import annotations

import functools
import pathlib
import sys
import types

# multiprocessing's children import the program's module under the second name.
MAIN = ("__main__", "__mp_main__")


def known(module: str) -> str:
    """The name by which other processes know a module. The main program's is that under which it
    would be imported: the name of its file. An interactive program has none, and is "__main__"."""
    return _main_name(module) or "__main__" if module in MAIN else module


def found(name: str) -> list[types.ModuleType]:
    """The modules that this process has imported under a name that `known` returned."""
    main = sys.modules.get("__main__")
    modules = [main if _main_name("__main__") == name else None, sys.modules.get(name)]
    return [module for module in modules if module is not None]


def _main_name(module: str) -> str:
    """Empty: it has none. While a child imports the program, __main__ is not the program yet."""
    main = sys.modules.get(module) or sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return _name_of(None if spec is None else spec.name, getattr(main, "__file__", None))


@functools.cache  # every lookup of a class asks for it
def _name_of(spec: str | None, file: str | None) -> str:
    if spec is not None and spec not in MAIN:
        return spec
    if not file or file.startswith("<"):  # "<stdin>"
        return ""
    path = pathlib.Path(file)
    return path.parent.stem if path.stem == "__main__" else path.stem  # a folder or a zip file
