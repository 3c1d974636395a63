"""A checkpoint of the Hugging Face hub: its files, from the hub's listing or from the cache."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

from .. import errors
from . import checkpoint

ANSWER_SECONDS_MAX = 10.0  # huggingface_hub waits as long for a file's headers


def files(
    repo: str, revision: str | None, reading: checkpoint.Reading, cache: str | None
) -> checkpoint.Files:
    """The files of a repository at a revision (None: its main branch), as the engine would load it
    now.

    The hub's listing has the SHA-256 of every weight file, downloaded or not. If the hub does not
    answer, or HF_HUB_OFFLINE is set, the files are those of the snapshot in the cache, as they are
    for the engine. cache: the folder of the cache; None: the user's. Raises NotFound if neither the
    hub nor the cache has the revision, and Unsupported if it has no file that the engine would
    load, unless the model's class names others.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import RevisionNotFoundError

    why = "HF_HUB_OFFLINE is set"
    if not constants.HF_HUB_OFFLINE:
        try:
            return _listed(repo, revision, reading, cache)
        except errors.Error:
            raise
        except RevisionNotFoundError as error:
            raise errors.NotFound(f"{repo} has no revision {revision}: {error}") from error
        except Exception as error:  # the hub's HTTP library raises it, and differs by release
            why = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"the Hugging Face hub did not list {repo}, its cache counts: {why}",
                RuntimeWarning,
                stacklevel=2,
            )
    folder = _snapshot(repo, revision or "main", cache or constants.HF_HUB_CACHE)
    if folder is None:
        raise errors.NotFound(
            f"{repo} at revision {revision or 'main'} is not in the Hugging Face cache, and "
            f"the hub could not be asked ({why})",
            "download it first, or name a folder",
        )
    return checkpoint.in_folder(folder, reading)


def _listed(
    repo: str, revision: str | None, reading: checkpoint.Reading, cache: str | None
) -> checkpoint.Files:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.hf_api import RepoFile

    api = HfApi(library_name="gpuwm")
    commit = api.repo_info(repo, revision=revision, timeout=ANSWER_SECONDS_MAX).sha
    entries = {
        entry.path: entry
        for entry in api.list_repo_tree(repo, revision=commit)
        if isinstance(entry, RepoFile)
    }

    def index(name: str) -> Mapping[str, Any] | None:
        if name not in entries:
            return None
        path = hf_hub_download(repo, name, revision=commit, cache_dir=cache)
        return checkpoint.parse_index(path, checkpoint.read_small(path))

    chosen = checkpoint.choose(entries, reading, index)
    if not chosen:
        raise checkpoint.no_weights(repo, entries, reading)
    marks = {name: _mark(entries[name]) for name in chosen}
    small = {
        name: entries[name].blob_id for name in entries if checkpoint.is_small(name, reading.code)
    }
    return checkpoint.Files(
        {name: text for name, (_, text) in marks.items()},
        checkpoint.count(kind for kind, _ in marks.values()),
        checkpoint.digest_small(small),
    )


def _mark(entry: Any) -> tuple[str, str]:
    """The mark that checkpoint.mark gives the file in the cache, which is named by the same
    hash."""
    if entry.lfs is not None:
        return "sha256", checkpoint.blob_mark(entry.lfs.sha256, entry.lfs.size)
    return "git", checkpoint.blob_mark(entry.blob_id, entry.size)


def _snapshot(repo: str, revision: str, cache: str) -> str | None:
    """The folder of a revision in the cache, or None if it isn't there."""
    stored = os.path.join(cache, "models--" + repo.replace("/", "--"))
    commit = revision
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        try:
            with open(os.path.join(stored, "refs", *revision.split("/"))) as file:
                commit = file.read().strip()
        except OSError:
            return None
    folder = os.path.join(stored, "snapshots", commit)
    return folder if os.path.isdir(folder) else None
