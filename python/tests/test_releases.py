"""scripts/engines: wheels that it reads, what it says of them, and the tables that it makes."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import zipfile

import pytest
from conftest import DEVICE

from gpuwm.vllm import releases as of_vllm
from tests_engines.releases import __main__ as program
from tests_engines.releases import facts, problems, table, wheels
from tests_engines.releases.arguments import Lists
from tests_engines.releases.plugin import Plugin

# The bundle for GPU machines has neither scripts nor docs. What they say depends on no memory.
pytestmark = pytest.mark.skipif(
    not table.DOCUMENT.exists() or DEVICE != "cpu", reason="docs/ is not here, or looked at"
)

ENGINE = {
    "sglang/__init__.py": "",
    "sglang/srt/loader.py": (
        "from .base import Loader\nfrom torch import nn\n"
        "def get(config, *, device=None): ...\n"
        "class Default(Loader, nn.Module):\n    def read(self, model): ...\n"
    ),
    "sglang/srt/base.py": "class Loader:\n    def load(self, config): ...\n",
    "sglang/srt/updater.py": "class Updater:\n    def update_weights(self, tensors): ...\n",
    "sglang/srt/server_args.py": "class ServerArgs:\n    port: int = 1\n    backend: str = ''\n",
    "sglang-0.9.1.dist-info/METADATA": "Name: sglang\nRequires-Dist: torch==2.14.1\n",
}
METHODS = "    def load(self, config): ...\n    def read(self, model): ...\n"
PLUGIN = {
    "__init__.py": "",
    "_bases.py": f"class Default:\n{METHODS}",
    "model_loader.py": (
        f"from sglang.srt import loader\nclass Ours(loader.Default):\n{METHODS}"
        "def get(config):\n    return loader.get(config, device='cpu')\n"
        "def old(config):\n    return getattr(loader, 'of_yesterday', None)\n"
    ),
    "postprocess.py": "",
    "hooks.py": "HOOKS = {'sglang.srt.loader.get': print}\n",
    "guards.py": "GUARDED = {'sglang.srt.updater.Updater': A({'update_weights': a}, {}, ())}\n",
    "arguments.py": "TABLE = {'attention': ('backend',)}\n",
    "harmless.py": "ARGUMENTS = ('po*',)\n",
    "refusals.py": "REFUSED = {}\n",
}
# An index that refuses connections.
NOWHERE = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}


def wheel(folder: pathlib.Path, changes: dict[str, tuple[str, str]] | None = None) -> pathlib.Path:
    """A wheel of a made-up engine. changes: by file, a text and what is in its place."""
    file = folder / "sglang-0.9.1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as made:
        for path, text in ENGINE.items():
            before, after = (changes or {}).get(path, ("", ""))
            assert before in text
            entry = zipfile.ZipInfo(path, (2026, 11, 29, 0, 0, 0))
            made.writestr(entry, text.replace(before, after, 1))
    return file


@pytest.fixture
def plugin(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "plugin"
    folder.mkdir()
    for name, text in PLUGIN.items():
        (folder / name).write_text(text)
    return folder


def read(what: pathlib.Path | str, plugin: pathlib.Path, **environment: str) -> tuple[int, str]:
    """What `scripts/engines read` says of a wheel."""
    own: list[str | pathlib.Path] = [
        "--plugin",
        plugin,
        "--facts",
        plugin / "facts",
        "--cache",
        plugin / "cache",
    ]
    ran = subprocess.run(
        [wheels.ROOT / "scripts" / "engines", "read", what, *own],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


def failures(told: str) -> list[str]:
    return re.findall(r"^FAIL: (.*)$", told, re.MULTILINE)


def test_a_release_that_fits(tmp_path: pathlib.Path, plugin: pathlib.Path) -> None:
    status, told = read(wheel(tmp_path), plugin)
    assert (status, failures(told)) == (0, [])
    assert told.startswith("sglang 0.9.1, built 2026-11-29, torch 2.14.1: load: yes")
    (found,) = facts.committed("sglang", plugin / "facts")
    assert found.names["sglang.srt.loader.get"] == "(config, *, device=None)"
    assert found.names["sglang.srt.loader.of_yesterday"] is None
    assert found.updates == ["sglang.srt.updater.Updater.update_weights"]
    kept = [file.name for file in (plugin / "cache").iterdir()]
    assert kept == ["sglang-0.9.1.zip"]


LOADER, BASE = "sglang/srt/loader.py", "sglang/srt/base.py"
UPDATER, ARGUMENTS = "sglang/srt/updater.py", "sglang/srt/server_args.py"
ABSTRACT = "@abstractmethod\n    def close(self): ...\n    def load"
GET, OWNER = "sglang.srt.loader.get", "sglang.srt.updater.Updater"


@pytest.mark.parametrize(
    ("path", "before", "after", "problem"),
    [
        (LOADER, "def get", "def fetch", f"hook target {GET} is gone"),
        (LOADER, "def get", "def fetch", f"plugin/model_loader.py:6: there is no {GET}"),
        (LOADER, "class Default", "class Plain", "there is no sglang.srt.loader.Default"),
        (LOADER, "device=", "at=", f"{GET}(config, *, at=None) does not take device"),
        (LOADER, "(config, *", "(config, size, *", "needs size"),
        (BASE, "def load", "def make", "Default.load is gone"),
        (BASE, "(self, config)", "(self, config, at)", "no at at place 2"),
        (BASE, "(self, config)", "(self, config, *, at=1)", "no at"),
        (BASE, "def load", ABSTRACT, "wants methods that ours lacks: close"),
        (UPDATER, "update_weights", "begin", f"guarded method {OWNER}.update_weights is gone"),
        (UPDATER, "update_weights", "begin", f"{OWNER}.begin may write, and is not guarded"),
        (UPDATER, "class Updater", "class Writer", f"guarded class {OWNER} is gone"),
        (ARGUMENTS, "port", "mode", "argument ServerArgs.mode is in neither list"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: pathlib.Path, plugin: pathlib.Path, path: str, before: str, after: str, problem: str
) -> None:
    status, told = read(wheel(tmp_path, {path: (before, after)}), plugin)
    assert status == 1
    assert any(problem in each for each in failures(told)), told


WORKER = "vllm.v1.worker.gpu_worker.Worker"
VLLM = {
    "vllm/__init__.py": "",
    "vllm/v1/worker/gpu_worker.py": (
        "class Worker:\n    def sleep(self):\n        free()\n"
        "    def reload_weights(self): ...\n    def zero_weights(self): ...\n"
    ),
    "vllm/reload.py": "def reload(model): ...\n",
    "vllm/config/model.py": (
        "@config\nclass LoadConfig:\n    load_format: str\n    threads: int\n"
        "@config\nclass VllmConfig:\n    load_config: LoadConfig\n    seed: int\n"
    ),
    "vllm/envs.py": (
        "environment_variables: dict[str, Callable[[], Any]] = {\n"
        "    'VLLM_PACKED': lambda: False,\n    'VLLM_PORT': lambda: 1,\n}\n"
    ),
    "vllm-0.9.1.dist-info/METADATA": "",
}
OF_VLLM = {
    "releases.py": f"USES = (('{WORKER}.sleep', ('free()',)),)\nUSES_ASKING = USES\n",
    "worker.py": (
        "from vllm.v1.worker.gpu_worker import Worker as Base\n"
        "class Worker(Base):\n    def sleep(self): ...\n"
    ),
    "guards.py": (
        "GUARDED = (('vllm.gone.reload',), ('vllm.new.reload', 'vllm.reload.reload'))\n"
        "WEIGHT_METHODS = {'reload_weights': 'guarded', 'zero_weights': 'guarded'}\n"
    ),
    "arguments.py": "COUNTS = ('LoadConfig.threads',)\n",
    "harmless.py": "FIELDS = ('VllmConfig.s*', 'LoadConfig.load_*')\nVARIABLES = ('VLLM_PO*',)\n",
    "variables.py": "LAYOUT: dict[str, V] = {'VLLM_PACKED': V(False, 'packed')}\n",
}


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("", "", ""),
        ("free()", "free_all()", f"{WORKER}.sleep does not use free()"),
        ("def reload(", "def load(", "guarded function vllm.reload.reload is gone"),
        ("zero_weights", "fill_weights", "Worker.fill_weights may write"),
        (
            "    threads",
            "    size: int\n    threads",
            "argument LoadConfig.size is in neither list",
        ),
        ("    seed", "    port: int\n    seed", "argument VllmConfig.port is in neither list"),
        ("'VLLM_PORT'", "'VLLM_CUT'", "variable VLLM_CUT is in neither list"),
    ],
)
def test_rules_of_the_plugin_for_vllm(
    tmp_path: pathlib.Path, before: str, after: str, problem: str
) -> None:
    for name, text in OF_VLLM.items():
        (tmp_path / name).write_text(text)
    plugin = Plugin("vllm", tmp_path)
    texts = {path: text.replace(before, after) for path, text in VLLM.items()}
    made = facts.collect(wheels.Texts("vllm", "0.9.1", "", texts), plugin)
    found = problems.texts(problems.of(made, plugin))
    assert (len(found) == 1 and problem in found[0]) if problem else found == []


def test_what_a_release_brings_is_told(tmp_path: pathlib.Path, plugin: pathlib.Path) -> None:
    read(wheel(tmp_path), plugin)
    old = facts.file_of("sglang", "0.9.1", plugin / "facts")
    found = facts.parse(old.read_text())
    found.release, found.updates, found.arguments = "0.9.0", ["a.gone"], {"ServerArgs": ["port"]}
    found.variables = ["GONE"]
    facts.file_of("sglang", "0.9.0", plugin / "facts").write_text(found.text())
    told = read(wheel(tmp_path), plugin)[1]
    assert re.findall(r"since 0.9.0: (.*)", told) == [
        "function that writes weights is gone: a.gone",
        f"function that writes weights is new: {OWNER}.update_weights",
        "argument is new: ServerArgs.backend",
        "variable is gone: GONE",
    ]


def test_a_torn_wheel(tmp_path: pathlib.Path, plugin: pathlib.Path) -> None:
    file = wheel(tmp_path)
    file.write_bytes(file.read_bytes()[:-40])
    status, told = read(file, plugin)
    assert status == 1
    assert failures(told) == [f"{file.name} is no whole wheel: File is not a zip file"]


def test_a_wheel_with_other_bytes(tmp_path: pathlib.Path, plugin: pathlib.Path) -> None:
    file = wheel(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"def load(", b"def lead("))
    status, told = read(file, plugin)
    assert (status, len(failures(told))) == (1, 1)
    assert "Bad CRC-32" in told


def test_an_index_that_does_not_answer(plugin: pathlib.Path) -> None:
    status, told = read("sglang==0.9.1", plugin, **NOWHERE)
    assert status == 1
    assert failures(told)[0].startswith("pip can't download sglang==0.9.1: ERROR: ")
    assert list((plugin / "cache").iterdir()) == []


def test_today_is_skipped_without_an_index(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)
    assert program.main([]) == program.SKIPPED
    assert capsys.readouterr().out.startswith("skipped: pip can't download ")


def test_today_compares(
    tmp_path: pathlib.Path,
    plugin: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read(wheel(tmp_path), plugin)
    monkeypatch.setattr(program, "Plugin", lambda engine: Plugin(engine, plugin))
    monkeypatch.setattr(wheels, "_download", lambda what, folder: wheel(folder))
    assert program.today(plugin / "facts") == 0
    capsys.readouterr()
    renamed = {"sglang/srt/loader.py": ("def get", "def fetch")}
    monkeypatch.setattr(wheels, "_download", lambda what, folder: wheel(folder, renamed))
    assert program.today(plugin / "facts") == 1
    told = capsys.readouterr().out
    assert "FAIL: sglang 0.9.1: the wheel or our plugin has changed" in told
    assert '\n+  "sglang.srt.loader.get": null,' in told


def test_every_release_has_its_day() -> None:
    releases = [each for engine in table.FEATURES for each in facts.committed(engine)]
    assert {day % len(releases) for day in range(1, 366)} == set(range(len(releases)))


def test_releases_that_an_error_names_are_those_of_the_table() -> None:
    assert [each.release for each in facts.committed("vllm")] == [*of_vllm.SUPPORTED]


@pytest.mark.parametrize("engine", list(table.FEATURES))
def test_every_argument_is_in_a_list(engine: str) -> None:
    lists = Lists(Plugin(engine))
    assert lists.is_there
    for each in facts.committed(engine):
        assert lists.unknown(each.arguments) == [], each.title


def test_the_tables_of_the_guide_are_of_today() -> None:
    """If this fails: `scripts/engines read all`, if the plugins use other names of an engine, and
    then `scripts/engines table`."""
    text = table.DOCUMENT.read_text()
    assert text == table.written(text)
