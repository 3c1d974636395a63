"""Optional packages that parts of gpuwm need."""

from __future__ import annotations

import importlib

from . import errors

# What the extra `transformers` of pyproject.toml installs.
TRANSFORMERS = "pip install 'torch>=2.6' 'transformers>=5.17,<6'"


def torch(what: str) -> None:
    """Raises NotInstalled, which names `what`, if torch is not installed. Call it before importing
    a module that needs torch."""
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise no_torch(what) from None


def no_torch(what: str, remedy: str = "install torch") -> errors.NotInstalled:
    return errors.NotInstalled(f"{what} needs torch, and there is none", remedy)
