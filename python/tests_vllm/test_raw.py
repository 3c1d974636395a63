"""A plain checkpoint that gpuwm holds feeds vLLM's loader."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest
import torch
from conftest import Daemon

from tests_engines.comparing import differences
from tests_engines.starting import Start


def test_raw_gives_what_vllm_reads_from_files(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path
) -> None:
    for kind, quantization in (("dense", None), ("experts", None), ("dense", "fp8")):
        name = f"plain-{kind}-{quantization}".lower()
        folder = daemon.models / name
        shutil.copytree(checkpoints / kind, folder)
        daemon.load_folder(f"{name}@v1", folder)
        extra = {"ref": f"{name}@v1", "mode": "raw"}
        own = start(kind, quantization=quantization)
        builder = start(kind, quantization=quantization, load_format="gpuwm", extra=extra)
        builder.loaded()
        other = start(kind, quantization=quantization, load_format="gpuwm", extra=extra)
        for engine in (builder, other):
            assert differences(own, engine) == [], name
            assert engine.ask("shared")
        assert f"from {name}@v1" in builder.text()


def test_raw_without_the_checkpoint(daemon: Daemon, start: Start) -> None:
    extra = {"ref": "absent@v1", "mode": "raw"}
    failed = start("dense", load_format="gpuwm", extra=extra).failed()
    assert failed.error == "NotFound"
    assert "absent@v1" in failed.text


@pytest.mark.filterwarnings("ignore")  # vLLM's imports warn
@pytest.mark.parametrize("of", ["plamo2", "gpt_oss"])
def test_models_that_write_into_what_they_read_get_copies(of: str) -> None:
    from gpuwm.vllm import raw

    names = ("norm.weight", "down_proj_bias", "q.weight")
    held = {name: torch.zeros(2) for name in names}
    loader: Any = object.__new__(raw.FedLoader)
    loader._weights = held.items()
    kind = type("Model", (torch.nn.Module,), {"__module__": f"vllm.model_executor.models.{of}"})
    given = dict(loader.get_all_weights(None, kind()))
    copied = [name for name in names if given[name] is not held[name]]
    assert copied == [{"plamo2": "norm.weight", "gpt_oss": "down_proj_bias"}[of]]
