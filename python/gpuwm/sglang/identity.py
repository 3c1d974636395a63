"""The identity of the checkpoint that an engine of SGLang would load: `gpuwm.engines.identity` with
SGLang's files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..engines import checkpoint
from ..engines import identity as shared


def _auto(names: Iterable[str]) -> str:
    return "any"


def _uses_modelscope() -> bool:
    from sglang.srt.environ import envs

    return bool(envs.SGLANG_USE_MODELSCOPE.get())


# The formats of SGLang's default loader, which takes *.pt files if a format's own are missing.
FORMATS = checkpoint.Formats(
    "SGLang",
    {
        "any": ("*.safetensors", "*.bin", "*.pt"),
        "safetensors": ("*.safetensors", "*.pt"),
        "fastsafetensors": ("*.safetensors", "*.pt"),
        "runai_streamer": ("*.safetensors",),
        "mistral": ("consolidated*.safetensors", "*.pt"),
        "pt": ("*.pt",),
        "npcache": ("*.bin", "*.pt"),
    },
    _auto,
    _uses_modelscope,
    unlisted=("mtp.safetensors",),  # SGLang's maybe_add_mtp_safetensors
)


def identity(
    server_args: Any, model_config: Any, inner: str, download_dir: str | None
) -> dict[str, str]:
    """The fields `identity.kind`, `identity.weights` and `identity.config`. inner: the load format
    that would read the files. Raises the errors of `gpuwm.engines.identity.of_files`."""
    if inner == "dummy":
        return shared.fields("none", "random weights of SGLang's load format dummy", "")
    code = bool(server_args.trust_remote_code)
    path, revision = model_config.model_path, model_config.revision
    reading = checkpoint.Reading(FORMATS, inner, code)
    return shared.of_files(path, revision, reading, download_dir)
