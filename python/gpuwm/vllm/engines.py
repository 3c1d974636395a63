"""What one engine asks gpuwm for: names, keys, and the ranks that load together."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from typing import Any

from .. import client as clients
from .. import devices, errors
from ..engines import engine as shared
from ..engines.engine import Named, attach_raw, check_places, device_of, no_checkpoint
from ..mapping import Mapping as Attached
from . import differences, identity, keys
from . import ranks as groups
from .settings import Settings, parse

log = logging.getLogger("vllm.gpuwm")
__all__ = ["Engine", "attach_raw", "check_unchanged", "draft_bytes", "engine", "is_draft", "ref_of"]
DRAFT = ".draft"  # the end of a draft's ref; the rest is the target's ref


class Engine(shared.Engine):
    """One load of a model by all ranks of an engine of vLLM."""

    log = log
    settings: Settings

    def compare(self, mapping: Attached, wanted: Mapping[str, str]) -> None:
        differences.compare(str(mapping.version), mapping.metadata, wanted, self.details)


def is_draft(vllm_config: Any, model_config: Any) -> bool:
    """Whether the model is the draft of speculative decoding."""
    speculative = vllm_config.speculative_config
    return speculative is not None and (
        model_config is speculative.draft_model_config
        and model_config is not speculative.target_model_config
    )


def engine(settings: Settings, vllm_config: Any, model_config: Any, prefix: str) -> Engine:
    """Connects, computes keys and names, and compares them with the other ranks. Collective: see
    Ranks. Raises Unreachable (there is no gpuwmd), Unsupported (ranks that can't share a version),
    NotFound (the checkpoint of mode raw) and OSError (the checkpoint's files)."""
    draft = is_draft(vllm_config, model_config)
    ranks = groups.ranks(vllm_config, draft)
    ref = ref_of(settings, vllm_config, draft)
    error: Exception | None = None
    here: tuple[str, str] = ("", "")
    try:
        client = clients.connect(settings.socket, name="vllm", wait=settings.wait)
        device = devices.resolve(_device(vllm_config), client) or devices.HOST
        here = client.instance, device
        layout = keys.layout(vllm_config, model_config, prefix)
        details = differences.details(vllm_config, model_config)
    except Exception as failed:
        error = failed
    ranks.agree("connect to gpuwmd", error)
    places = ranks.gather(here)
    check_places(places)
    named: Named | None = None
    try:
        if ranks.rank == 0:
            at = [device for _, device in places]
            named = _named(settings, ref, vllm_config, model_config, client, layout, at)
    except Exception as failed:
        error = failed
    ranks.agree("name the version", error)
    name, found, checkpoint = ranks.first(named)
    return Engine(settings, client, ranks, device, layout, details, found, name, ref, checkpoint)


def ref_of(settings: Settings, vllm_config: Any, draft: bool) -> str | None:
    """The ref for this model. A draft whose options name the target's ref gets a ref of its own."""
    target = vllm_config.load_config.model_loader_extra_config or {}
    if settings.ref is None or not draft or target.get("ref") != settings.ref:
        return settings.ref
    return settings.ref + DRAFT


def check_unchanged(engine: Engine, vllm_config: Any, model_config: Any) -> None:
    """Raises Mismatch if the checkpoint is no longer the one whose identity the engine has, because
    it changed while the engine waited or read. Call it after the files were read and before the
    model is published.

    Only rank 0 looks. The function does nothing if the identity is not known, and in mode raw,
    where the bytes of a version do not change. It also raises what the identity of files raises.
    """
    if not engine.identity or engine.checkpoint is not None or engine.ranks.rank != 0:
        return
    now = _identity_of_files(engine.settings, vllm_config, model_config)
    # The hub lists small files that vLLM does not download. If the hub does not answer this time,
    # the files in the cache count. So only the weights can be compared.
    path = getattr(model_config, "model_weights", "") or model_config.model
    compared = set(now) if os.path.isdir(path) else {identity.WEIGHTS}
    for field in sorted(compared & {*engine.identity, *now}):
        before, after = engine.identity.get(field), now.get(field)
        if before != after:
            raise errors.Mismatch(
                f"the checkpoint {path} changed while it was read: {field} was "
                f"{before} when {engine.name} was named, and is {after} now",
                "start the engine again when nobody writes the checkpoint",
            )


# ---- names -------------------------------------------------------------------------------------


def _named(
    settings: Settings,
    ref: str | None,
    vllm_config: Any,
    model_config: Any,
    client: clients.Client,
    layout: dict[str, str],
    at: list[str],
) -> Named:
    """at: the devices of all ranks."""
    if settings.mode == "load":
        assert ref is not None
        return Named(ref, {})
    if settings.mode == "raw":
        assert ref is not None
        try:
            version, found = identity.of_version(ref, client)
        except errors.NotFound as error:
            raise no_checkpoint(error, ref, at[0]) from error
        return Named(keys.derived_name(model_config, found, layout, at), found, version)
    try:
        found = _identity_of_files(settings, vllm_config, model_config)
    except errors.Unsupported as error:
        if ref is None:
            raise
        log.warning(
            "gpuwm: whether %s is of the checkpoint of this engine is not checked: %s", ref, error
        )
        found = {}
    return Named(ref or keys.derived_name(model_config, found, layout, at), found)


def _identity_of_files(settings: Settings, vllm_config: Any, model_config: Any) -> dict[str, str]:
    return identity.identity(
        model_config,
        inner=settings.inner,
        download_dir=vllm_config.load_config.download_dir,
    )


def _device(vllm_config: Any) -> str:
    import torch

    return device_of(torch.device(vllm_config.device_config.device).type)


# ---- a draft model, before it is loaded --------------------------------------------------------


def draft_bytes(vllm_config: Any, target: Engine) -> int:
    """The bytes of the draft model's version on this rank's device, if it is ready. 0: there is no
    draft model, this format does not load it, or it is not there yet."""
    speculative = vllm_config.speculative_config
    model_config = getattr(speculative, "draft_model_config", None)
    if model_config is None or not is_draft(vllm_config, model_config):
        return 0
    load_config = speculative.draft_load_config or vllm_config.load_config
    if load_config.load_format != vllm_config.load_config.load_format:
        return 0
    chosen = parse(load_config.model_loader_extra_config or {})
    # The prefixes with which vLLM's proposers load a draft.
    prefix = "draft_model" if speculative.method == "draft_model" else ""
    layout = keys.layout(vllm_config, model_config, prefix)
    places = target.ranks.gather(target.device)
    named: Named | None = None
    if target.ranks.rank == 0:
        ref = ref_of(chosen, vllm_config, True)
        with contextlib.suppress(errors.Error, OSError):  # its own load will say what is wrong
            named = _named(chosen, ref, vllm_config, model_config, target.client, layout, places)
    named = target.ranks.first(named)
    return 0 if named is None else _bytes_of(target, named.name)


def _bytes_of(engine: Engine, name: str) -> int:
    """The bytes of the version that this rank would attach to. It takes no lease."""
    model, _, tag = name.partition("@")
    found = engine.client.list(model)
    named = {each["version"] for each in found["aliases"] if each["alias"] == (tag or "current")}
    for row in found["versions"]:
        if row["state"] == "ready" and (row["tag"] == tag or row["version"] in named):
            return sum(
                part["bytes"]
                for part in row["parts"]
                if part["device"] == engine.device and part["rank"] == engine.ranks.rank
            )
    return 0
