"""What an engine's compilers keep, with an engine whose compiler is made up."""

from __future__ import annotations

import itertools
import json
import logging
import os
import pathlib
import platform
import stat
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Daemon, eventually

import gpuwm
from gpuwm._c import lib
from gpuwm.engines import caches, fields
from gpuwm.engines import engine as engines
from gpuwm.engines.caches import Caches
from gpuwm.engines.settings import Settings
from gpuwm.vllm import settings

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
from test_engines_load_flow import Steps, load  # noqa: E402

_count = itertools.count()
KERNELS = {"triton/ab/kernel.cubin": b"code", "inductor/x/y/graph.so": b"more code"}


class Compiling(Steps):
    """Compiles each of KERNELS that is not in its folder. compiled: how many those were."""

    def __init__(self, daemon: Daemon, name: str, home: pathlib.Path, **given: Any) -> None:
        super().__init__(daemon, ref=name, **{"caches": "own", **given})
        self.roots = {each: str(home / each) for each in ("triton", "inductor")}
        self.changed: dict[str, str] = {}
        self.compiled = 0

    def compiles(self) -> bool:
        return True

    def caches(self) -> Caches:
        key = caches.key("test 1", ("numpy",), "0123", False, self.roots)
        return Caches(self.roots, {**key, **self.changed})

    def keep(self, model: Any, engine: engines.Engine, mapping: Any) -> None:
        super().keep(model, engine, mapping)
        self.engine = engine

    def start(self) -> Compiling:
        load(self)
        for name, content in KERNELS.items():
            root, file = name.split("/", 1)
            path = pathlib.Path(self.roots[root], file)
            if not path.exists():
                self.compiled += 1
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        caches.write(self.engine, self.kept.version)
        return self

    @property
    def companion(self) -> str:
        return self.caches().name(self.kept.version)


@pytest.fixture
def name(daemon: Daemon) -> str:
    if daemon.device != "host":
        pytest.skip("the engine's model is on the host")
    return f"compiled@v{next(_count)}"


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "home"


def fresh(home: pathlib.Path) -> None:
    """As in a container that has just begun."""
    os.rename(home, home.with_name(f"old-{next(_count)}"))


def listed(daemon: Daemon, ref: str) -> dict[str, Any] | None:
    model, tag = ref.split("@")
    rows = daemon.admin.list(model)["versions"]
    return next((row for row in rows if row["tag"] == tag and row["state"] == "ready"), None)


def hand_made(daemon: Daemon, steps: Compiling, files: dict[str, bytes]) -> None:
    """Makes the companion that `steps` will look for."""
    gpuwm.publish(
        {file: numpy.frombuffer(content, numpy.uint8) for file, content in files.items()},
        steps.companion,
        bind=False,
        companion_of=steps.kept.version.id,
        metadata={caches.KEY: steps.caches().key_text},
        client=gpuwm.connect(str(daemon.socket)),
    )


def built(daemon: Daemon, name: str, home: pathlib.Path) -> Compiling:
    """An engine that has built the version, and compiled nothing."""
    steps = Compiling(daemon, name, home)
    load(steps)
    return steps


def test_the_second_engine_compiles_nothing(
    daemon: Daemon, name: str, home: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "test"):
        first = Compiling(daemon, name, home).start()
        fresh(home)
        second = Compiling(daemon, name, home).start()
    assert (first.compiled, second.compiled) == (2, 0)
    assert f"2 files that this engine has compiled are kept as {first.companion}, " in caplog.text
    assert f"2 files of {first.companion}, 0.0 MB, lie in the folders" in caplog.text
    for file, content in KERNELS.items():
        path = home / file
        assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    row = listed(daemon, first.companion)
    assert row is not None
    assert row["companion_of"] == first.kept.version.id
    assert [part["device"] for part in row["parts"]] == ["host"]


def test_the_companion_is_freed_with_the_version(
    daemon: Daemon, name: str, home: pathlib.Path
) -> None:
    name = name.replace("compiled", "alone")
    steps = Compiling(daemon, name, home).start()
    companion = steps.companion
    assert listed(daemon, companion)
    steps.kept.drop()
    daemon.admin.swap("alone", None)
    daemon.admin.retire(name)
    eventually(lambda: listed(daemon, companion) is None)


def test_an_engine_without_the_setting_works_as_before(
    daemon: Daemon, name: str, home: pathlib.Path
) -> None:
    first = Compiling(daemon, name, home, caches="off").start()
    assert listed(daemon, first.companion) is None
    Compiling(daemon, name, home.with_name("other")).start()
    fresh(home)
    assert Compiling(daemon, name, home, caches="off").start().compiled == 2
    assert settings.parse({}).caches == "off"
    with pytest.raises(gpuwm.Invalid, match='"caches" in .* is \'all\': "off", "own" or "owner"'):
        settings.parse({"caches": "all"})


FIELDS = ["engine", "torch", "packages", "python", "machine", "cpu", "driver", "gpu", "paths"]
FIELDS += ["configuration"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_differs_is_a_miss(
    daemon: Daemon, name: str, home: pathlib.Path, field: str
) -> None:
    first = Compiling(daemon, name, home).start()
    assert sorted(FIELDS) == sorted(first.caches().key)
    fresh(home)
    other = Compiling(daemon, name, home)
    other.changed = {field: "another"}
    assert other.start().compiled == 2
    assert listed(daemon, other.companion), "it keeps its own beside the first one's"
    fresh(home)
    assert Compiling(daemon, name, home).start().compiled == 0


def changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> dict[str, Callable[[], Any]]:
    """By field, what another machine would have there."""

    def driver() -> None:
        (tmp_path / "driver").write_text("NVRM version: 580.1\n")

    gpu = ["H200 9.0 132", "H200 9.0 16"]
    monkeypatch.setattr(caches, "_gpu", lambda: gpu[0])
    return {
        "torch": lambda: monkeypatch.setattr(fields, "torch_version", lambda: "0"),
        "packages": lambda: monkeypatch.setattr(fields, "packages", lambda names: "triton 0"),
        "python": lambda: monkeypatch.setattr(sys, "version", "2.7"),
        "machine": lambda: monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "1")),
        "cpu": lambda: (tmp_path / "cpu").write_text("flags : sse\nFeatures : sve\n"),
        "driver": driver,
        "gpu": gpu.reverse,
        "paths": lambda: monkeypatch.setattr(sys, "prefix", "/elsewhere"),
    }


@pytest.mark.parametrize("field", FIELDS[1:-1])
def test_each_field_tells_what_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, field: str
) -> None:
    (tmp_path / "driver").write_text("NVRM version: 570.1\n")
    (tmp_path / "cpu").write_text("flags : sse avx\nFeatures : asimd\n")
    files = {"/proc/driver/nvidia/version": "driver", "/proc/cpuinfo": "cpu"}
    line = caches._line
    monkeypatch.setattr(
        caches, "_line", lambda path, beginning="": line(str(tmp_path / files[path]), beginning)
    )
    change = changes(monkeypatch, tmp_path)[field]

    def found() -> dict[str, str]:
        return caches.key("vllm 1", ("triton",), "0123", True, {"triton": "/t"})

    before = found()
    change()
    assert [name for name, value in found().items() if value != before[name]] == [field]


def test_paths_and_configuration_are_of_the_key() -> None:
    one = caches.key("vllm 1", (), "0123", False, {"triton": "/t"})
    other = caches.key("vllm 2", (), "4567", False, {"triton": "/u"})
    differ = {name for name in one if one[name] != other[name]}
    assert differ == {"engine", "configuration", "paths"}


def test_a_machine_that_does_not_tell_has_no_caches(
    daemon: Daemon,
    name: str,
    home: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_driver(path: str, beginning: str = "") -> str:
        raise gpuwm.Unsupported(f"{path} can't be read")

    monkeypatch.setattr(caches, "_line", no_driver)
    steps = Compiling(daemon, name, home).start()
    assert steps.engine.caches is None
    assert "this engine has no caches in gpuwm: /proc/cpuinfo can't be read" in caplog.text


# ---- trust ---------------------------------------------------------------------------------------


def test_what_another_user_has_compiled_is_not_opened(
    daemon: Daemon,
    name: str,
    home: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Compiling(daemon, name, home).start()
    fresh(home)
    real = os.getuid()
    monkeypatch.setattr(caches, "_owners", lambda settings: [real + 1, "operator"])
    second = Compiling(daemon, name, home).start()
    assert second.compiled == 2
    assert f"this engine compiles without {first.companion}: " in caplog.text
    assert f"{real}" in caplog.text


def test_whose_files_an_engine_takes() -> None:
    here = os.getuid()
    accepted: tuple[lib.OneOwner, ...] = (here + 1, "operator", here + 2)
    assert caches._owners(Settings(caches="own", owner=accepted)) == [here, "operator"]
    assert caches._owners(Settings(caches="owner", owner=accepted)) == [
        *(here, "operator"),
        *accepted,
    ]


def test_a_wrong_digest_opens_no_file(
    daemon: Daemon,
    name: str,
    home: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Compiling(daemon, name, home).start()
    fresh(home)

    def damaged(mapping: Any) -> None:
        assert str(mapping.version) == first.companion
        assert not home.exists()
        raise gpuwm.Damaged("a digest differs")

    monkeypatch.setattr(gpuwm.Mapping, "verify", damaged)
    assert Compiling(daemon, name, home).start().compiled == 2
    assert f"compiles without {first.companion}: a digest differs" in caplog.text


def test_a_companion_with_another_key_is_not_taken(
    daemon: Daemon, name: str, home: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = built(daemon, name, home)
    gpuwm.publish(
        {"triton/a": numpy.ones(4, numpy.uint8)},
        steps.companion,
        bind=False,
        companion_of=steps.kept.version.id,
        metadata={caches.KEY: json.dumps({})},
        client=gpuwm.connect(str(daemon.socket)),
    )
    assert Compiling(daemon, name, home).start().compiled == 2
    assert "its metadata caches.key is not the key that its name stands for" in caplog.text


OUTSIDE = ["triton/../../x", "triton/a//x", "triton/./x", "/x", "x", "triton", "cuda/x", "triton/"]


@pytest.mark.parametrize("file", [*OUTSIDE, "../x"])
def test_a_path_that_leaves_its_folder_is_refused(
    daemon: Daemon,
    name: str,
    home: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    file: str,
) -> None:
    hand_made(daemon, built(daemon, name, home), {file: b"hostile"})
    assert Compiling(daemon, name, home).start().compiled == 2
    assert f"its file {file!r} lies beneath no folder of a compiler" in caplog.text
    found = {path for path in home.parent.rglob("*") if path.is_file()}
    assert found == {home / each for each in KERNELS}


def test_no_link_is_followed(
    daemon: Daemon, name: str, home: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    hand_made(daemon, built(daemon, name, home), {"triton/ab/kernel.cubin": b"other code"})
    outside = home.with_name("outside")
    for link in ("triton", "triton/ab"):
        outside.mkdir()
        (home / link).parent.mkdir(parents=True, exist_ok=True)
        (home / link).symlink_to(outside)
        load(Compiling(daemon, name, home))
        assert list(outside.iterdir()) == []
        (home / link).unlink()
        outside.rmdir()
    assert caplog.text.count("this engine compiles without") == 2
    (home / "triton/ab").mkdir(parents=True)
    (home / "triton/ab/kernel.cubin").symlink_to(outside)
    load(Compiling(daemon, name, home))
    assert not outside.exists()


def test_a_folder_that_others_may_write_is_left(
    daemon: Daemon, name: str, home: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    hand_made(daemon, built(daemon, name, home), KERNELS)
    (home / "triton").mkdir(parents=True)
    (home / "triton").chmod(0o777)
    load(Compiling(daemon, name, home))
    assert "has the mode 0777" in caplog.text
    assert list((home / "triton").iterdir()) == []


def test_a_file_that_is_there_stays(daemon: Daemon, name: str, home: pathlib.Path) -> None:
    hand_made(daemon, built(daemon, name, home), KERNELS)
    path = home / "triton/ab/kernel.cubin"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this engine's own")
    killed = path.with_name(f".gpuwm-{os.getpid()}.tmp")
    other = home / "inductor/x/y" / killed.name
    other.parent.mkdir(parents=True)
    other.write_bytes(b"half")
    load(Compiling(daemon, name, home))
    assert path.read_bytes() == b"this engine's own"
    assert (home / "inductor/x/y/graph.so").read_bytes() == b"more code"
    assert not other.exists()


# ---- what is kept --------------------------------------------------------------------------------


def test_only_what_this_engine_has_made_is_kept(
    daemon: Daemon, name: str, home: pathlib.Path
) -> None:
    old = home / "triton/old.cubin"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"another engine's")
    os.utime(old, (1, 1))
    for file in ("a.lock", "b.tmp"):
        (home / "triton" / file).write_bytes(b"x")
    (home / "triton/link").symlink_to(old)
    (home / "triton/pipe").touch()
    first = Compiling(daemon, name, home).start()
    with gpuwm.attach(first.companion, client=gpuwm.connect(str(daemon.socket))) as found:
        assert sorted(found) == sorted(KERNELS)


def test_an_engine_with_warm_folders_keeps_nothing(
    daemon: Daemon, name: str, home: pathlib.Path
) -> None:
    for file, content in KERNELS.items():
        (home / file).parent.mkdir(parents=True)
        (home / file).write_bytes(content)
        os.utime(home / file, (1, 1))
    steps = Compiling(daemon, name, home).start()
    assert steps.compiled == 0
    assert listed(daemon, steps.companion) is None


def test_a_folder_in_another_one_counts_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "vllm/inductor").mkdir(parents=True)
    roots = {"inductor": str(tmp_path / "vllm/inductor"), "vllm": str(tmp_path / "vllm")}
    made = Caches(roots, {})
    (tmp_path / "vllm/inductor/graph.so").write_bytes(b"code")
    assert [file for file, _ in caches._made(made)] == ["vllm/inductor/graph.so"]


def test_the_limit_is_named(
    daemon: Daemon,
    name: str,
    home: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caches, "COMPANION_BYTES_MAX", 12)
    steps = Compiling(daemon, name, home).start()
    assert "would have 13 bytes, and all companions of a version have at most 12" in caplog.text
    assert listed(daemon, steps.companion) is None


def test_the_faster_of_two_keeps_its_files(
    daemon: Daemon, name: str, home: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = built(daemon, name, home), Compiling(daemon, name, home)
    load(second)
    for steps in (first, second):
        (home / "triton").mkdir(parents=True, exist_ok=True)
        (home / "triton/kernel").write_bytes(b"code")
        caches.write(steps.engine, steps.kept.version)
    assert listed(daemon, first.companion)
    assert "is not kept" not in caplog.text


def test_a_user_who_may_not_publish_is_told(
    daemon: Daemon,
    name: str,
    home: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise gpuwm.Refused("this user is no publisher")

    monkeypatch.setattr(caches, "publish", refuse)
    Compiling(daemon, name, home).start()
    assert "what this engine has compiled is not kept: this user is no publisher" in caplog.text


def test_rank_0_looks_after_the_files_of_all() -> None:
    other: Any = types.SimpleNamespace(keeps_caches=True, ranks=types.SimpleNamespace(rank=1))
    assert caches.of(other, lambda: pytest.fail("rank 1 asks")) is None


def test_the_folders_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"):
        monkeypatch.setenv(variable, f"/x/{variable}")
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", "/y")
    monkeypatch.setenv("DG_JIT_CACHE_DIR", "/z")
    assert caches.folders() == {
        "inductor": "/x/TORCHINDUCTOR_CACHE_DIR",
        "triton": "/x/TRITON_CACHE_DIR",
        "flashinfer": "/y/.cache/flashinfer",
        "deep_gemm": "/z",
        "cuda": "/x/CUDA_CACHE_PATH",
    }
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("TRITON_HOME", "/t")
    assert caches.folders()["triton"] == "/t/.triton/cache"
    assert caches.folders()["cuda"] == "/home/me/.nv/ComputeCache"


# ---- files and nodes -----------------------------------------------------------------------------


def ctl(daemon: Daemon, *words: str) -> None:
    program = f"{os.environ['GPUWM_BUILD']}/bin/gpuwmctl"
    sockets = ["--socket", str(daemon.socket.parent / "admin.sock")]
    subprocess.run([program, *words, *sockets], check=True, capture_output=True, text=True)


def test_a_save_takes_them_along(daemon: Daemon, name: str, home: pathlib.Path) -> None:
    name = name.replace("compiled", "saved")
    first = Compiling(daemon, name, home).start()
    companion, version = first.companion, first.kept.version
    ctl(daemon, "save", name, str(daemon.models / name), "--no-describe")
    first.kept.drop()
    daemon.admin.swap("saved", None)
    daemon.admin.retire(name)
    eventually(lambda: listed(daemon, companion) is None)
    ctl(daemon, "load", "--wait", "--companions", str(daemon.models / name), name)
    fresh(home)
    caches.lay_out(first.engine, version)
    assert {file: (home / file).read_bytes() for file in KERNELS} == KERNELS
