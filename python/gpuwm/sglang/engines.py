"""What one engine of SGLang asks gpuwm for: names, keys, and the ranks that load together."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .._mapping import Mapping as Attached
from ..engines import differences, fields, names, texts
from ..engines import engine as shared
from ..engines.identity import WEIGHTS
from ..engines.ranks import Ranks
from ..engines.raw import Share
from ..engines.settings import Settings
from . import identity, keys

log: logging.Logger = logging.getLogger("sglang.gpuwm")
CONFIGURATION = "sglang.configuration"  # metadata: the texts of which the key has only digests


class Engine(shared.Engine):
    """One load of a model by all ranks of an engine of SGLang."""

    log = log

    def compare(self, mapping: Attached, wanted: Mapping[str, str]) -> None:
        version = str(mapping.version)
        details = (CONFIGURATION, self.details)
        differences.compare(version, mapping.metadata, wanted, remedy, details)


@dataclass(frozen=True)
class Load(names.Load):
    """What SGLang gives its loader.

    - server_args: what SGLang decided (`arguments.decided`).
    - load_config: of the inner loader.
    - device: torch's name of this rank's device.
    """

    kind = "sglang"
    engine: ClassVar[type[shared.Engine]] = Engine
    rank_fields: ClassVar[Collection[str]] = keys.RANK_FIELDS

    server_args: Any
    model_config: Any
    load_config: Any
    device: str

    @property
    def model(self) -> str:
        return str(self.model_config.model_path)

    @property
    def device_kind(self) -> str:
        import torch

        return torch.device(self.device).type

    def ranks(self) -> Ranks:
        if self.server_args.tp_size * self.server_args.pp_size == 1:
            return Ranks()
        from sglang.srt.distributed.parallel_state import get_world_group

        return Ranks(get_world_group())

    def share(self) -> Share:
        from sglang.srt.runtime_context import get_parallel

        now = get_parallel()
        return Share(now.tp_rank, now.tp_size)

    def ref(self, settings: Settings) -> str | None:
        if settings.ref is None or not self.model_config.is_draft_model:
            return settings.ref
        number = self.load_config.draft_model_idx
        return settings.ref + names.DRAFT + ("" if number is None else str(number))

    def layout(self) -> dict[str, str]:
        return keys.layout(self.server_args, self.model_config, self.load_config, self.device_kind)

    def details(self) -> dict[str, str]:
        found = {
            "config": fields.configuration(self.model_config),
            "quantization": keys.quantization(self.model_config, self.load_config),
        }
        return {CONFIGURATION: texts.canonical(found)}

    def identity(self, inner: str) -> dict[str, str]:
        download_dir = self.load_config.download_dir
        return identity.identity(self.server_args, self.model_config, inner, download_dir)

    def compared(self, found: Collection[str]) -> Collection[str]:
        """Only the weights: the hub lists small files that SGLang does not download."""
        return (WEIGHTS,)


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
    "arguments": "start the engine with the version's arguments",
    "environment": "set the version's environment variables",
}


def remedy(field: str) -> str:
    """What a user of SGLang can do about a difference in this field."""
    return differences.remedy(_REMEDIES, field)
