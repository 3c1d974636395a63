"""gpuwmctl doctor: what it finds of gpuwmd, its service and its models."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest
from own_gpuwmd import BUILD, FAKECUDA, wait_for

from conftest import Gpuwmd
from machine import NOBODY, Machine, as_nobody

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
GPU = "GPU-fa4e0000-0000-4000-8000-000000000000"


# ---- sockets -------------------------------------------------------------------


def test_no_socket(machine: Machine) -> None:
    """The remedy is to start one: the system's if it is installed. A container has another one."""
    path = machine.env["GPUWM_SOCKET"]
    doctor = machine.doctor()
    doctor.says("failed", "sockets", "socket", "gpuwmctl start starts", subject=path)
    doctor.says(
        "not applicable", "sockets", "socket", subject=path.replace("gpuwm.sock", "admin.sock")
    )
    doctor.says("not applicable", "models", "root", "can't be reached")
    shown(machine, active="inactive")
    told = ("systemctl start gpuwmd.socket", "gpuwmctl start")
    machine.doctor().says("failed", "sockets", "socket", *told, subject=path)
    machine.file("/run/.containerenv")
    told = ("mount the folder", "gpuwmctl start")
    machine.doctor().says("failed", "sockets", "socket", *told, subject=path)


def test_the_operators_socket_elsewhere(machine: Machine) -> None:
    """The library finds it by a variable, and so does doctor."""
    machine.env["GPUWM_ADMIN_SOCKET"] = elsewhere = str(machine.folder / "operate.sock")
    machine.doctor().says("not applicable", "sockets", "socket", subject=elsewhere)


def test_a_stale_socket(machine: Machine) -> None:
    """Its gpuwmd is gone."""
    path = machine.env["GPUWM_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
        stale.bind(path)
    machine.doctor().says("failed", "sockets", "socket", "start gpuwmd", subject=path)


def test_a_gpuwmd_that_hangs(machine: Machine) -> None:
    """It accepts and says nothing."""
    machine.env["GPUWM_DOCTOR_LIMIT_MS"] = "300"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(machine.env["GPUWM_SOCKET"])
        listening.listen()
        doctor = machine.doctor()
    doctor.says("failed", "sockets", "answer", "did not end within")
    doctor.says("ok", "kernel", "kernel")


@ROOT
def test_a_socket_that_is_closed_for_this_user(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """The socket's own group is the remedy. Being no operator is no failure."""
    if subprocess.run(["test", "-x", machine.program], user=NOBODY, check=False).returncode:
        pytest.skip("needs a build that others may read")
    os.chown(gpuwmd.socket, -1, 1)
    doctor = machine.doctor(**as_nobody())
    doctor.says("failed", "sockets", "socket", "usermod -aG daemon", subject=str(gpuwmd.socket))
    admin = str(gpuwmd.folder / "admin.sock")
    doctor.says("not applicable", "sockets", "socket", "only operators", subject=admin)


def test_another_version(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """Gpuwmd was upgraded and gpuwmctl was not."""
    gpuwmd.stop()
    gpuwmd.words[0] = str(BUILD / "tests/next/gpuwmd")
    gpuwmd.words += ["--loader", str(BUILD / "bin/gpuwm-loader")]
    gpuwmd.start()
    machine.doctor().says("warning", "sockets", "versions", "-next", "keeps the weights")


def test_a_gpuwmd_that_drains(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """It takes nothing new."""
    gpuwmd.ctl("drain", "--yes")
    machine.doctor().says("warning", "sockets", "draining")


def test_no_loader_stands_by(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """One that can't be started."""
    gpuwmd.stop()
    gpuwmd.words += ["--loader", "/bin/false"]
    gpuwmd.process = subprocess.Popen(gpuwmd.words, env=gpuwmd.env)
    while gpuwmd.ctl("ping", check=False).returncode:
        pass
    machine.doctor().says("warning", "sockets", "loader", "gpuwmd's log")


def test_a_root_that_no_loader_can_try(
    machine: Machine, gpuwmd: Gpuwmd, tmp_path: pathlib.Path
) -> None:
    """Without a loader that stands by, gpuwmd --check-config tries the roots."""
    gone = tmp_path / "gone"
    config = tmp_path / "gpuwmd.conf"
    config.write_text(f"[loader]\npath = /bin/false\nroot = {gone}\nroot = {gpuwmd.root}\n")
    gpuwmd.stop()
    gpuwmd.words = [gpuwmd.words[0], "--socket", str(gpuwmd.socket), "--config", str(config)]
    gpuwmd.process = subprocess.Popen(gpuwmd.words, env=gpuwmd.env)
    wait_for(lambda: gpuwmd.ctl("ping", check=False).returncode == 0, "gpuwmd did not start")
    doctor = machine.doctor()
    words = ("No such file or directory", f"as uid {os.geteuid()}", "make the folder")
    doctor.says("ok", "models", "configuration", subject=str(config))
    doctor.says("warning", "models", "root", *words, subject=str(gone))
    doctor.says("not applicable", "models", "root", "no loader", subject=str(gpuwmd.root))


def test_what_the_configuration_of_a_gpuwmd_that_is_down_warns_of(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    """What gpuwmd --check-config warns of is shown; nobody else says it."""
    described = tmp_path / "described"
    described.mkdir()
    described.chmod(0o777)
    text = f"[loader]\nroot = {tmp_path}/gone\nroot = {tmp_path}\n[tiers]\nfolder = {described}\n"
    machine.file("/etc/gpuwm/gpuwmd.conf", text)
    doctor = machine.doctor()
    words = ("No such file or directory", f"as uid {os.geteuid()}", "make the folder")
    doctor.says("warning", "models", "root", *words, subject=f"{tmp_path}/gone")
    warned = [
        finding
        for finding in doctor.told["checks"]
        if finding["check"] == "configuration" and finding["verdict"] == "warning"
    ]
    assert len(warned) == 1, warned
    assert f"{described} for descriptions can be written to" in warned[0]["found"]


def test_a_file_is_judged_by_what_stands_in_it(machine: Machine, tmp_path: pathlib.Path) -> None:
    """Variables say where gpuwmctl connects, and which folders the service has that it runs in."""
    machine.file("/etc/gpuwm/gpuwmd.conf", f"[loader]\nroot = {tmp_path}\n")
    tmp_path.chmod(0o777)
    machine.env["STATE_DIRECTORY"] = str(tmp_path)
    machine.doctor().says("ok", "models", "configuration")
    machine.file("/etc/gpuwm/gpuwmd.conf", f"[socket]\npath = {tmp_path}/no/such/gpuwm.sock\n")
    words = ("[socket] path", f"{tmp_path}/no/such is not there")
    machine.doctor().says("failed", "models", "configuration", *words)


@ROOT
def test_the_systems_file_is_judged_without_a_users_folder(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    """The service has no XDG_RUNTIME_DIR. A gpuwmd of the user's own has."""
    if subprocess.run(["test", "-x", machine.program], user=NOBODY, check=False).returncode:
        pytest.skip("needs a build that others may read")
    machine.env["XDG_RUNTIME_DIR"] = "/no/such"
    machine.folder.chmod(0o755)
    machine.file("/etc/gpuwm/gpuwmd.conf", "[budget]\nhost = 1G\n")
    machine.doctor(**as_nobody()).says("ok", "models", "configuration")
    own = machine.file("/own.conf", "[budget]\nhost = 1G\n")
    doctor = machine.doctor("--config", str(own), **as_nobody())
    doctor.says("failed", "models", "configuration", "/no/such/gpuwm is not there")


def test_a_folder_that_others_may_write_to_is_told_once(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    """A client's sockets are in ours: the group sockets says it, and the configuration the rest."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    for folder in (ours, other):
        folder.mkdir()
        folder.chmod(0o777)
    path = ours / "gpuwm.sock"
    text = (
        f"[loader]\nroot = {tmp_path}\n[socket]\npath = {path}\nadmin_path = {other}/admin.sock\n"
    )
    machine.file("/etc/gpuwm/gpuwmd.conf", text)
    checks = machine.doctor("--socket", str(path)).told["checks"]
    for folder, check in ((ours, "folder"), (other, "configuration")):
        told = [c["check"] for c in checks if f"folder {folder} can be written to" in c["found"]]
        assert told == [check], told


def test_a_gpu_that_is_lost(machine: Machine, gpuwmd: Gpuwmd, folder: pathlib.Path) -> None:
    """As gpuwmd tells it."""
    if not FAKECUDA.exists():
        pytest.skip("this build has no stand-in driver")
    lost = folder / "lost"
    lost.write_text("")
    gpuwmd.stop()
    gpuwmd.env["FAKECUDA_LOST"] = str(lost)
    gpuwmd.start()
    lost.write_text("0 bus\n")
    while '"lost":{' not in gpuwmd.ctl("-o", "json", "status").stdout:
        pass
    machine.doctor().says("failed", "sockets", "lost", "fallen off the bus", subject=GPU)


def test_a_gpuwmd_that_is_kept(machine: Machine, kept: Gpuwmd) -> None:
    """By gpuwm-keeper, which doctor finds by the process that started gpuwmd."""
    pid = kept.pid()
    assert kept.process
    machine.file(f"/proc/{pid}/status", f"Name: gpuwmd\nPPid:\t{kept.process.pid}\n")
    machine.file(f"/proc/{kept.process.pid}/comm", "gpuwm-keeper\n")
    doctor = machine.doctor()
    doctor.says("ok", "sockets", "restarts", "outlive gpuwmd")
    doctor.says("ok", "service", "keeper", f"pid {kept.process.pid}")
    doctor.says("not applicable", "service", "systemd", "gpuwm-keeper")


# ---- service -------------------------------------------------------------------

SHOWN = """case $1 in
--version) echo 'systemd {version} (x)';;
show) cat <<END
LoadState={load}
ActiveState={active}
NRestarts=0
FileDescriptorStoreMax={most}
NFileDescriptorStore={used}
MainPID=321
OOMScoreAdjust=-900
END
;;
esac
"""


def shown(
    machine: Machine,
    version: str = "252",
    load: str = "loaded",
    active: str = "active",
    most: str = "2048",
    used: str = "3",
) -> None:
    """A systemd that says this."""
    machine.file("/run/systemd/system/there")
    machine.tool(
        "systemctl", SHOWN.format(version=version, load=load, active=active, most=most, used=used)
    )


@pytest.mark.parametrize(
    ("told", "verdict", "check", "words"),
    [
        ({}, "ok", "unit", "active"),
        ({}, "ok", "store", "3 of 2048"),
        ({}, "ok", "systemd", "systemd 252"),
        ({"version": "247"}, "warning", "systemd", "252 and newer"),
        ({"load": "not-found"}, "not applicable", "unit", "no such unit"),
        ({"active": "failed"}, "failed", "unit", "journalctl -u gpuwmd"),
        ({"active": "inactive"}, "warning", "unit", "systemctl start"),
        ({"most": "0"}, "failed", "store", "FileDescriptorStoreMax=2048"),
        ({"used": "2000"}, "warning", "store", "2000 of 2048"),
    ],
)
def test_systemd(
    machine: Machine, told: dict[str, str], verdict: str, check: str, words: str
) -> None:
    """What systemctl says of gpuwmd's unit."""
    shown(machine, **told)
    machine.doctor().says(verdict, "service", check, words)


@pytest.mark.parametrize(
    ("has", "verdict", "words"),
    [
        ("-900", "ok", "has -900"),
        ("-1000", "ok", "has -1000"),
        ("0", "warning", "has 0, its unit wants -900"),
    ],
)
def test_the_out_of_memory_killer(machine: Machine, has: str, verdict: str, words: str) -> None:
    """A systemd that may not lower the number starts gpuwmd with its own."""
    shown(machine)
    machine.file("/proc/321/oom_score_adj", f"{has}\n")
    machine.doctor().says(
        verdict, "service", "oom_score_adj", words, subject="/proc/321/oom_score_adj"
    )


RESTARTING = """case "$*" in
--version) echo 'systemd 252 (x)';;
*gpuwmd.socket*) echo 'Listen={path} (SequentialPacket)';;
show*) cat <<END
LoadState=loaded
ActiveState=activating
SubState=auto-restart
NRestarts=128
ExecMainStatus=2
FileDescriptorStoreMax=2048
NFileDescriptorStore=7
END
;;
esac
"""
CALL_S = 30  # base/limits.h: CALL_TIMEOUT_MS
LAST_LINE = "error: /etc/gpuwm/gpuwmd.conf:2: this is neither [section] nor key = value"


def test_a_unit_that_starts_again_and_again(machine: Machine) -> None:
    """Systemd holds the sockets, so that a connection would wait: doctor asks systemd instead."""
    path = machine.env["GPUWM_SOCKET"]
    machine.file("/run/systemd/system/there")
    machine.file("/etc/gpuwm/gpuwmd.conf", "[loader]\nbogus line\n")
    machine.tool("systemctl", RESTARTING.format(path=path))
    machine.tool("journalctl", f"echo '{LAST_LINE}'\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen()
        doctor = machine.doctor()
    told = ("auto-restart, 128 restarts, exit status 2; ", LAST_LINE, "systemctl restart gpuwmd")
    doctor.says("failed", "service", "unit", *told)
    doctor.says("ok", "service", "store", "7 of 2048")
    doctor.says("failed", "sockets", "socket", "gpuwmd.service does not run", subject=path)
    doctor.says("failed", "models", "configuration", "gpuwmd.conf:2: ", "gpuwmctl reload")
    doctor.says("failed", "peers", "keys", "in those of models")
    assert all(finding["check"] != "answer" for finding in doctor.told["checks"])
    groups = [finding["group"] for finding in doctor.told["checks"]]
    assert groups.index("service") < groups.index("sockets")


def test_who_waits_for_such_a_unit_is_told_at_once(machine: Machine) -> None:
    """And not when the command has waited in vain."""
    path = machine.env["GPUWM_SOCKET"]
    machine.file("/run/systemd/system/there")
    machine.tool("systemctl", RESTARTING.format(path=path))
    machine.tool("journalctl", f"echo '{LAST_LINE}'\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen()
        began = time.monotonic()
        with subprocess.Popen(
            [machine.program, "ls"], env=machine.env, stderr=subprocess.PIPE, text=True
        ) as ls:
            assert ls.stderr
            said = next((line for line in ls.stderr if "gpuwmd.service: " in line), "")
            assert "auto-restart, 128 restarts, exit status 2; " + LAST_LINE in said
            assert "systemctl restart gpuwmd" in ls.stderr.readline()
            assert time.monotonic() - began < CALL_S / 2
            ls.kill()


def test_a_store_that_is_smaller_than_gpuwmd_thinks(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """The unit and its environment differ."""
    shown(machine, most="100")
    machine.doctor().says("failed", "service", "store", "room for 100", "counts on 2048")


def test_a_systemd_that_hangs(machine: Machine) -> None:
    """Systemctl waits for ever."""
    machine.env["GPUWM_DOCTOR_LIMIT_MS"] = "300"
    machine.file("/run/systemd/system/there")
    machine.tool("systemctl", "exec sleep 100\n")
    machine.doctor().says("failed", "service", "systemd", "does not answer")


def test_no_systemctl(machine: Machine) -> None:
    """The folder is mounted, and the program is not there."""
    machine.file("/run/systemd/system/there")
    machine.tool("systemctl", "exit 1\n")
    machine.doctor().says("not applicable", "service", "systemd", "no systemctl")


# ---- peers ---------------------------------------------------------------------


def test_keys_for_peers(machine: Machine, tmp_path: pathlib.Path) -> None:
    """gpuwm-peer judges them; nodes that do not answer are told."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    secret.chmod(0o600)
    machine.doctor().says("not applicable", "peers", "keys", "no such file")
    machine.file("/etc/gpuwm/gpuwmd.conf", "[loader]\nroot = /srv\n")
    machine.doctor().says("not applicable", "peers", "keys", "no keys")
    machine.file("/etc/gpuwm/gpuwmd.conf", f"[peers]\nsecret = {secret}\npeer = 127.0.0.1:1\n")
    doctor = machine.doctor()
    doctor.says("ok", "peers", "keys", "a secret")
    doctor.says("ok", "peers", "transport", "may go by it", subject="TLS")
    doctor.says("not applicable", "peers", "transport", "no network card with RDMA", subject="RDMA")
    doctor.says("warning", "peers", "peer", "Connection refused", subject="127.0.0.1")
    secret.chmod(0o644)
    machine.doctor().says("failed", "peers", "keys", "others may read")


def test_a_certificate_that_ends_soon(machine: Machine, tmp_path: pathlib.Path) -> None:
    """It is told while there is time to renew it."""
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-subj", "/CN=node", "-days", "3"]
    words += ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "pem")]
    subprocess.run(words, check=True, capture_output=True)
    (tmp_path / "key").chmod(0o600)
    machine.file(
        "/etc/gpuwm/gpuwmd.conf",
        f"[peers]\ncertificate = {tmp_path}/pem\nkey = {tmp_path}/key\n"
        f"authority = {tmp_path}/pem\n",
    )
    machine.doctor().says("warning", "peers", "keys", "certificate ends in")


# ---- models --------------------------------------------------------------------


DEFAULT = "gpuwmd does not answer, so this is the file of the system's gpuwmd"


def test_configuration(machine: Machine) -> None:
    """Gpuwmd judges it. If gpuwmd does not answer, doctor says that it looks at the default."""
    path = "/etc/gpuwm/gpuwmd.conf"
    doctor = machine.doctor()
    doctor.says("not applicable", "models", "configuration", "no such file", DEFAULT, subject=path)
    doctor.says("not applicable", "peers", "keys", "no such file", DEFAULT, subject=path)
    machine.file(path, "[loader]\nroot = /srv\n")
    machine.doctor().says("ok", "models", "configuration", DEFAULT, subject=path)
    machine.file("/etc/gpuwm/gpuwmd.conf", "[loader]\nrot = /srv\n")
    machine.doctor().says("failed", "models", "configuration", "rot", "gpuwmctl reload")


def test_another_file_than_the_default(
    machine: Machine, gpuwmd: Gpuwmd, tmp_path: pathlib.Path
) -> None:
    """Doctor and `ls --peers` read the file that gpuwmd has, and none if it has none."""
    none = "gpuwmd runs without a configuration file"
    machine.file("/etc/gpuwm/gpuwmd.conf", "[loader]\nbogus line\n")
    doctor = machine.doctor()
    doctor.says("not applicable", "models", "configuration", none)
    doctor.says("not applicable", "peers", "keys", none)
    told = gpuwmd.ctl("ls", "--peers", check=False)
    assert told.returncode == 1
    assert none in told.stderr
    assert "--config FILE" in told.stderr
    gpuwmd.stop()
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    secret.chmod(0o600)
    path = tmp_path / "other.conf"
    path.write_text(f"[peers]\nsecret = {secret}\npeer = 127.0.0.1:1\n")
    gpuwmd.words += ["--config", str(path)]
    gpuwmd.start()
    doctor = machine.doctor()
    doctor.says("ok", "models", "configuration", subject=str(path))
    doctor.says("ok", "peers", "keys", "a secret", subject=str(path))
    assert "127.0.0.1, port 1: " in gpuwmd.ctl("ls", "--peers").stdout


def test_roots(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """One that is gone, and is back: the loader looks again for doctor."""
    path = str(gpuwmd.root)
    gpuwmd.root.rmdir()
    machine.doctor().says("failed", "models", "root", "No such file", subject=path)
    gpuwmd.root.mkdir()
    machine.doctor().says("ok", "models", "root", "the loader (pid", subject=path)


def test_roots_that_no_loader_tries(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """One that can't be started, and one that says nothing."""
    gpuwmd.stop()
    words = list(gpuwmd.words)
    gpuwmd.words += ["--loader", "/bin/false"]
    gpuwmd.process = subprocess.Popen(gpuwmd.words, env=gpuwmd.env)
    while gpuwmd.ctl("ping", check=False).returncode:
        pass
    path = str(gpuwmd.root)
    machine.doctor().says("not applicable", "models", "root", "no loader stands by", subject=path)
    gpuwmd.stop()
    gpuwmd.words = words
    gpuwmd.start()
    os.kill(int(gpuwmd.data("status")["standby_pid"]), signal.SIGSTOP)
    told = ("has not said within", "does its file system hang?")
    machine.doctor().says("failed", "models", "root", *told, subject=path)


def test_no_roots(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """A gpuwmd for publishers only."""
    gpuwmd.stop()
    at = gpuwmd.words.index("--root")
    del gpuwmd.words[at : at + 2]
    gpuwmd.start()
    machine.doctor().says("warning", "models", "root", "[loader]")


@ROOT
def test_roots_that_the_loader_can_not_read(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """The loader judges with what it has, so that a load, status and doctor say the same.

    This loader is nobody without nobody's group, as one that stood by while its user got a group.
    """
    if subprocess.run(["test", "-x", machine.program], user=NOBODY, check=False).returncode:
        pytest.skip("needs a build that others may read")
    path = str(gpuwmd.root)
    loader = machine.folder / "loader"
    words = f"setpriv --reuid {NOBODY} --clear-groups {BUILD}/bin/gpuwm-loader"
    loader.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    loader.chmod(0o755)
    gpuwmd.stop()
    gpuwmd.words += ["--loader", str(loader)]
    gpuwmd.start()
    gpuwmd.socket.chmod(0o666)
    machine.doctor().says("ok", "models", "root", "the loader (pid", subject=path)
    gpuwmd.root.chmod(0o700)
    gpuwmd.root.joinpath("m").mkdir()
    remedy = f"began before the groups of its uid {NOBODY} changed: gpuwmctl reload"
    told = (f"the root {path} can't be used: Permission denied", remedy)
    machine.doctor().says("failed", "models", "root", *told, subject=path)
    machine.doctor(**as_nobody()).says("failed", "models", "root", *told, subject=path)
    pid = gpuwmd.data("status")["standby_pid"]
    status = gpuwmd.ctl("status", "-v").stdout
    assert f"standby loader: ready, pid {pid}\n" in status
    assert all(words in status for words in told), status
    failed = gpuwmd.ctl("load", f"{path}/m", "m@v1", "--device", "host", "--wait", check=False)
    assert all(words in failed.stderr for words in told), failed.stderr
    gpuwmd.root.chmod(0o755)
    machine.doctor(**as_nobody()).says("ok", "models", "root", subject=path)
