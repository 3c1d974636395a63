"""What one engine of vLLM asks gpuwm for: names, keys, and the ranks that load together."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import errors
from .._mapping import Mapping as Attached
from ..engines import engine as shared
from ..engines import names
from ..engines.engine import Named
from ..engines.identity import WEIGHTS
from ..engines.ranks import Ranks
from ..engines.raw import Share
from ..engines.settings import Settings
from . import differences, identity, keys
from . import ranks as groups
from . import settings as options

log: logging.Logger = logging.getLogger("vllm.gpuwm")


class Engine(shared.Engine):
    """One load of a model by all ranks of an engine of vLLM."""

    log = log

    def compare(self, mapping: Attached, wanted: Mapping[str, str]) -> None:
        differences.compare(str(mapping.version), mapping.metadata, wanted, self.details)


@dataclass(frozen=True)
class Load(names.Load):
    """What vLLM gives its loader. prefix: of the names of the model's modules."""

    kind = "vllm"
    engine: ClassVar[type[shared.Engine]] = Engine
    rank_fields: ClassVar[Collection[str]] = keys.RANK_FIELDS

    vllm_config: Any
    model_config: Any
    prefix: str = ""

    @property
    def model(self) -> str:
        return str(self.model_config.model)

    @property
    def files(self) -> str:
        return getattr(self.model_config, "model_weights", "") or self.model

    @property
    def device_kind(self) -> str:
        import torch

        return torch.device(self.vllm_config.device_config.device).type

    @property
    def is_draft(self) -> bool:
        """Whether the model is the draft of speculative decoding."""
        speculative = self.vllm_config.speculative_config
        return speculative is not None and (
            self.model_config is speculative.draft_model_config
            and self.model_config is not speculative.target_model_config
        )

    def ranks(self) -> Ranks:
        return groups.ranks(self.vllm_config, self.is_draft)

    def share(self) -> Share:
        size = self.vllm_config.parallel_config.tensor_parallel_size
        return Share(keys.ranks(self.vllm_config).tp, size)

    def ref(self, settings: Settings) -> str | None:
        target = self.vllm_config.load_config.model_loader_extra_config or {}
        if settings.ref is None or not self.is_draft or target.get("ref") != settings.ref:
            return settings.ref
        return settings.ref + names.DRAFT

    def layout(self) -> dict[str, str]:
        return keys.layout(self.vllm_config, self.model_config, self.prefix)

    def details(self) -> dict[str, str]:
        return differences.details(self.vllm_config, self.model_config)

    def identity(self, inner: str) -> dict[str, str]:
        download_dir = self.vllm_config.load_config.download_dir
        return identity.identity(self.model_config, inner=inner, download_dir=download_dir)

    def compared(self, found: Collection[str]) -> Collection[str]:
        """Of a folder all fields. The hub lists small files that vLLM does not download. If the hub
        does not answer the second time, the files in the cache count. So only the weights of its
        models can be compared."""
        return found if os.path.isdir(self.files) else (WEIGHTS,)


# ---- a draft model, before it is loaded --------------------------------------------------------


def draft_bytes(vllm_config: Any, target: shared.Engine) -> int:
    """The bytes of the draft model's version on this rank's device, if it is ready. 0: there is no
    draft model, this format does not load it, or it is not there yet."""
    speculative = vllm_config.speculative_config
    model_config = getattr(speculative, "draft_model_config", None)
    if model_config is None:
        return 0
    # The prefixes with which vLLM's proposers load a draft.
    prefix = "draft_model" if speculative.method == "draft_model" else ""
    draft = Load(vllm_config, model_config, prefix)
    if not draft.is_draft:
        return 0
    load_config = speculative.draft_load_config or vllm_config.load_config
    if load_config.load_format != vllm_config.load_config.load_format:
        return 0
    chosen = options.parse(load_config.model_loader_extra_config or {})
    layout = draft.layout()
    places = target.ranks.gather(target.device)
    named: Named | None = None
    if target.ranks.rank == 0:
        with contextlib.suppress(errors.Error, OSError):  # its own load will say what is wrong
            named = names.named(draft, chosen, target.client, layout, places)
    named = target.ranks.first(named)
    return 0 if named is None else _bytes_of(target, named.name)


def _bytes_of(engine: shared.Engine, name: str) -> int:
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
