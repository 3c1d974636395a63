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

import os
from typing import TYPE_CHECKING, Any

from .. import errors
from . import checkpoint, hub, texts

if TYPE_CHECKING:
    from ..client import Client

PREFIX = "identity."  # of all fields' names; no field of a layout begins with it
WEIGHTS = PREFIX + "weights"  # the field that differs if a weight file does


def identity(
    model_config: Any,
    client: Client | None = None,
    *,
    inner: str = "auto",
    download_dir: str | None = None,
    raw: str | None = None,
) -> dict[str, str]:
    """The fields `identity.kind`, `identity.weights` and `identity.config`.

    model_config: vLLM's, of the target or of a draft. inner: the load format of the loader that
    would read the files. download_dir: vLLM's, the folder that is the Hugging Face cache; None: the
    user's. raw: the ref "model@tag" of the version in gpuwm that is read instead of files, of which
    `client` asks gpuwmd.

    Costs a few system calls a file, and for a model of the hub two requests unless HF_HUB_OFFLINE
    is set. NotFound: there is no such checkpoint. Unsupported: its content can't be known; the
    remedy is a ref of the user's own. Damaged: an index file that is none.
    """
    if raw is not None:
        return of_version(raw, client)[1]
    if inner == "dummy":
        return _fields("none", "random weights of vLLM's load format dummy", "")
    path = getattr(model_config, "model_weights", "") or model_config.model
    code = bool(getattr(model_config, "trust_remote_code", False))
    if os.path.isdir(path):
        found = checkpoint.in_folder(path, inner, code)
    else:
        _check_is_repository(path)
        found = hub.files(path, model_config.revision, inner, download_dir, code)
    kinds = ", ".join(f"{kind} of {number}" for kind, number in found.kinds.items())
    return _fields(kinds, texts.digest(found.marks), found.config)


def _fields(kind: str, weights: str, config: str) -> dict[str, str]:
    fields = {"kind": kind, "weights": weights, "config": config}
    return {PREFIX + name: value for name, value in fields.items() if value}


def _check_is_repository(path: str) -> None:
    if "://" in path:
        raise errors.Unsupported(
            f"the content of {path} is not known without reading it", checkpoint.REMEDY
        )
    if os.path.isfile(path):
        raise errors.Unsupported(
            f"{path} is one file, of a format that vLLM converts", checkpoint.REMEDY
        )
    if path.startswith(("/", "./", "../", "~")):
        raise errors.NotFound(f"there is no folder {path}")
    import vllm.envs as envs

    if envs.VLLM_USE_MODELSCOPE:
        raise errors.Unsupported(
            f"{path} is a model of ModelScope, which lists no hashes", checkpoint.REMEDY
        )


def of_version(ref: str, client: Client | None = None) -> tuple[str, dict[str, str]]:
    """The id of the version that a ref names now, and the fields of its identity. An alias may
    move, so whoever reads the version later attaches to the id. NotFound: no ready version."""
    from .. import client as clients

    asked = client or clients.shared()
    model, _, tag = ref.partition("@")
    listed = asked.list(model)
    ids = {alias["alias"]: alias["version"] for alias in listed["aliases"]}
    wanted = ids.get(tag or "current")
    for version in listed["versions"]:
        if version["state"] == "ready" and (version["version"] == wanted or version["tag"] == tag):
            return version["version"], _fields("gpuwm", version["content"], "")
    raise errors.NotFound(f"gpuwmd has no ready version {ref}", "gpuwmctl ls lists what it has")
