"""A SGLang that has another name for one of its functions, as another release would. The
environment variable `RENAMED` of an engine has the path of the function and its name."""

from __future__ import annotations

import os
import pkgutil
import sys

from . import RENAMED


def given(path: str, name: str) -> dict[str, str | None]:
    """The environment of an engine in which the function has this name. If the name is the
    function's own, the function loses the hook that SGLang put in front of it."""
    return {RENAMED: f"{path} {name}"}


def apply() -> None:
    if RENAMED not in os.environ:
        return
    path, new = os.environ[RENAMED].split()
    owner_path, _, old = path.rpartition(".")
    owner = pkgutil.resolve_name(owner_path)
    function = getattr(owner, old)
    if new != old:
        setattr(owner, new, function)
        delattr(owner, old)
        return
    for module in list(sys.modules.values()):
        if module.__name__.startswith("sglang.") and vars(module).get(old) is function:
            setattr(module, old, vars(function)["__wrapped__"])
