"""Which versions the models of this process are on."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.nn import Module

    from .._mapping import Mapping as Attached

# What each model was loaded from, for as long as the model lives. The mapping has the lease.
_loaded: weakref.WeakKeyDictionary[Module, Attached] = weakref.WeakKeyDictionary()


def remember(model: Module, mapping: Attached) -> None:
    _loaded[model] = mapping


def versions_of(*models: Module) -> list[str]:
    """The versions "model@tag" that these models are on. A model in memory of this engine alone is
    on none. Without arguments: the versions of all models of this process."""
    mappings = (_loaded.get(model) for model in models or tuple(_loaded))
    return [str(mapping.version) for mapping in mappings if mapping is not None]
