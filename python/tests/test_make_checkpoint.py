"""scripts/make-checkpoint: what it says where it can't write."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "make-checkpoint"


@pytest.mark.skipif(not SCRIPT.exists(), reason="scripts/make-checkpoint is not here")
@pytest.mark.parametrize("out", ["file/v1", "file/v1.safetensors"])
def test_a_folder_that_can_not_be_written_is_named(out: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()  # no folder, for root neither
    command = [str(SCRIPT), str(tmp_path / out), "--bytes", "1K"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1
    expected = f"scripts/make-checkpoint: {tmp_path / out}: Not a directory: take a folder"
    assert run.stderr.startswith(expected), run.stderr
    assert len(run.stderr.splitlines()) == 1
