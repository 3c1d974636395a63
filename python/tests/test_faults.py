"""Writes that no guard sees: the process dies, and says of which tensor and version."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import Daemon, on_host

pytestmark = on_host

WRITES = {
    "data": "w['norm.weight'].torch().data[0] = 1",
    "in place": "w.torch('norm.weight').add_(1)",
    "a view": "w.state_dict()['norm.weight'].view(-1).zero_()",
    "out=": "torch.add(torch.ones(4), 1, out=w.torch('norm.weight'))",
    "NumPy's pointer": "ctypes.memset(np.from_dlpack(w['norm.weight']).ctypes.data, 1, 4)",
    "a bound model": "m = torch.nn.ModuleDict({'norm': torch.nn.LayerNorm(4, bias=False)});"
    "w.bind(m); m['norm'].weight.view(-1).zero_()",
}
SAYS = (
    "gpuwm: SIGSEGV: a write into tensor norm.weight of faults@v1, which is shared and read-only: "
    'write into a copy, or attach with writes="private"\n'
)


@pytest.fixture(scope="module")
def ref(daemon: Daemon) -> str:
    return daemon.load("faults@v1", {"norm.weight": np.ones(4, np.float32)})


def end(ref: str, write: str, *options: str, **environment: str) -> tuple[int, str]:
    """What a process that writes ends with, and says."""
    code = f"import ctypes, gpuwm, numpy as np, torch; w = gpuwm.attach({ref!r}); {write}"
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("how", WRITES)
def test_the_tensor_and_the_version_are_named(ref: str, how: str) -> None:
    assert end(ref, WRITES[how]) == (-signal.SIGSEGV, SAYS)


def test_faulthandler_adds_its_traceback(ref: str) -> None:
    code, said = end(ref, WRITES["data"], "-X", "faulthandler")
    assert code == -signal.SIGSEGV
    assert said.startswith(SAYS)
    assert "Fatal Python error: Segmentation fault" in said
    assert 'File "<string>", line 1 in <module>' in said


def test_a_handler_that_comes_later_has_the_fault(ref: str) -> None:
    """faulthandler raises the signal anew, which has no address then."""
    late = "w.torch('norm.weight'); import faulthandler; faulthandler.enable(); "
    code, said = end(ref, late + WRITES["data"])
    assert code == -signal.SIGSEGV
    assert said.startswith("Fatal Python error: Segmentation fault")


def test_other_faults_are_not_ours(ref: str) -> None:
    write = "w.torch('norm.weight'); ctypes.memset(16, 1, 1)"
    assert end(ref, write) == (-signal.SIGSEGV, "")


def test_it_can_be_turned_off(ref: str) -> None:
    assert end(ref, WRITES["data"], GPUWM_NAME_FAULTS="0") == (-signal.SIGSEGV, "")


def test_nothing_is_installed_before_it_is_needed(ref: str) -> None:
    """Nor where writes are private."""
    write = f"gpuwm.attach({ref!r}, writes='private').torch('norm.weight').zero_()"
    handler = "print(next(l for l in open('/proc/self/status') if l.startswith('SigCgt')), end='')"
    caught = "import sys; sys.stdout = sys.stderr; "
    masks = []
    for more in ("", "w.torch('norm.weight'); "):
        code, said = end(ref, f"{caught}{write}; {more}{handler}")
        assert code == 0
        masks.append(int(said.split()[1], 16) >> (signal.SIGSEGV - 1) & 1)
    assert masks == [0, 1]


def test_a_private_copy_takes_the_write(ref: str) -> None:
    """alibaba/rtp-llm pull request 1218: read-only mapped weights of fp8 end the process when codes
    of NaN are rewritten in place, through a view of integers. The line names the tensor, and
    `private=` copies just this one."""
    model = "m = torch.nn.ModuleDict({'norm': torch.nn.LayerNorm(4, bias=False)}); w.bind(m%s); "
    write = "v = m['norm'].weight.detach().view(torch.int8); v[v == -128] = 0; v[:] = 0"
    assert end(ref, model % "" + write) == (-signal.SIGSEGV, SAYS)
    assert end(ref, model % ", private=['norm.weight']" + write) == (0, "")
