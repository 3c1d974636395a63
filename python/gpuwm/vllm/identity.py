"""Which checkpoint an engine would load: fields of a key that differ if the content does.

No weight file is read. In the order of what is known for sure:

1. Mode raw: the content digest that gpuwm computed over every byte of the version that is read.
2. Files of the Hugging Face hub, in its cache or not downloaded yet: their SHA-256, or for a file
   that is not in large-file storage its git hash, as the hub and the names in the cache tell it.
3. Any other file: its size, its times of modification and change in nanoseconds, and its inode.

What this can't tell:

- whether somebody wrote into a file of the cache in place: the file's name stays its old hash;
- that two copies of one file outside of the cache are equal: they count as different checkpoints,
  and after a copy, a `touch`, a `chmod` or a new hard link a file counts as another one;
- a write that leaves size, times and inode as they were: one in the same tick of the clock as the
  write before it (4 ms before Linux 6.13), or one by a process that may set the clock back;
- checkpoints that a model's class names in its own code (the text model of Ultravox): only the
  model's own files count;
- whether a branch of the hub moves between this call and vLLM's own download: name a commit.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any

from ..engines import checkpoint
from ..engines import identity as shared


def _auto(names: Iterable[str]) -> str:
    return "mistral" if fnmatch.filter(names, _CONSOLIDATED) else "hf"


def _uses_modelscope() -> bool:
    import vllm.envs as envs

    return bool(envs.VLLM_USE_MODELSCOPE)


_CONSOLIDATED = "consolidated*.safetensors"
# The formats of vLLM's default loader.
FORMATS = checkpoint.Formats(
    "vLLM",
    {
        "hf": ("*.safetensors", "*.bin", "*.pt"),
        "safetensors": ("*.safetensors",),
        "fastsafetensors": ("*.safetensors",),
        "instanttensor": ("*.safetensors",),
        "runai_streamer": ("*.safetensors",),
        "mistral": (_CONSOLIDATED,),
        "pt": ("*.pt",),
        "npcache": ("*.bin", "*.pt"),
    },
    _auto,
    _uses_modelscope,
)


def identity(
    model_config: Any, *, inner: str = "auto", download_dir: str | None = None
) -> dict[str, str]:
    """The fields `identity.kind`, `identity.weights` and `identity.config`.

    - model_config: vLLM's, of the target or of a draft.
    - inner: the load format of the loader that would read the files.
    - download_dir: the setting of vLLM, the folder of the Hugging Face cache. None: the user's.

    It costs a few system calls a file, and for a model of the hub two requests unless
    HF_HUB_OFFLINE is set. Raises NotFound if there is no such checkpoint, Unsupported if gpuwm
    can't know its content (the remedy is a ref of the user's own), and Damaged if an index file
    can't be read.
    """
    if inner == "dummy":
        return shared.fields("none", "random weights of vLLM's load format dummy", "")
    path = getattr(model_config, "model_weights", "") or model_config.model
    code = bool(getattr(model_config, "trust_remote_code", False))
    revision = getattr(model_config, "revision", None)
    reading = checkpoint.Reading(FORMATS, inner, code)
    return shared.of_files(path, revision, reading, download_dir)
