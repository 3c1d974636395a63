"""What a process needs before it imports the libraries of models: import this module first."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import torch

# torchvision's wheels hold operators for a torch with CUDA, and it asks at its import whether these
# are there. No model of the sweep calls one.
OPERATORS = ("nms", "qnms")
_library: Any = None


def prepare() -> None:
    """Nothing is fetched from a hub, and nothing is printed about shrunk configurations."""
    global _library
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if not torch.cuda.is_available() and _library is None:
        _library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in OPERATORS:
            _library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")


prepare()
