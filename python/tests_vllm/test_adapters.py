"""LoRA adapters stay beside the weights: on shared weights they give what they give on vLLM's own,
and the weights stay as they are."""

from __future__ import annotations

import os
import pathlib
from multiprocessing.connection import Connection
from typing import Any

from conftest import Daemon

from tests_engines.engines import Job, heard, processes


def _serve(pipe: Connection, socket: str, *arguments: Any) -> None:
    os.environ["GPUWM_SOCKET"] = socket  # the fork server may be older than the test's gpuwmd
    from . import adapters

    adapters.serve(pipe, *arguments)


def answers(
    socket: pathlib.Path, folder: pathlib.Path, checkpoint: pathlib.Path, **arguments: Any
) -> Any:
    """Of an engine with these arguments: see `adapters.serve`."""
    meet = folder / f"meet-{len(list(folder.iterdir()))}"
    job = Job({"model": str(checkpoint), "enable_lora": True, **arguments}, str(meet))
    ours, theirs = processes.Pipe()
    given = (theirs, str(socket), job, str(checkpoint), str(folder / "adapter"))
    process = processes.Process(target=_serve, args=given, daemon=True)
    process.start()
    theirs.close()
    found = heard(ours, str)
    process.join()
    return found


def test_adapters_on_shared_weights(
    daemon: Daemon, checkpoints: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    checkpoint = checkpoints / "dense"
    own = answers(daemon.socket, tmp_path, checkpoint)
    plain, adapted, before, after = own
    assert plain != adapted
    assert before == after
    for _ in ("builds", "attaches"):
        shared = answers(
            daemon.socket,
            tmp_path,
            checkpoint,
            load_format="gpuwm",
            model_loader_extra_config={"ref": "adapted@v1"},
        )
        assert shared == own
    (row,) = daemon.admin.list("adapted")["versions"]
    assert row["state"] == "ready"
