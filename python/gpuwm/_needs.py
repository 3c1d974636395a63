"""Packages that some of gpuwm needs, and that need not be installed."""

from __future__ import annotations

import importlib

from . import errors


def torch(what: str) -> None:
    """To be called before what needs torch is imported. NotInstalled: there is no torch, and `what`
    needs it."""
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise no_torch(what) from None


def no_torch(what: str, remedy: str = "install torch") -> errors.NotInstalled:
    return errors.NotInstalled(f"{what} needs torch, and there is none", remedy)
