"""gpuwmctl doctor: whose package gpuwm the environments of Python have."""

from __future__ import annotations

import pathlib

import pytest

from machine import Machine

OURS = "gpuwm_client-0.1.0"
THEIRS = "gpuwm-2.9.8"
SYSTEM = "/usr/lib/python3/dist-packages"


@pytest.fixture
def system(machine: Machine) -> Machine:
    """A machine whose python3 is Debian's. Another one is in a folder of $PATH that is relative."""
    relative = pathlib.Path(f"{machine.root}relative/python3")
    relative.parent.mkdir()
    relative.touch()
    machine.env["PATH"] = "relative::/nowhere:/usr/bin"
    machine.env["HOME"] = "/home/me"
    machine.file("/usr/bin/python3.11")
    (machine.root / "usr/bin/python3").symlink_to("python3.11")
    (machine.root / SYSTEM[1:]).mkdir(parents=True)
    return machine


def install(machine: Machine, packages: str, name: str, noted: str | None) -> None:
    """Makes what tells of a distribution. noted: the end of the line that its RECORD has of the
    package's __init__.py; None: there is no RECORD."""
    info = f"{packages}/{name}.dist-info"
    machine.file(f"{info}/METADATA")
    if noted is not None:
        machine.file(f"{info}/RECORD", f"gpuwm/_c/abi.py,sha256=a,1\ngpuwm/__init__.py,{noted}\n")


@pytest.mark.parametrize("noted", ["sha256=abc,4", ",", None])
def test_ours(system: Machine, noted: str | None) -> None:
    """It is well if pip noted that size, or none, or if there is no RECORD, as Debian has none."""
    system.file(f"{SYSTEM}/gpuwm/__init__.py", "ours")
    install(system, SYSTEM, OURS, noted)
    system.doctor().says("ok", "python", "package", "gpuwm-client 0.1.0", subject=SYSTEM)


def test_theirs_instead_of_ours(system: Machine) -> None:
    """It is named, and who wants ours needs another environment."""
    install(system, SYSTEM, THEIRS, "sha256=abc,6")
    words = ("that of gpuwm 2.9.8, another project's", "make another environment")
    system.doctor().says("warning", "python", "package", *words, subject=SYSTEM)


def test_ours_over_theirs(system: Machine) -> None:
    """Ours works until one of them is uninstalled."""
    system.file(f"{SYSTEM}/gpuwm/__init__.py", "ours")
    install(system, SYSTEM, OURS, "sha256=abc,4")
    install(system, SYSTEM, THEIRS, "sha256=abc,6")
    words = ("gpuwm-client 0.1.0", "gpuwm 2.9.8", "pip uninstall gpuwm gpuwm-client")
    system.doctor().says("warning", "python", "package", *words, subject=SYSTEM)


def test_theirs_over_ours(system: Machine) -> None:
    """Both sizes are told, and who else has files there."""
    system.file(f"{SYSTEM}/gpuwm/__init__.py", "theirs")
    install(system, SYSTEM, OURS, "sha256=abc,4")
    install(system, SYSTEM, THEIRS, "sha256=abc,6")
    damaged = "gpuwm-client 0.1.0 is damaged: gpuwm/__init__.py has 6 bytes, and 4 were installed. "
    words = (f"{damaged}gpuwm 2.9.8, another", "pip uninstall gpuwm gpuwm-client")
    system.doctor().says("failed", "python", "package", *words, subject=SYSTEM)


def test_what_their_uninstallation_left(system: Machine) -> None:
    """Nobody else has files there any more."""
    install(system, SYSTEM, OURS, "sha256=abc,4")
    doctor = system.doctor()
    doctor.says("failed", "python", "package", "__init__.py is missing", subject=SYSTEM)
    assert "another" not in doctor.found("python", "package")["found"]


@pytest.mark.parametrize(
    "packages",
    [
        SYSTEM,
        "/usr/local/lib/python3.11/dist-packages",
        "/home/me/.local/lib/python3.11/site-packages",
    ],
)
def test_where_the_systems_python_has_packages(system: Machine, packages: str) -> None:
    """Debian's folders, and the user's."""
    install(system, packages, THEIRS, None)
    system.doctor().says("warning", "python", "package", subject=packages)


def test_where_links_lead(system: Machine) -> None:
    """A Python elsewhere, whose link is in $PATH, and which has two folders for libraries."""
    system.env["PATH"] = "/usr/local/bin"
    system.file("/opt/python/bin/python3.12")
    (system.root / "usr/local/bin").mkdir(parents=True)
    (system.root / "usr/local/bin/python3").symlink_to("../../../opt/python/bin/python3.12")
    packages = [f"/opt/python/{lib}/python3.12/site-packages" for lib in ("lib", "lib64")]
    install(system, packages[0], OURS, None)
    install(system, packages[1], THEIRS, None)
    doctor = system.doctor()
    doctor.says("ok", "python", "package", subject=packages[0])
    doctor.says("warning", "python", "package", subject=packages[1])


def virtual(machine: Machine, folder: str) -> str:
    """A virtual environment of the system's Python. Returns where its packages are."""
    machine.file(f"{folder}/pyvenv.cfg")
    place = pathlib.Path(f"{machine.root}{folder}")
    (place / "bin").mkdir()
    (place / "bin/python3").symlink_to("../../../usr/bin/python3")
    (place / "lib64").symlink_to("lib")
    return f"{folder}/lib/python3.11/site-packages"


def test_virtual_environments(system: Machine) -> None:
    """The one that $PATH names and the one that $VIRTUAL_ENV names; the system's is neither."""
    install(system, SYSTEM, OURS, None)
    first, second = virtual(system, "/srv/first"), virtual(system, "/srv/second")
    install(system, first, OURS, None)
    install(system, second, THEIRS, None)
    system.env["PATH"] = "/srv/first/bin:/usr/bin"
    doctor = system.doctor()
    assert doctor.found("python", "package")["subject"] == first
    system.env["VIRTUAL_ENV"] = "/srv/first"
    assert system.doctor().found("python", "package")["subject"] == first
    system.env["VIRTUAL_ENV"] = "/srv/second"
    doctor = system.doctor()
    doctor.says("ok", "python", "package", subject=first)
    doctor.says("warning", "python", "package", subject=second)


def test_neither(system: Machine) -> None:
    """It is no fault if nothing is there, or if nothing can be found out."""
    install(system, SYSTEM, "gpuwm_tools-1.0", None)
    system.doctor().says("not applicable", "python", "package", "no package gpuwm", subject="/usr")
    (system.root / "opt/shims").mkdir(parents=True)
    system.file("/opt/shims/python3")
    system.env["PATH"] = "/opt/shims"
    system.doctor().says("not applicable", "python", "package", "may be a script", subject="/opt")
    system.env["PATH"] = "/nowhere"
    system.doctor().says("not applicable", "python", "package", "no python3 in $PATH")
