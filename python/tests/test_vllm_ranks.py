"""The ranks of one engine of vLLM: all go on, or none does and nobody hangs."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

import gpuwm
from gpuwm.engines.ranks import Ranks

pytest.importorskip("torch")

# Two ranks, each with what vLLM's GroupCoordinator has; the test's code uses `ranks`.
RANK = """
import sys, types
import gpuwm
import torch.distributed as dist
from gpuwm.engines import ranks as module
rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
ranks = module.Ranks(types.SimpleNamespace(
    rank_in_group=rank, world_size=2, ranks=[0, 1], cpu_group=dist.group.WORLD))
try:
    exec(sys.argv[3])
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


def two(code: str) -> list[str]:
    """What each of both ranks printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), port, code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    # The second first: the first may hang until its standard input is closed.
    second, first = [each.communicate(timeout=60)[0].strip() for each in reversed(started)]
    return [first, second]


def test_one_rank_needs_no_process_group() -> None:
    ranks = Ranks()
    assert ranks.gather(3) == [3]
    assert ranks.first(4) == 4
    ranks.agree("load")
    with pytest.raises(gpuwm.NoRoom):
        ranks.agree("load", gpuwm.NoRoom("no room"))


def test_all_ranks_have_what_each_gave_and_what_the_first_gave() -> None:
    code = "print(ranks.gather(10 * rank), ranks.first('a' if rank == 0 else None))"
    assert two(code) == ["[0, 10] a", "[0, 10] a"]


def test_ranks_without_an_error_go_on() -> None:
    assert two("ranks.agree('load m'); print('on')") == ["on", "on"]


def test_one_ranks_error_ends_all_and_is_named() -> None:
    code = "ranks.agree('load m', gpuwm.NoRoom('no room') if rank == 1 else None)"
    first, second = two(code)
    assert first == (
        "Error rank 1 of this engine could not load m: NoRoom: no room: so that no rank goes on"
    )
    assert second == "NoRoom no room"


def test_a_rank_that_ends_with_an_error_of_its_own_ends_all() -> None:
    """No rank may fall back then: RankEnded, also where another rank has an error of gpuwm's."""
    for other in ("None", "gpuwm.NoRoom('no room')"):
        code = f"ranks.agree('load m', OSError('no file') if rank == 1 else {other})"
        first, second = two(code)
        assert first == (
            "RankEnded rank 1 of this engine could not load m, and ends: OSError: no file: the log "
            "of that rank says why"
        )
        assert second == "OSError no file"


def test_a_rank_that_ends_is_told_to_the_others() -> None:
    first, second = two("if rank == 0: import os; os._exit(0)\nranks.gather(1)")
    assert first == ""
    assert second.startswith("RankEnded rank 1 of this engine lost another of its 2 ranks")


def test_a_rank_that_failed_does_not_wait_for_ranks_that_hang() -> None:
    code = (
        "module.TELL_SECONDS = 0.2\n"
        "if rank == 0: sys.stdin.read()\n"
        "else: ranks.agree('load m', OSError('no file'))"
    )
    _, second = two(code)
    assert second == "OSError no file"
