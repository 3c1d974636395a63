"""The copy of the tree that mutants change, and the room in which their tests run."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
NOT_BUILT = ("docs/", "python/", "scripts/", "tests/mutants/", "CHANGELOG.md", "CONTRIBUTING.md", "README.md")
COMMANDS = WORK / "commands"  # of make, to build all tests
OUT = WORK / "out"  # the one folder that tests can write besides what is theirs alone
# Warnings would end the build of many a mutant. Without optimising, a mutant is compiled and linked in the least time.
MAKE = ["make", "-s", f"-j{os.cpu_count()}", "COVERAGE=1", "OPT=", "CFLAGS=-w"]

# A mutant of kill() may kill any process, and one of unlink() remove any file. Its tests see their own processes only, and write only
# into memory of their own, and OUT.
ROOM = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount", "--ipc", "--pid", "--fork",
        "--mount-proc", "--kill-child", "sh", "-ec", """
    mount --bind "$0" "$0"
    while read -r _ point kind _; do
        case $kind:$point in
        *:"$0" | proc:* | sysfs:* | devpts:* | mqueue:* | cgroup*:*) ;;
        *) mount -o remount,ro,bind "$point" 2>/dev/null || true ;;
        esac
    done </proc/mounts
    for point in /tmp /var/tmp /dev/shm; do mount -t tmpfs tmpfs "$point"; done
    "$@" || exit $?
""", str(OUT)]  # fmt: skip


def renew() -> bool:
    """Copies what git knows and what differs. Returns whether something of it is built."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = {name for name in listing.split("\0") if name and (ROOT / name).is_file()}
    changed = []
    for name in sorted(names):
        source, target = ROOT / name, TREE / name
        if not target.is_file() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
            changed.append(name)
    for path in TREE.rglob("*.[ch]"):  # make would build what is gone
        name = str(path.relative_to(TREE))
        if name not in names and not name.startswith("build/"):
            path.unlink()
            changed.append(name)
    return any(not name.startswith(NOT_BUILT) for name in changed)


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAKE, *words], cwd=TREE, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def make_all() -> str:
    """Makes the tests, and remembers how. Returns what make said if it failed."""
    built = make("tests")
    if built.returncode:
        return built.stdout
    COMMANDS.write_text(make("--dry-run", "--always-make", "tests").stdout.replace("\\\n", " "))
    return ""


def commands() -> list[str]:
    return COMMANDS.read_text().splitlines()


def shell(command: str) -> bool:
    done = subprocess.run(["sh", "-c", command], cwd=TREE, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


class Changed:
    """A source file that a mutant changed, for as long as it is changed. make reads all rules, which takes longer than to compile one
    object: so this runs the commands that make would."""

    def __init__(self, path: str, text: str) -> None:
        self.source, self.kept = TREE / path, (TREE / path).read_text()
        self.object = f"build/obj/{path.removesuffix('.c')}.o"
        self.made = [TREE / self.object, (TREE / self.object).with_suffix(".gcno")]
        self.source.write_text(text)

    def compile(self) -> bool:
        for path in self.made:
            shutil.copy2(path, f"{path}.kept")
        return all(shell(line) for line in commands() if f" -o {self.object} " in line) and self._archive()

    def _archive(self) -> bool:
        archives = [line.split()[2] for line in commands() if line.startswith("ar ") and f" {self.object}" in line]
        return all(shell(f"ar r {archive} {self.object}") for archive in archives)

    def link(self, program: str) -> bool:
        return all(shell(line) for line in commands() if f" -o {program} " in line)

    def undo(self) -> None:
        self.source.write_text(self.kept)
        if self.source.suffix == ".c":
            for path in self.made:
                pathlib.Path(f"{path}.kept").replace(path)
            self._archive()


def run(command: list[str], environment: dict[str, str], seconds: float, folder: str = ".") -> tuple[int | None, str, float]:
    """Runs tests in the room. Returns their exit status (None: the time was over), what they printed, and how long they took."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    began = time.monotonic()
    process = subprocess.Popen(
        [*ROOM, *command], env={**os.environ, **environment}, cwd=TREE / folder, stdin=subprocess.DEVNULL, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=seconds)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        # unshare's child is the first process of the room: all others end with it.
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        status = None
    return status, text, time.monotonic() - began
