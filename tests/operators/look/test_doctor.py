"""gpuwmctl doctor: each verdict is reached, and has its remedy."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
from own_gpuwmd import BUILD, FAKECUDA

from conftest import Gpuwmd
from machine import NOBODY, Machine, as_nobody

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
GPU = "GPU-fa4e0000-0000-4000-8000-000000000000"
OTHER = "GPU-fa4e0000-0000-4000-8000-000000000001"


# ---- all of it -----------------------------------------------------------------


def test_a_machine_that_is_well(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """Nothing fails, and the JSON has the documented keys."""
    machine.env = {**gpuwmd.env, **machine.env}
    doctor = machine.doctor()
    assert doctor.code == 0, doctor.told
    assert set(doctor.told) == {"schema", "version", "time_ms", "summary", "checks", "devices"}
    assert doctor.told["schema"] == 1
    assert sum(doctor.told["summary"].values()) == len(doctor.told["checks"])
    assert set(doctor.told["summary"]) == {"ok", "warning", "failed", "not applicable"}
    for finding in doctor.told["checks"]:
        assert {"group", "check", "verdict", "found"} <= set(finding)
        assert set(finding) <= {"group", "check", "subject", "verdict", "found", "remedy"}
    doctor.says("ok", "sockets", "socket", "answers", subject=str(gpuwmd.socket))
    doctor.says("ok", "sockets", "versions")
    doctor.says("ok", "sockets", "loader")
    doctor.says("warning", "sockets", "restarts", "gpuwm-keeper")
    doctor.says("ok", "models", "root", subject=str(gpuwmd.root))
    doctor.says("ok", "driver", "share", "second process", subject="host")
    doctor.says("ok", "kernel", "kernel", "Linux 6.18.0")
    doctor.says("ok", "room", "free", "32.0 GiB of 64.0 GiB", subject="memory")


def test_text_has_the_same(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """For people each finding is a line, with its remedy below it; a terminal wraps them."""
    told = machine.run()
    assert told.returncode == 0, told.stdout
    assert "\x1b" not in told.stdout
    assert "\n  warning  restarts: versions end with this gpuwmd" in told.stdout
    assert "\n    → start gpuwmd by its systemd unit, or by gpuwm-keeper\n" in told.stdout
    assert told.stdout.splitlines()[-1].endswith("not applicable (-)")


def test_a_group_that_hangs_is_ended(machine: Machine) -> None:
    """A file that nobody answers for ends its group only."""
    machine.env["GPUWM_DOCTOR_LIMIT_MS"] = "300"
    os.mkfifo(machine.root / "proc/self-is-no-file")
    (machine.root / "proc/meminfo").unlink()
    os.mkfifo(machine.root / "proc/meminfo")
    doctor = machine.doctor()
    doctor.says("failed", "room", "answer", "did not end within")
    doctor.says("ok", "kernel", "kernel")


# ---- driver --------------------------------------------------------------------


@pytest.mark.skipif(not FAKECUDA.exists(), reason="this build has no stand-in driver")
class TestStandIn:
    """On the stand-in for the driver."""

    @pytest.fixture(autouse=True)
    def on_it(self, machine: Machine) -> None:
        """The driver's library is found."""
        machine.env["LD_LIBRARY_PATH"] = str(FAKECUDA)

    def test_all_that_a_gpu_may_have(self, machine: Machine) -> None:
        """What works is tried, and told to programs."""
        machine.env |= {"FAKECUDA_FABRIC": "1", "FAKECUDA_MPS": "1"}
        doctor = machine.doctor()
        doctor.says("ok", "driver", "driver", "CUDA ")
        doctor.says("ok", "driver", "share", "compared and freed", subject=GPU)
        doctor.says("ok", "driver", "ipc", "a second process opened a handle", subject=GPU)
        doctor.says("ok", "driver", "fabric", subject=GPU)
        doctor.says("ok", "driver", "peers", OTHER, subject=GPU)
        doctor.says("ok", "driver", "granularity", "2097152 bytes", subject=GPU)
        doctor.says("warning", "driver", "mps", "is active", subject=GPU)
        doctor.says("not applicable", "driver", "mig", "is off", subject=GPU)
        told = {device.pop("device"): device for device in doctor.told["devices"]}
        assert set(told) == {"host", GPU, OTHER}
        assert told["host"] == {"share": True, "granularity": 4096}
        assert told[GPU] == {
            "name": "Stand-in GPU 0, 4.0 GiB",
            "granularity": 2097152,
            "peers": [OTHER],
            **dict.fromkeys(("vmm", "posix_fd", "share", "fabric", "ipc", "mps"), True),
            "mig": False,
        }

    def test_what_gpuwm_can_do_without(self, machine: Machine) -> None:
        """The driver refuses fabric handles, whatever the attribute says, and IPC handles."""
        machine.env |= {"FAKECUDA_FAIL": "cuIpcGetMemHandle:0:801", "FAKECUDA_DEVICES": "1"}
        doctor = machine.doctor()
        doctor.says("not applicable", "driver", "fabric", "NOT_PERMITTED", "IMEX", subject=GPU)
        doctor.says("not applicable", "driver", "ipc", "cuIpcGetMemHandle", subject=GPU)
        doctor.says("not applicable", "driver", "peers", "the only GPU", subject=GPU)
        assert doctor.told["devices"][1]["fabric"] is False

    def test_gpus_that_do_not_reach_each_other(self, machine: Machine) -> None:
        """Two GPUs behind different bridges."""
        machine.env["FAKECUDA_PEERS"] = "0"
        machine.doctor().says("warning", "driver", "peers", "topo", subject=GPU)

    def test_a_bit_that_flips(self, machine: Machine) -> None:
        """The second process reads something else."""
        machine.env |= {"FAKECUDA_FLIP": "1", "FAKECUDA_DEVICES": "1"}
        machine.doctor().says("failed", "driver", "share", "byte ", "was written", subject=GPU)

    def test_memory_that_can_not_be_passed_on(self, machine: Machine) -> None:
        """Each step of sharing may fail."""
        machine.env |= {
            "FAKECUDA_FAIL": "cuMemExportToShareableHandle:0:800",
            "FAKECUDA_DEVICES": "1",
        }
        machine.doctor().says("failed", "driver", "share", "exporting", subject=GPU)

    def test_a_driver_that_hangs(self, machine: Machine) -> None:
        """What hangs is named, and what came before it is there."""
        machine.env |= {"FAKECUDA_HANG": "cuMemCreate:2", "GPUWM_DOCTOR_LIMIT_MS": "3000"}
        doctor = machine.doctor()
        doctor.says("ok", "driver", "driver")
        doctor.says("failed", "driver", "share", "hangs", "dmesg", subject=GPU)

    def test_a_driver_that_crashes(self, machine: Machine) -> None:
        """The stand-in aborts at a setting that makes no sense."""
        machine.env["FAKECUDA_DEVICES"] = "99"
        machine.doctor().says("failed", "driver", "driver", "ended by signal 6")

    def test_a_driver_that_fails(self, machine: Machine) -> None:
        """Calls cuInit in vain, with the driver's own words."""
        machine.env["FAKECUDA_FAIL"] = "cuInit:0:999"
        machine.doctor().says("failed", "driver", "driver", "cuInit", "CUDA_ERROR_UNKNOWN")

    def test_a_driver_without_gpus(self, machine: Machine) -> None:
        """With device nodes that is a failure."""
        machine.env["CUDA_VISIBLE_DEVICES"] = ""
        machine.doctor().says("not applicable", "driver", "driver", "shows this process no GPU")
        machine.file("/dev/nvidiactl", mode=0o666)
        machine.doctor().says("failed", "driver", "driver", "shows this process no GPU")

    def test_mig_without_an_instance(self, machine: Machine, folder: pathlib.Path) -> None:
        """A divided GPU is no device, and its parts may be missing."""
        (folder / "lost").write_text("0 mig\n")
        machine.env |= {"FAKECUDA_LOST": str(folder / "lost"), "FAKECUDA_DEVICES": "1"}
        machine.doctor().says("warning", "driver", "mig", "no MIG device", subject=GPU)
        machine.env["FAKECUDA_DEVICES"] = "2"
        machine.doctor().says("ok", "driver", "mig", "MIG mode is on", subject=GPU)


def test_no_driver(machine: Machine) -> None:
    """A machine without a driver has the host's memory."""
    machine.probe_says("driver||no|there is no CUDA driver here|install one")
    machine.doctor().says("not applicable", "driver", "driver", "the host's memory only")


def test_an_old_driver(machine: Machine) -> None:
    """CUDA 11 came before driver 525."""
    machine.file(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13\n",
    )
    machine.probe_says("driver||ok|11.8|")
    machine.doctor().says("failed", "driver", "driver", "CUDA 11.8, driver 470.57.02", "525")


def test_a_driver_with_another_line(machine: Machine) -> None:
    """A line without a release is told whole."""
    machine.file("/proc/driver/nvidia/version", "NVRM version: of somebody\n")
    machine.probe_says("driver||ok|13.0|")
    machine.doctor().says("ok", "driver", "driver", "CUDA 13.0, driver of somebody")


def test_gpus_that_a_variable_hides(machine: Machine) -> None:
    """Only those were tried that the shell lets programs see."""
    machine.probe_says("driver||ok|13.0|")
    machine.env["CUDA_VISIBLE_DEVICES"] = "1,2"
    machine.doctor().says("ok", "driver", "visible", '"1,2"', "only those GPUs were tried")


@pytest.mark.parametrize("item", ["vmm", "posix_fd"])
def test_a_gpu_that_lacks_what_gpuwm_needs(machine: Machine, item: str) -> None:
    """As a virtual GPU may."""
    machine.probe_says("driver||ok|13.0|", f"{item}|{GPU}|no|no|")
    machine.doctor().says("failed", "driver", item, "does not have it", subject=GPU)


def test_a_gpu_that_can_not_be_asked(machine: Machine) -> None:
    """Its errors are told as they came."""
    machine.probe_says("device|cuda:0|failed|cuDeviceGetName: no|see nvidia-smi", "vmm|x|ok|yes|")
    doctor = machine.doctor()
    doctor.says("failed", "driver", "device", "cuDeviceGetName", subject="cuda:0")
    doctor.says("ok", "driver", "vmm")


def test_a_loader_that_ends_early(machine: Machine) -> None:
    """Its last line says where."""
    machine.loader(f"printf 'share\\t{GPU}\\ttrying\\t\\t\\ncut'; exit 3")
    machine.doctor().says("failed", "driver", "share", "ended with 3", subject=GPU)


def test_no_loader(machine: Machine) -> None:
    """A worker's container has gpuwmctl only."""
    machine.loader(None)
    machine.doctor().says("not applicable", "driver", "probe", "gpuwm-loader")


@pytest.mark.parametrize(
    ("said", "verdict", "found"),
    [
        ("always within_size advise [never] deny force", "warning", 'write "advise" to'),
        ("always within_size advise never [deny] force", "warning", "take longer"),
        ("always within_size [advise] never deny force", "ok", "have them"),
        (None, "not applicable", "has none"),
    ],
)
def test_huge_pages(machine: Machine, said: str | None, verdict: str, found: str) -> None:
    if said is not None:
        machine.file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", f"{said}\n")
    machine.doctor().says(verdict, "kernel", "huge pages", found)


# ---- the machine ---------------------------------------------------------------


def test_device_nodes(machine: Machine) -> None:
    """Modes are judged for all users, not only for root."""
    machine.file("/dev/nvidia0", mode=0o666)
    machine.file("/dev/nvidiactl", mode=0o660)
    doctor = machine.doctor()
    doctor.says("ok", "device nodes", "node", subject="/dev/nvidia0")
    doctor.says("warning", "device nodes", "node", "mode 0660", subject="/dev/nvidiactl")
    doctor.says("failed", "device nodes", "node", "nvidia-modprobe", subject="/dev/nvidia-uvm")
    doctor.says("not applicable", "device nodes", "mps")
    machine.file("/tmp/mps/control")
    machine.doctor().says("warning", "device nodes", "mps", "control pipe")


def test_no_device_nodes(machine: Machine) -> None:
    """A machine without GPUs."""
    machine.doctor().says("not applicable", "device nodes", "node")


@ROOT
def test_device_nodes_that_are_closed(machine: Machine) -> None:
    """Somebody else's, as an ordinary user."""
    machine.file("/dev/nvidia0", mode=0o600)
    if subprocess.run(["test", "-x", machine.program], user=NOBODY, check=False).returncode:
        pytest.skip("needs a build that others may read")
    doctor = machine.doctor(**as_nobody())
    doctor.says("failed", "device nodes", "node", "may not open it", subject="/dev/nvidia0")


def test_no_groups(machine: Machine) -> None:
    """Gpuwm was not installed as a service."""
    machine.file("/etc/group", "root:x:0:\n")
    machine.doctor().says("not applicable", "users", "group", subject="gpuwm")


def test_groups_and_users(machine: Machine) -> None:
    """Some are there, and some are missing."""
    machine.file("/etc/group", "gpuwm:x:900:\ngpuwm-publish:x:901:\ngpuwm-observe:x:902:\n")
    machine.file("/etc/passwd", "gpuwm:x:900:900::/:/bin/false\n")
    doctor = machine.doctor()
    doctor.says("warning", "users", "group", "systemd-sysusers", subject="gpuwm-admin")
    doctor.says("ok", "users", "user", "uid 900", subject="gpuwm")
    doctor.says("warning", "users", "user", subject="gpuwm-loader")
    if os.geteuid() == 0:
        doctor.says("ok", "users", "group", "root needs no group", subject="gpuwm")
    else:
        doctor.says("not applicable", "users", "group", "usermod", subject="gpuwm")


@ROOT
def test_groups_of_an_ordinary_user(machine: Machine) -> None:
    """In one of the groups."""
    machine.file("/etc/group", "gpuwm:x:900:\ngpuwm-publish:x:901:\n")
    if subprocess.run(["test", "-x", machine.program], user=NOBODY, check=False).returncode:
        pytest.skip("needs a build that others may read")
    doctor = machine.doctor(user=NOBODY, group=NOBODY, extra_groups=[900])
    doctor.says("ok", "users", "group", "belongs to it", subject="gpuwm")
    doctor.says("not applicable", "users", "group", "usermod -aG", subject="gpuwm-publish")


# ---- limits, container, kernel ---------------------------------------------------


def test_limits(machine: Machine) -> None:
    """Low ones are warnings."""
    machine.file("/proc/self/cgroup", "0::/work\n")
    machine.file("/sys/fs/cgroup/work/pids.max", "100\n")
    machine.file("/sys/fs/cgroup/work/pids.current", "95\n")
    machine.tool("limited", f'ulimit -n 256; ulimit -l 32; exec {machine.program} "$@"\n')
    machine.program = str(machine.bin / "limited")
    doctor = machine.doctor()
    doctor.says("warning", "limits", "RLIMIT_NOFILE", "256 open files")
    doctor.says("warning", "limits", "RLIMIT_MEMLOCK", "32 KiB")
    doctor.says("warning", "limits", "pids", "95 of 100", "TasksMax")


def test_limits_that_are_fine(machine: Machine) -> None:
    """As most machines have them."""
    machine.tool("limited", f'ulimit -n 1024; exec {machine.program} "$@"\n')
    machine.program = str(machine.bin / "limited")
    doctor = machine.doctor()
    doctor.says("ok", "limits", "RLIMIT_NOFILE")
    doctor.says("ok", "limits", "RLIMIT_MEMLOCK")
    doctor.says("ok", "limits", "pids", "no limit")
    machine.file("/proc/self/cgroup", "0::/\n")
    machine.file("/sys/fs/cgroup/pids.max", "100\n")
    machine.doctor().says("ok", "limits", "pids", "0 of 100")


@pytest.mark.parametrize(
    ("mounted", "verdict", "words"),
    [
        ("folder", "ok", "is mounted"),
        ("socket", "warning", "mount its folder"),
        ("other", "failed", "hostPath"),
    ],
)
def test_container(machine: Machine, mounted: str, verdict: str, words: str) -> None:
    """What a container has of the host."""
    path = machine.env["GPUWM_SOCKET"]
    point = {"folder": os.path.dirname(path), "socket": path, "other": "/"}[mounted]
    machine.doctor().says("not applicable", "container", "container")
    machine.file("/run/systemd/container", "systemd-nspawn\n")
    machine.file("/proc/self/mountinfo", f"1 2 0:3 / {point} rw - tmpfs tmpfs rw\n")
    doctor = machine.doctor()
    doctor.says("ok", "container", "container", "systemd-nspawn")
    doctor.says(verdict, "container", "mount", words)


@pytest.mark.parametrize(
    ("file", "kind"), [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")]
)
def test_kinds_of_containers(machine: Machine, file: str, kind: str) -> None:
    """Their files tell them."""
    machine.file(file)
    machine.file(machine.env["GPUWM_SOCKET"])
    machine.doctor().says("ok", "container", "container", kind)
    machine.doctor().says("ok", "container", "mount", "gpuwmd runs in it")


def test_pods(machine: Machine) -> None:
    """Kubernetes sets variables, and nspawn writes a file without an init system too."""
    machine.file("/run/host/container-manager", "systemd-nspawn\n")
    machine.doctor().says("ok", "container", "container", "systemd-nspawn")
    (machine.root / "run/host/container-manager").unlink()
    machine.env["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    machine.doctor().says("ok", "container", "container")


def test_features_of_the_kernel_that_a_sandbox_forbids(machine: Machine) -> None:
    """Each missing one says what is lost."""
    machine.env["LD_PRELOAD"] = str(BUILD / "tests/preload/no-kernel.so")
    asan = os.environ.get("ASAN_OPTIONS", "")
    machine.env["ASAN_OPTIONS"] = f"{asan}:verify_asan_link_order=0:detect_leaks=0"
    doctor = machine.doctor()
    doctor.says("failed", "kernel", "feature", "5.3", subject="pidfd_open")
    doctor.says("warning", "kernel", "feature", "6.5", subject="SO_PEERPIDFD")
    doctor.says("failed", "kernel", "feature", "5.6", subject="openat2")
    doctor.says("failed", "kernel", "feature", "memfd_create", subject="memfd seals")


# ---- the machine ----------------------------------------------------------------


def test_what_this_machine_is(machine: Machine) -> None:
    """The first lines of doctor."""
    bare = machine.doctor()
    assert bare.told["checks"][0]["group"] == "machine"
    bare.says("not applicable", "machine", "gpu", "no NVIDIA GPU here")
    bare.says("not applicable", "machine", "container")
    machine.file("/proc/driver/nvidia/gpus/0000:01:00.0/information")
    machine.file("/proc/driver/nvidia/gpus/0000:02:00.0/information")
    machine.file("/run/systemd/system/x")
    machine.file("/run/.containerenv")
    machine.file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    machine.file("/proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n")
    full = machine.doctor()
    full.says("ok", "machine", "gpu", "2 GPUs")
    full.says("ok", "machine", "systemd")
    full.says("ok", "machine", "container", "podman")
    full.says("warning", "machine", "wsl")
    full.says("warning", "machine", "gvisor")


# ---- leftovers ------------------------------------------------------------------


def test_leftovers(machine: Machine, gpuwmd: Gpuwmd) -> None:
    """Files of saves that were killed, beneath the roots."""
    machine.env = {**gpuwmd.env, **machine.env}
    doctor = machine.doctor()
    doctor.says("ok", "leftovers", "saves", subject=str(gpuwmd.root))
    doctor.says("ok", "leftovers", "owner")
    folder = gpuwmd.root / "llama" / "v1"
    folder.mkdir(parents=True)
    left = folder / ".model.safetensors.0123456789abcdef.tmp"
    left.touch()
    doctor = machine.doctor()
    doctor.says("warning", "leftovers", "saves", "1 file of saves", str(left))
    left.unlink()


def test_the_configuration_that_gpuwmd_runs_with(
    machine: Machine, gpuwmd: Gpuwmd, tmp_path: pathlib.Path
) -> None:
    """Or the one that --config names."""
    machine.env = {**gpuwmd.env, **machine.env}
    wrong = tmp_path / "wrong.conf"
    wrong.write_text("[loader]\nbogus line\n")
    doctor = machine.doctor("--config", str(wrong))
    doctor.says("failed", "models", "configuration", "wrong.conf:2", subject=str(wrong))
    # A warning that comes first does not hide the error.
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    machine.env["GPUWM_SOCKET"] = ""
    wrong.write_text(f"[socket]\npath = {folder}/s\nadmin_path = /no/such/folder/s\n")
    doctor = machine.doctor("--config", str(wrong))
    doctor.says("failed", "models", "configuration", "/no/such/folder is not", subject=str(wrong))
    assert "every user" not in doctor.found("models", "configuration")["found"]
