"""Descriptions of modules, and their differences."""

from __future__ import annotations

import hashlib
import types
from typing import Any

import pytest
import torch
from conftest import Daemon, by_torch
from image_models import Model, loaded
from torch import nn

import gpuwm
import gpuwm.image
from gpuwm.image import _describe, digests

pytestmark = by_torch


def test_an_installed_module_has_no_difference(daemon: Daemon) -> None:
    gpuwm.image.publish(loaded(), "describe@v1")
    with gpuwm.empty_init():
        model = Model()
    gpuwm.image.install(model, "describe@v1", replay=model.processing())
    assert gpuwm.image.differences(loaded(), model) == []


def test_it_goes_through_json() -> None:
    description = gpuwm.image.describe(loaded())
    again = gpuwm.image.Description.from_json(description.to_json())
    assert again == description
    assert gpuwm.image.differences(again, loaded()) == []


def test_every_difference_is_named() -> None:
    one, other = loaded(), loaded()
    with torch.no_grad():
        other.norm.bias[0] = 7
    other.layers[0].weight = nn.Parameter(other.layers[0].weight.double())
    other.head.weight = nn.Parameter(other.head.weight.detach().clone())
    other.attention.up = other.attention.up.clone()
    other.attention.scale = 1
    other.layers[1].method.kernel = None
    del other.sizes["made"]
    other.register_buffer("more", torch.zeros(1))
    lines = gpuwm.image.differences(one, other)
    for expected in (
        "norm.bias: SHA-256 ",
        "layers.0.weight: dtype float32 in the first, float64 in the second",
        "head.weight: tied to embed.weight in the first, None in the second",
        "attention.up: memory attention.project.weight+0 in the first, None in the second",
        f"attention.scale: value {one.attention.scale!r} in the first, 1 in the second",
        "layers.1.method.kernel: object in the first only",
        "layers.1.method.kernel: value in the second only",
        "sizes['made']: value in the first only",
        "more: tensor in the second only",
    ):
        assert any(line.startswith(expected) for line in lines), expected


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).view(2, 3, 4),
        torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1),
        torch.arange(24).to(torch.float8_e4m3fn).view(4, 6).t(),
        torch.arange(24).view(1, 24).expand(3, 24),
        torch.arange(6.0).to(torch.complex128).mul(1j).conj(),
        torch.tensor(3, dtype=torch.int16),
        torch.empty(0, 3),
    ],
)
def test_bytes_are_those_in_the_order_of_c(
    tensor: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = tensor.resolve_conj()
    words: Any = dense.view(torch.uint8) if dense.element_size() == 1 else dense
    expected = hashlib.sha256(words.numpy().tobytes(order="C")).hexdigest()
    assert digests.of(tensor) == expected
    monkeypatch.setattr(digests, "PIECE_BYTES", 16)
    assert digests.of(tensor) == expected


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 1, "tensors": {"a": {}}}'])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(gpuwm.Invalid, match=r"no description.*to_json"):
        gpuwm.image.Description.from_json(text)


def test_another_schema_is_refused() -> None:
    text = gpuwm.image.describe(loaded()).to_json().replace('"schema": 1', '"schema": 2')
    with pytest.raises(gpuwm.Invalid, match=r"schema 2.*schema 1"):
        gpuwm.image.Description.from_json(text)


def test_every_device_finishes_before_bytes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    devices = [torch.device(name) for name in ("cuda:1", "cpu", "cuda:0", "cuda:1")]
    tensors: Any = [
        types.SimpleNamespace(device=device, is_cuda=device.type == "cuda") for device in devices
    ]
    _describe._finish_computing(tensors)
    assert sorted(map(str, waited)) == ["cuda:0", "cuda:1"]
