"""The ranks of one engine of vLLM: all go on, or none does and nobody hangs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import gpuwm
from gpuwm.engines.ranks import Ranks

pytest.importorskip("torch")

# A process that has imported torch, which takes seconds. It forks two ranks for each line of its
# input: JSON of a port and of the code that they run. Each rank has what vLLM's GroupCoordinator
# has, as `ranks`. The answer is a line of JSON: what each of both ranks printed. The first rank's
# standard input ends when the second rank has ended.
FORKS = """
import json, os, sys, types
import gpuwm
import torch.distributed as dist
from gpuwm.engines import ranks as module

def be(rank, port, code):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    ranks = module.Ranks(types.SimpleNamespace(
        rank_in_group=rank, world_size=2, ranks=[0, 1], cpu_group=dist.group.WORLD))
    try:
        exec(code, {**globals(), "rank": rank, "ranks": ranks})
    except Exception as error:
        print(type(error).__name__, error, flush=True)

def started(rank, port, code):
    (his_in, to), (out, his_out) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(his_in, 0)
        os.dup2(his_out, 1)
        os.closerange(3, 64)
        sys.stdin = open(0, closefd=False)
        be(rank, port, code)
        sys.stdout.flush()
        os._exit(0)
    os.close(his_in)
    os.close(his_out)
    return pid, to, out

def ended(pid, to, out):
    os.close(to)
    said = open(out).read()
    os.waitpid(pid, 0)
    return said.strip()

for line in sys.stdin:
    port, code = json.loads(line)
    first, second = started(0, port, code), started(1, port, code)
    said = ended(*second)
    print(json.dumps([ended(*first), said]), flush=True)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.communicate(timeout=60)


Two = Callable[[str], list[str]]


@pytest.fixture
def two(forks: subprocess.Popen[str]) -> Two:
    """two(code): what each of both ranks printed."""

    def run(code: str) -> list[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        assert forks.stdin
        assert forks.stdout
        forks.stdin.write(json.dumps([port, code]) + "\n")
        forks.stdin.flush()
        found: list[str] = json.loads(forks.stdout.readline())
        return found

    return run


def test_one_rank_needs_no_process_group() -> None:
    ranks = Ranks()
    assert ranks.gather(3) == [3]
    assert ranks.first(4) == 4
    ranks.agree("load")
    with pytest.raises(gpuwm.NoRoom):
        ranks.agree("load", gpuwm.NoRoom("no room"))


def test_all_ranks_have_what_each_gave_and_what_the_first_gave(two: Two) -> None:
    code = "print(ranks.gather(10 * rank), ranks.first('a' if rank == 0 else None))"
    assert two(code) == ["[0, 10] a", "[0, 10] a"]


def test_ranks_without_an_error_go_on(two: Two) -> None:
    assert two("ranks.agree('load m'); print('on')") == ["on", "on"]


def test_one_ranks_error_ends_all_and_is_named(two: Two) -> None:
    code = "ranks.agree('load m', gpuwm.NoRoom('no room') if rank == 1 else None)"
    first, second = two(code)
    assert first == (
        "Error rank 1 of this engine could not load m: NoRoom: no room: so that no rank goes on"
    )
    assert second == "NoRoom no room"


def test_a_rank_that_ends_with_an_error_of_its_own_ends_all(two: Two) -> None:
    """No rank may fall back then: RankEnded, also where another rank has an error of gpuwm's."""
    for other in ("None", "gpuwm.NoRoom('no room')"):
        code = f"ranks.agree('load m', OSError('no file') if rank == 1 else {other})"
        first, second = two(code)
        assert first == (
            "RankEnded rank 1 of this engine could not load m, and ends: OSError: no file: the log "
            "of that rank says why"
        )
        assert second == "OSError no file"


def test_a_rank_that_ends_is_told_to_the_others(two: Two) -> None:
    # They meet first: a rank that ends before has no engine that it could leave.
    first, second = two("ranks.gather(0)\nif rank == 0: import os; os._exit(0)\nranks.gather(1)")
    assert first == ""
    assert second.startswith("RankEnded rank 1 of this engine lost another of its 2 ranks")


def test_a_rank_that_failed_does_not_wait_for_ranks_that_hang(two: Two) -> None:
    code = (
        "assert module.TELL_SECONDS\n"
        "module.TELL_SECONDS = 0.2\n"
        "if rank == 0: sys.stdin.read()\n"
        "else: ranks.agree('load m', OSError('no file'))"
    )
    _, second = two(code)
    assert second == "OSError no file"
