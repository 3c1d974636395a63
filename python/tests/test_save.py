"""Versions that are saved: what other readers of safetensors find, and what is refused."""

from __future__ import annotations

import pathlib

import pytest
import torch
from conftest import DEVICE, Daemon
from safetensors.torch import load_file

import gpuwm


def weights() -> dict[str, torch.Tensor]:
    """Tensors whose strides are in order, and some whose are not."""
    made = torch.Generator().manual_seed(5)
    grid = torch.randn(48, 36, generator=made)
    images = torch.randn(4, 3, 8, 6, generator=made)
    return {
        "plain": grid,
        "turned": grid.t().contiguous().t(),
        "half": grid.to(torch.bfloat16).t().contiguous().t(),
        "images": images.to(memory_format=torch.channels_last),
        "bytes": torch.arange(60, dtype=torch.uint8).reshape(3, 4, 5).permute(2, 0, 1),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(3.0),
        "float8": grid.to(torch.float8_e4m3fn).t().contiguous().t(),
    }


@pytest.fixture(scope="module")
def version(daemon: Daemon) -> str:
    tied = weights()
    tied["head"] = tied["plain"]
    gpuwm.publish(tied, "saved@v1", bind=False, device=DEVICE, files={"config.json": b"{}"})
    return "saved@v1"


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def expect_values(files: list[pathlib.Path]) -> None:
    found = {name: tensor for file in files for name, tensor in load_file(file).items()}
    wanted = weights()
    assert set(found) == {*wanted, "head"}
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(bits(found[name]), bits(tensor))
    assert torch.equal(found["head"], wanted["plain"])


def test_other_readers_find_the_values(version: str, tmp_path: pathlib.Path) -> None:
    with gpuwm.attach(version) as w:
        w.save(tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    expect_values([tmp_path / "out" / "model.safetensors"])


def test_shards_have_all_of_it(version: str, tmp_path: pathlib.Path) -> None:
    with gpuwm.attach(version) as w:
        w.save(tmp_path, shard_bytes=5000)
    assert (tmp_path / "model.safetensors.index.json").exists()
    files = sorted(tmp_path.glob("model-*-of-*.safetensors"))
    assert len(files) > 2
    expect_values(files)


def test_nothing_is_replaced_by_chance(version: str, tmp_path: pathlib.Path) -> None:
    with gpuwm.attach(version) as w:
        w.save(tmp_path)
        with pytest.raises(gpuwm.Exists, match="model.safetensors exists"):
            w.save(tmp_path)
        gpuwm.save([w], tmp_path, overwrite=True)


def test_arguments(version: str, tmp_path: pathlib.Path) -> None:
    with gpuwm.attach(version) as w:
        with pytest.raises(gpuwm.Invalid, match="mapping 0 of 2"):
            gpuwm.save([w, w], tmp_path)
        with pytest.raises(gpuwm.Invalid, match="needs a mapping"):
            gpuwm.save([], tmp_path)
        with pytest.raises(TypeError, match="mappings="):
            gpuwm.save([version], tmp_path)  # type: ignore[list-item]
        with pytest.raises(TypeError, match="a path"):
            w.save(3)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
