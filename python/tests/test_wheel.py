"""What the wheel carries besides Python: the programs, their pages, the licences."""

from __future__ import annotations

import contextlib
import email
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import eventually, write_safetensors
from environments import Environment, given_wheel

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = ["gpuwmd", "gpuwmctl", "gpuwm-keeper", "gpuwm-follow"]
ATTACH = "import gpuwm; w = gpuwm.attach('{}'); print(w['weight'].tobytes() == b'gpuwm!!!' * 8)"


class Machine:
    """An environment with the wheel, a folder of models, and nothing else in PATH."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.environment = Environment(folder / "venv")
        self.install()
        self.bin = self.environment.folder / "bin"
        self.models = folder / "models"
        self.models.mkdir()
        self.log = folder / "log"
        self.variables = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "GPUWM_SOCKET": str(folder / "gpuwm.sock"),
        }

    def install(self) -> None:
        self.environment.pip("install", "--no-index", "--force-reinstall", given_wheel())

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.variables, cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done
        return done.stdout

    def pid(self) -> int:
        """Of gpuwmd; 0 if it does not answer."""
        command = ["gpuwmctl", "-o", "json", "status"]
        done = subprocess.run(command, env=self.variables, capture_output=True, check=False)
        return json.loads(done.stdout)["pid"] if done.returncode == 0 else 0

    def other_pid(self, before: int = 0) -> int:
        """Waits for another gpuwmd than this one."""
        return int(eventually(lambda: (pid := self.pid()) != before and pid))

    def load(self, tag: str) -> None:
        folder = self.models / tag
        folder.mkdir()
        weight = np.frombuffer(b"gpuwm!!!" * 8, dtype=np.uint8)
        write_safetensors(folder / "model.safetensors", {"weight": weight})
        self.run("gpuwmctl", "load", str(folder), f"demo@{tag}", "--wait")

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """While gpuwm-keeper runs gpuwmd."""
        words = ["--restart-delay", "0", "--", "gpuwmd", "--root", str(self.models)]
        with self.log.open("w") as log:
            keeper = subprocess.Popen(["gpuwm-keeper", *words], env=self.variables, stderr=log)
        try:
            yield
        finally:
            keeper.terminate()
            assert keeper.wait(30) == 0, self.log.read_text()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


def test_keeper_gpuwmd_loader_and_worker_need_nothing_else(machine: Machine) -> None:
    with machine.kept():
        first = machine.other_pid()
        machine.load("v1")
        assert "demo@v1" in machine.run("gpuwmctl", "ls")
        assert machine.run("python3", "-c", ATTACH.format("demo")) == "True\n"
        # A gpuwmd that was killed takes the version over: libsystemd is found at run time.
        os.kill(first, signal.SIGKILL)
        machine.other_pid(first)
        assert machine.run("python3", "-c", ATTACH.format("demo@v1")) == "True\n"


def test_gpuwmd_runs_on_while_its_package_is_installed_again(machine: Machine) -> None:
    with machine.kept():
        first = machine.other_pid()
        machine.load("before")
        machine.install()
        assert machine.pid() == first
        machine.load("after")
        assert machine.run("python3", "-c", ATTACH.format("demo@before")) == "True\n"
        os.kill(first, signal.SIGKILL)
        machine.other_pid(first)
        assert machine.run("python3", "-c", ATTACH.format("demo@after")) == "True\n"


def test_gpuwmd_says_that_libsystemd_is_missing(machine: Machine, tmp_path: pathlib.Path) -> None:
    (tmp_path / "libsystemd.so.0").touch()
    done = subprocess.run(
        ["gpuwm-keeper", "--", "gpuwmd"],
        env={**machine.variables, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "libsystemd.so.0: file too short: install libsystemd.so.0" in done.stderr


def test_the_scripts_import_nothing_of_the_package(machine: Machine) -> None:
    code = "import gpuwm_programs, sys; print(sorted(sys.modules.keys() & {'gpuwm', 'ctypes'}))"
    assert machine.run("python3", "-I", "-c", code) == "[]\n"


def test_the_scripts_say_which_version_they_are(machine: Machine) -> None:
    version = machine.run("python3", "-c", "import gpuwm; print(gpuwm.__version__)").strip()
    for name in SCRIPTS:
        assert machine.run(name, "--version").splitlines()[0] == f"{name} {version}"
        assert machine.run(name, "--help")


def test_the_extra_that_is_missing_is_named(machine: Machine) -> None:
    done = subprocess.run(
        ["gpuwm-serve", "x/model"],
        env=machine.variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "there is no package aiohttp: pip install 'gpuwm-client[serve]'" in done.stderr


def test_a_script_without_its_program_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import gpuwm_programs; gpuwm_programs.gpuwmctl()"],
        capture_output=True,
        text=True,
        cwd=ROOT / "python",
        check=False,
    )
    assert done.returncode == 1
    assert "gpuwm/bin/gpuwmctl can't be started: No such file or directory" in done.stderr
    assert "install gpuwm-client's wheel" in done.stderr


def test_the_programs_support_gpus_and_no_other_nodes(machine: Machine) -> None:
    (loader,) = machine.environment.folder.glob("lib/python3*/site-packages/gpuwm/bin/gpuwm-loader")
    program = loader.read_bytes()
    assert b"cuMemCreate" in program
    assert b".target sm_75" in program  # the kernels, as text that the driver compiles
    assert b"this gpuwm-loader has no TLS: it takes nothing from other nodes" in program


def test_the_pages_are_where_man_looks(machine: Machine) -> None:
    sections = {"gpuwmctl": 1, "gpuwmd.conf": 5, "gpuwmd": 8, "gpuwm-keeper": 8, "gpuwm-follow": 8}
    sections["gpuwm-serve"] = 1
    pages = machine.environment.folder / "share/man"
    for name, section in sections.items():
        assert (pages / f"man{section}/{name}.{section}").is_file()


def test_the_wheel_has_the_licences_of_all_that_it_carries() -> None:
    with zipfile.ZipFile(given_wheel()) as wheel:
        names = wheel.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        facts = email.message_from_bytes(wheel.read(metadata))
    sources = (ROOT / "scripts/wheel.d/sources").read_text()
    carried = re.findall(r"^(\w+)-", sources, re.MULTILINE)
    assert len(carried) == 5
    wanted = ["LICENSE", *(f"LICENSE.{name}" for name in carried)]
    assert sorted(facts.get_all("License-File", [])) == sorted(wanted)
    assert all(metadata.replace("METADATA", f"licenses/{name}") in names for name in wanted)
    assert facts["Author"]
    assert facts["Description-Content-Type"] == "text/markdown"
    assert "gpuwm-client" in str(facts.get_payload())
