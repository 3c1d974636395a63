"""Tensors that pass between processes: pools, references and queues."""

from __future__ import annotations

from .filling import Filling
from .pools import Figures, Pool
from .queues import Queue
from .refs import TensorRef
from .wrapping import unwrap, wrap

__all__ = ["Figures", "Filling", "Pool", "Queue", "TensorRef", "unwrap", "wrap"]
