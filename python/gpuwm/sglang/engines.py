"""What one engine of SGLang asks gpuwm for: names, keys, and the ranks that load together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import client as clients
from .. import devices, errors
from ..engines import differences, fields, texts
from ..engines import engine as shared
from ..engines import identity as identities
from ..engines.engine import Named, check_places, device_of, no_checkpoint
from ..engines.ranks import Ranks
from ..mapping import Mapping as Attached
from . import identity, keys
from .settings import Settings

log = logging.getLogger("sglang.gpuwm")
DRAFT = ".draft"  # the end of a draft's ref; the rest is the target's ref
CONFIGURATION = "sglang.configuration"  # metadata: the texts of which the key has only digests


@dataclass(frozen=True)
class Load:
    """What SGLang gives its loader. device: of torch's kind. load_config: of the inner loader."""

    server_args: Any
    model_config: Any
    load_config: Any
    device: str


class Engine(shared.Engine):
    """One load of a model by all ranks of an engine of SGLang."""

    log = log
    settings: Settings

    def compare(self, mapping: Attached, wanted: Mapping[str, str]) -> None:
        version = str(mapping.version)
        details = (CONFIGURATION, self.details)
        differences.compare(version, mapping.metadata, wanted, remedy, details)


def engine(settings: Settings, load: Load) -> Engine:
    """Connects, computes keys and names, and compares them with the other ranks. Collective: see
    Ranks. Raises Unreachable (there is no gpuwmd), Unsupported (ranks that can't share a version),
    NotFound (the checkpoint of mode raw) and OSError (the checkpoint's files)."""
    ranks = _ranks(load)
    ref = _ref(settings, load)
    error: Exception | None = None
    here: tuple[str, str] = ("", "")
    try:
        client = clients.connect(settings.socket, name="sglang", wait=settings.wait)
        device = devices.resolve(device_of(load.device), client) or devices.HOST
        here = client.instance, device
        layout = keys.layout(load.server_args, load.model_config, load.load_config, load.device)
        details = _details(load)
    except Exception as failed:
        error = failed
    ranks.agree("connect to gpuwmd", error)
    places = ranks.gather(here)
    check_places(places)
    named: Named | None = None
    try:
        if ranks.rank == 0:
            named = _named(settings, ref, load, client, layout, [at for _, at in places])
    except Exception as failed:
        error = failed
    ranks.agree("name the version", error)
    name, found, checkpoint = ranks.first(named)
    return Engine(settings, client, ranks, device, layout, details, found, name, ref, checkpoint)


def check_unchanged(engine: Engine, load: Load) -> None:
    """Raises Mismatch if the checkpoint is no longer the one whose identity the engine has, because
    it changed while the engine waited or read. Call it after the files were read and before the
    model is published. Only rank 0 looks, and not if the identity is unknown, nor in mode raw."""
    if not engine.identity or engine.checkpoint is not None or engine.ranks.rank != 0:
        return
    now = _identity_of_files(engine.settings, load)
    # The hub lists small files that SGLang does not download, so only the weights are compared.
    before, after = (found.get(identities.WEIGHTS) for found in (engine.identity, now))
    if before != after:
        raise errors.Mismatch(
            f"the checkpoint {load.model_config.model_path} changed while it was read: "
            f"{identities.WEIGHTS} was {before} when {engine.name} was named, and is {after} now",
            "start the engine again when nobody writes the checkpoint",
        )


def _ranks(load: Load) -> Ranks:
    if load.server_args.tp_size * load.server_args.pp_size == 1:
        return Ranks()
    from sglang.srt.distributed import get_world_group

    return Ranks(get_world_group())


def _ref(settings: Settings, load: Load) -> str | None:
    """The ref for this model. A draft has the target's options, and gets a ref of its own."""
    if settings.ref is None or not load.model_config.is_draft_model:
        return settings.ref
    number = load.load_config.draft_model_idx
    return settings.ref + DRAFT + ("" if number is None else str(number))


def _details(load: Load) -> dict[str, str]:
    found = {
        "config": fields.configuration(load.model_config),
        "quantization": keys.quantization(load.model_config, load.load_config),
    }
    return {CONFIGURATION: texts.canonical(found)}


def _named(
    settings: Settings,
    ref: str | None,
    load: Load,
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
            version, found = identities.of_version(ref, client)
        except errors.NotFound as error:
            raise no_checkpoint(error, ref, at[0]) from error
        return Named(keys.derived_name(load.model_config, found, layout, at), found, version)
    try:
        found = _identity_of_files(settings, load)
    except errors.Unsupported as error:
        if ref is None:
            raise
        log.warning(
            "gpuwm: whether %s is of the checkpoint of this engine is not checked: %s", ref, error
        )
        found = {}
    return Named(ref or keys.derived_name(load.model_config, found, layout, at), found)


def _identity_of_files(settings: Settings, load: Load) -> dict[str, str]:
    download_dir = load.load_config.download_dir
    return identity.identity(load.server_args, load.model_config, settings.inner, download_dir)


_REMEDIES = {
    "dtype": "start the engine with the version's --dtype",
    "quantization": "start the engine with the version's --quantization",
    "tp": "start the engine with the version's --tp-size",
    "pp": "start the engine with the version's --pp-size",
    "experts": "start the engine with the version's --ep-size and --moe-dp-size",
    "cache": "start the engine with the version's --kv-cache-dtype",
    "attention": "start the engine with the version's --attention-backend",
    "moe": "start the engine with the version's --moe-runner-backend and --moe-a2a-backend",
    "lora": "start the engine as the version's was: with or without --enable-lora",
    "environment": "set the version's environment variables",
}


def remedy(field: str) -> str:
    """What a user of SGLang can do about a difference in this field."""
    first = _REMEDIES.get(field, "start the engine as the version's was")
    return f'{first}, or give another "ref", or none: then this engine derives a name of its own'
