"""What an engine of vLLM reads is the checkpoint that its version is named for."""

from __future__ import annotations

import itertools
import os
import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Daemon

import gpuwm
from gpuwm.engines import names, raw
from gpuwm.engines.ranks import Ranks
from gpuwm.vllm import engines, settings

pytest.importorskip("torch")
_count = itertools.count()
CONFIG: Any = SimpleNamespace(
    load_config=SimpleNamespace(download_dir=None, model_loader_extra_config=None),
    speculative_config=None,
)


def load(model: Any) -> engines.Load:
    return engines.Load(CONFIG, model)


def engine(daemon: Daemon, model: Any, **given: Any) -> Any:
    """As `names.connect` makes it, without what it asks vLLM for."""
    chosen, client = settings.parse(given), gpuwm.connect(daemon.socket)
    named = names.named(load(model), chosen, client, {}, [daemon.device])
    return engines.Engine(
        *(chosen, client, Ranks(), daemon.device, {}, {}),
        *(named.identity, named.name, chosen.ref, named.checkpoint),
    )


def model_in(folder: pathlib.Path) -> Any:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"first")
    return SimpleNamespace(model=str(folder), model_weights="", trust_remote_code=False)


def test_raw_reads_the_version_that_the_alias_named(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    model = f"aliased{next(_count)}"
    client = gpuwm.connect(daemon.socket)
    for tag, value in (("v1", 1), ("v2", 2)):
        arrays = {"w": np.full(8, value)}
        gpuwm.publish(arrays, f"{model}@{tag}", bind=False, device=daemon.device, client=client)
    daemon.admin.set_alias(model, "prod", "v1")
    one = engine(daemon, model_in(tmp_path), ref=f"{model}@prod", mode="raw")
    daemon.admin.set_alias(model, "prod", "v2")
    with raw.attach_to(one) as found:
        assert found.version.content == one.identity["identity.weights"]
        assert found.version.id == one.checkpoint.version


def test_raw_names_a_checkpoint_that_went(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    model = f"aliased{next(_count)}"
    gpuwm.publish({"w": np.arange(8)}, f"{model}@v1", bind=False, device=daemon.device)
    one = engine(daemon, model_in(tmp_path), ref=f"{model}@v1", mode="raw")
    daemon.admin.remove_alias(model, "current")
    daemon.admin.retire(f"{model}@v1", wait=30)
    with pytest.raises(gpuwm.NotFound, match=f"gpuwmctl load FOLDER {model}@v1"):
        raw.attach_to(one)


def test_files_that_stay_are_accepted(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    model = model_in(tmp_path)
    one = engine(daemon, model, ref="files@v1")
    assert one.identity
    names.check_unchanged(load(model), one)


@pytest.mark.parametrize("changed", ["model.safetensors", "config.json"])
def test_files_that_change_are_named(daemon: Daemon, tmp_path: pathlib.Path, changed: str) -> None:
    model = model_in(tmp_path)
    one = engine(daemon, model, ref="files@v1")
    (tmp_path / "other").write_bytes(b'{"a": 2}')
    os.replace(tmp_path / "other", tmp_path / changed)
    with pytest.raises(gpuwm.Mismatch, match="changed while it was read.*files@v1"):
        names.check_unchanged(load(model), one)


def test_an_identity_that_is_not_known_is_not_compared(
    daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    model = model_in(tmp_path)
    one = engine(daemon, model, ref="files@v1", inner="of-a-plugin")
    assert one.identity == {}
    names.check_unchanged(load(model), one)
