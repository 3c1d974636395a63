"""gpuwmd, as gpuwm-serve uses it: started if there is none, asked how much room its devices have,
and asked who decides. One gpuwm-serve decides for each gpuwmd: the one that has the claim of a name
that nobody publishes. A claim ends with its process."""

from __future__ import annotations

import logging
import pathlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping

import gpuwm

from .. import _election, errors

log: logging.Logger = logging.getLogger("gpuwm.serve")

CLAIM = "gpuwm-serve@decides"
START_S = 200.0  # gpuwmctl start itself gives up after 180 s
STOP_S = 60.0


def connect() -> tuple[gpuwm.Client, bool]:
    """This user's gpuwmd, or the system's; whether it had to be started. Raises Unreachable."""
    try:
        return gpuwm.connect(name="gpuwm-serve"), False
    except errors.Unreachable:
        _run("start", START_S)
        return gpuwm.connect(name="gpuwm-serve"), True


def stop() -> None:
    """Ends the gpuwmd that `connect` started."""
    _run("stop", STOP_S)


def _run(what: str, limit: float) -> None:
    program = _program()
    try:
        done = subprocess.run(
            [program, what], capture_output=True, text=True, timeout=limit, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.Unreachable(f"{program} {what}: {error}", "start gpuwmd yourself") from None
    if done.returncode:
        raise errors.Unreachable(f"{program} {what} failed", done.stderr.strip())
    log.info("%s", done.stdout.partition("\n")[0])


def _program() -> str:
    """gpuwmctl of the wheel, or that of $PATH."""
    own = pathlib.Path(gpuwm.__file__).parent / "bin" / "gpuwmctl"
    return str(own) if own.exists() else shutil.which("gpuwmctl") or "gpuwmctl"


def budgets(client: gpuwm.Client, devices: Iterable[str]) -> Mapping[str, int]:
    """What gpuwmd may take of each of these devices: "0" is its first GPU. Those that it does not
    have are left out."""
    gpus = [device for device in client.devices if device.is_cuda]
    known = {device.id: device.budget for device in client.devices}
    known.update({str(number): device.budget for number, device in enumerate(gpus)})
    return {device: known[device] for device in devices if device in known}


def decides(client: gpuwm.Client, wait: float) -> bool:
    """Whether this process decides, from now on until it ends. It waits so long for another one to
    end. Raises Refused: this user may not publish, and so may not claim."""
    try:
        found = _election.claim(client, CLAIM, None, wait, None)
    except errors.TimedOut:
        return False
    if found is not None:
        raise errors.Exists(f"{CLAIM} was published", "gpuwmctl retire it: it is nobody's version")
    return True
