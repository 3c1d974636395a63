"""Memory that processes share and write: pools, references, queues, blocks and scratch."""

from __future__ import annotations

from ._wrap import unwrap, wrap
from .blocks import Blocks, BlocksFigures
from .claims import Held, Reserved
from .fill import Filling
from .pools import Figures, Pool
from .queues import Queue
from .refs import TensorRef
from .scratch import Scratch

__all__ = [
    "Blocks",
    "BlocksFigures",
    "Figures",
    "Filling",
    "Held",
    "Pool",
    "Queue",
    "Reserved",
    "Scratch",
    "TensorRef",
    "unwrap",
    "wrap",
]
