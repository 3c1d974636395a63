"""vLLM's classes are as type checkers are told."""

from __future__ import annotations

import pytest

from gpuwm.vllm import _bases
from tests_engines.bases import differences


@pytest.mark.filterwarnings("ignore")  # vLLM's imports warn
def test_checkers_are_told_of_what_vllm_has() -> None:
    from vllm.utils import mem_utils
    from vllm.v1.worker import gpu_worker

    from gpuwm.vllm import model_loader, raw, sleep_mode, transfer
    from gpuwm.vllm.kv import connector

    users = (model_loader, raw, sleep_mode, transfer, connector, mem_utils, gpu_worker)
    assert differences(_bases, *users) == []
