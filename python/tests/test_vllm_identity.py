"""Which checkpoint it is, without vLLM and without the Hugging Face hub."""

import json
import os
import sys
import types
from typing import Any

import pytest

import gpuwm
from gpuwm.engines import checkpoint, hub
from gpuwm.vllm import identity

SHA = "ab" * 32
GIT = "cd" * 20
COMMIT = "0123456789" * 4


def config_of(path: Any, **changes: Any) -> Any:
    return types.SimpleNamespace(model=str(path), revision=None, **changes)


def reading(load_format: str = "auto") -> checkpoint.Reading:
    return checkpoint.Reading(identity.FORMATS, load_format)


def folder_with(path: Any, *names: Any, **contents: Any) -> Any:
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).write_bytes(b"x")
    for name, content in contents.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def cached(root: Any, names: Any, commit: Any = COMMIT, revision: Any = "main") -> Any:
    """A repository org/name in a cache of the Hugging Face hub. names: the blob of each file."""
    stored = root / "models--org--name"
    snapshot = stored / "snapshots" / commit
    for folder in (stored / "blobs", stored / "refs", snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    (stored / "refs" / revision).write_text(commit)
    for name, blob in names.items():
        (stored / "blobs" / blob).write_bytes(b"blob")
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    return snapshot


# ---- which files count ----


@pytest.mark.parametrize(
    ("names", "load_format", "chosen"),
    [
        (["a.safetensors", "b.safetensors", "c.bin"], "auto", ["a.safetensors", "b.safetensors"]),
        (["c.bin", "training_args.bin", "d.pt"], "auto", ["c.bin"]),
        (["d.pt", "scheduler.pt"], "auto", ["d.pt"]),
        (["a.safetensors", "consolidated.safetensors"], "auto", ["consolidated.safetensors"]),
        (["a.safetensors", "consolidated.safetensors"], "mistral", ["consolidated.safetensors"]),
        (["a.safetensors", "c.bin"], "npcache", ["c.bin"]),
        (["original/a.safetensors", "c.bin"], "hf", ["c.bin"]),
        (["c.bin"], "safetensors", []),
    ],
)
def test_the_files_are_those_that_vllm_would_read(
    names: Any, load_format: Any, chosen: Any
) -> None:
    assert checkpoint.choose(names, reading(load_format), lambda _: None) == chosen


def test_a_shard_that_the_index_does_not_name_does_not_count(tmp_path: Any) -> None:
    folder = folder_with(tmp_path, "a.safetensors", "b.safetensors", "old.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / checkpoint.SAFETENSORS_INDEX).write_text(json.dumps(index))
    assert sorted(checkpoint.in_folder(str(folder), reading()).marks) == [
        "a.safetensors",
        "b.safetensors",
    ]


def test_a_file_that_an_engine_reads_without_being_listed_counts(tmp_path: Any) -> None:
    folder = folder_with(tmp_path, "a.safetensors", "mtp.safetensors", "old.safetensors")
    index = {"weight_map": {"x": "a.safetensors"}}
    (folder / checkpoint.SAFETENSORS_INDEX).write_text(json.dumps(index))
    formats = identity.FORMATS._replace(unlisted=("mtp.safetensors",))
    found = checkpoint.in_folder(str(folder), checkpoint.Reading(formats)).marks
    assert sorted(found) == ["a.safetensors", "mtp.safetensors"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": 1}'])
def test_an_index_that_is_none_is_named(tmp_path: Any, content: Any) -> None:
    folder = folder_with(tmp_path, "a.safetensors")
    (folder / checkpoint.SAFETENSORS_INDEX).write_text(content)
    with pytest.raises(gpuwm.Damaged, match="model.safetensors.index.json is no index"):
        checkpoint.in_folder(str(folder), reading())


def test_an_index_too_large_to_read_is_named(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(checkpoint, "INDEX_BYTES_MAX", 4)
    folder = folder_with(tmp_path, "a.safetensors", config={"hidden_size": 64})
    with pytest.raises(gpuwm.Damaged, match=r"config.json has 19 bytes; gpuwm reads at most 4"):
        checkpoint.in_folder(str(folder), reading())


def test_a_load_format_of_other_files_asks_for_a_name(tmp_path: Any) -> None:
    with pytest.raises(gpuwm.Unsupported, match="tensorizer.*ref"):
        checkpoint.in_folder(str(folder_with(tmp_path, "a.safetensors")), reading("tensorizer"))


def test_a_folder_without_weights_says_what_it_has(tmp_path: Any) -> None:
    with pytest.raises(gpuwm.Unsupported, match=r"no weights.*it has readme.*ref"):
        identity.identity(config_of(folder_with(tmp_path, "readme")))


# ---- a folder ----


def test_the_same_folder_is_the_same_checkpoint(tmp_path: Any) -> None:
    folder = folder_with(tmp_path, "a.safetensors", config={"a": 1})
    assert identity.identity(config_of(folder)) == identity.identity(config_of(folder))


@pytest.mark.parametrize("change", ["bytes", "bytes, times put back", "replaced", "config", "code"])
def test_a_change_makes_another_checkpoint(tmp_path: Any, change: Any) -> None:
    folder = folder_with(tmp_path, "a.safetensors", "model.py", config={"a": 1})
    config = config_of(folder, trust_remote_code=True)
    before = identity.identity(config)
    weights = folder / "a.safetensors"
    times = os.stat(weights)
    if change == "replaced":
        (folder / "new").write_bytes(b"x")
        os.utime(folder / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
        os.replace(folder / "new", weights)
    elif change == "config":
        (folder / "config.json").write_text("{}")
    elif change == "code":
        (folder / "model.py").write_bytes(b"y")
    else:
        weights.write_bytes(b"y")
        # Before Linux 6.13 a file's clock ticks every few milliseconds only.
        while os.stat(weights).st_ctime_ns == times.st_ctime_ns:
            weights.write_bytes(b"y")
        if "put back" in change:
            os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert identity.identity(config) != before


def test_a_file_that_is_no_part_of_the_checkpoint_changes_nothing(tmp_path: Any) -> None:
    folder = folder_with(tmp_path, "a.safetensors", "model.py")
    before = identity.identity(config_of(folder))
    (folder / "README.md").write_text("x")
    (folder / "model.py").write_bytes(b"y")  # without trust_remote_code nobody runs it
    assert identity.identity(config_of(folder)) == before


def test_random_weights_have_no_files() -> None:
    found = identity.identity(config_of("/nowhere"), inner="dummy")
    assert found["identity.kind"] == "none"


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("s3://bucket/model", gpuwm.Unsupported, "not known without reading"),
        ("/nowhere/at/all", gpuwm.NotFound, "there is no folder"),
        (__file__, gpuwm.Unsupported, "is one file"),
    ],
)
def test_what_has_no_identity_says_why(path: Any, error: Any, text: Any) -> None:
    with pytest.raises(error, match=text):
        identity.identity(config_of(path))


# ---- the cache of the Hugging Face hub ----


def test_blobs_are_known_by_their_names(tmp_path: Any) -> None:
    one = cached(tmp_path / "one", {"a.safetensors": SHA, "b.safetensors": GIT})
    two = cached(tmp_path / "two", {"a.safetensors": SHA, "b.safetensors": GIT}, "9" * 40)
    found = identity.identity(config_of(one))
    assert found["identity.kind"] == "git of 1, sha256 of 1"
    assert identity.identity(config_of(two)) == found


def test_another_blob_is_another_checkpoint(tmp_path: Any) -> None:
    one = cached(tmp_path / "one", {"a.safetensors": SHA})
    two = cached(tmp_path / "two", {"a.safetensors": SHA[::-1]})
    assert identity.identity(config_of(one)) != identity.identity(config_of(two))


def test_a_link_to_a_blob_that_is_gone_is_named(tmp_path: Any) -> None:
    snapshot = cached(tmp_path, {"a.safetensors": SHA})
    (tmp_path / "models--org--name" / "blobs" / SHA).unlink()
    with pytest.raises(gpuwm.NotFound, match="not there: a.safetensors"):
        identity.identity(config_of(snapshot))


class Hub:
    """A module huggingface_hub. listing: path to (size, git hash, SHA-256 or None); None: no
    answer."""

    def __init__(self, monkeypatch: Any, listing: Any, cache: Any, offline: Any = False) -> None:
        def entry(path: Any) -> Any:
            size, git, sha = listing[path]
            lfs = sha and types.SimpleNamespace(sha256=sha, size=size)
            return RepoFile(path=path, size=size, blob_id=git, lfs=lfs)

        class RepoFile(types.SimpleNamespace):
            pass

        class RevisionNotFoundError(Exception):
            pass

        class HfApi:
            def __init__(self, library_name: Any) -> None:
                pass

            def repo_info(self, repo: Any, revision: Any, timeout: Any) -> Any:
                if revision == "gone":
                    raise RevisionNotFoundError("404")
                if listing is None:
                    raise OSError("no network")
                return types.SimpleNamespace(sha=COMMIT)

            def list_repo_tree(self, repo: Any, revision: Any) -> Any:
                assert revision == COMMIT
                return [entry(path) for path in listing]

        self.downloads: list[str] = []

        def download(repo: Any, name: Any, revision: Any, cache_dir: Any) -> Any:
            self.downloads.append(name)
            return str(cache / "models--org--name" / "snapshots" / revision / name)

        module: Any = types.ModuleType("huggingface_hub")
        module.constants = types.SimpleNamespace(HF_HUB_OFFLINE=offline, HF_HUB_CACHE=str(cache))
        module.HfApi, module.hf_hub_download = HfApi, download
        hf_api: Any = types.ModuleType("huggingface_hub.hf_api")
        errors: Any = types.ModuleType("huggingface_hub.errors")
        hf_api.RepoFile, errors.RevisionNotFoundError = RepoFile, RevisionNotFoundError
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)
        monkeypatch.setitem(sys.modules, "huggingface_hub.hf_api", hf_api)
        monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)


def of_hub(revision: Any = None) -> Any:
    return hub.files("org/name", revision, reading(), None)


def test_the_hub_and_its_cache_tell_the_same(tmp_path: Any, monkeypatch: Any) -> None:
    snapshot = cached(tmp_path, {"a.safetensors": SHA})
    (snapshot / "config.json").write_bytes(b"{}")
    listing = {
        "a.safetensors": (4, "f" * 40, SHA),
        # The git hash of "{}".
        "config.json": (2, "9e26dfeeb6e641a33dae4961196235bdb965b21b", None),
    }
    Hub(monkeypatch, listing, tmp_path)
    online = of_hub()
    Hub(monkeypatch, None, tmp_path, offline=True)
    assert of_hub() == online
    assert online.marks == {"a.safetensors": f"{SHA}:4"}


def test_a_repository_that_is_not_downloaded_is_known_by_the_hubs_listing(
    tmp_path: Any, monkeypatch: Any
) -> None:
    index = {"weight_map": {"x": "a.safetensors"}}
    snapshot = cached(tmp_path, {})
    (snapshot / checkpoint.SAFETENSORS_INDEX).write_text(json.dumps(index))
    listing = dict.fromkeys(
        ("a.safetensors", "old.safetensors", checkpoint.SAFETENSORS_INDEX), (4, GIT, SHA)
    )
    found = Hub(monkeypatch, listing, tmp_path)
    assert list(of_hub().marks) == ["a.safetensors"]
    assert found.downloads == [checkpoint.SAFETENSORS_INDEX]


def test_the_cache_counts_where_the_hub_does_not_answer(tmp_path: Any, monkeypatch: Any) -> None:
    cached(tmp_path, {"a.safetensors": SHA})
    Hub(monkeypatch, None, tmp_path)
    with pytest.warns(RuntimeWarning, match="did not list org/name"):
        assert of_hub().kinds == {"sha256": 1}


@pytest.mark.parametrize("revision", ["main", COMMIT, "refs"])
def test_a_revision_is_a_branch_or_a_commit(tmp_path: Any, monkeypatch: Any, revision: Any) -> None:
    cached(tmp_path, {"a.safetensors": SHA}, revision="refs" if revision == "refs" else "main")
    Hub(monkeypatch, None, tmp_path, offline=True)
    assert of_hub(revision).kinds == {"sha256": 1}


def test_a_revision_that_is_nowhere_says_what_to_do(tmp_path: Any, monkeypatch: Any) -> None:
    Hub(monkeypatch, None, tmp_path, offline=True)
    with pytest.raises(gpuwm.NotFound, match="HF_HUB_OFFLINE is set.*download it first"):
        of_hub()


def test_a_revision_that_the_hub_lacks_is_named(tmp_path: Any, monkeypatch: Any) -> None:
    Hub(monkeypatch, {}, tmp_path)
    with pytest.raises(gpuwm.NotFound, match="org/name has no revision gone"):
        of_hub("gone")


def test_a_repository_without_weights_is_named(tmp_path: Any, monkeypatch: Any) -> None:
    Hub(monkeypatch, {}, tmp_path)
    with pytest.raises(gpuwm.Unsupported, match="org/name has no weights.*no files"):
        of_hub()
