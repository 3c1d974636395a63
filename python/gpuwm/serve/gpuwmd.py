"""gpuwmd, as gpuwm-serve uses it: started if there is none, asked how much room its devices have,
and asked who decides. One gpuwm-serve decides for each gpuwmd: the one that has the claim of a name
that nobody publishes. A claim ends with its process."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping

import gpuwm

from .. import _election, errors

log: logging.Logger = logging.getLogger("gpuwm.serve")

CLAIM = "gpuwm-serve@decides"
START_S = 200.0  # gpuwmctl start itself gives up after 180 s
STOP_S = 60.0
OPERATORS = 8  # gpuwmd keeps an eighth of each budget for operators (daemon/base/share.h)
AGAIN_S = 1.0  # while no gpuwmd answers: the next one starts within a second


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
    """What users may take of each of these devices: "0" is its first GPU. Those that it does not
    have are left out."""
    gpus = [device for device in client.devices if device.is_cuda]
    known = {device.id: device.budget for device in client.devices}
    known.update({str(number): device.budget for number, device in enumerate(gpus)})
    return {
        device: known[device] - known[device] // OPERATORS for device in devices if device in known
    }


def version_id(client: gpuwm.Client, ref: str) -> str:
    """Of the version that "model@alias" or "model@tag" names now; "": there is none that is
    ready."""
    model, _, name = ref.partition("@")
    listed = client.list(model)
    ids = {row["tag"]: row["version"] for row in listed["versions"] if row["state"] == "ready"}
    for row in listed["aliases"]:
        if row["alias"] == name and row["version"] in ids.values():
            return str(row["version"])
    return str(ids.get(name, ""))


async def watch(client: gpuwm.Client) -> AsyncIterator[str]:
    """Says which alias has moved ("llama@prod"), and "" when anything may have changed: at first,
    and when another gpuwmd came."""
    while True:
        events = client.events()
        try:
            await asyncio.to_thread(events.open)
            yield ""
            async for event in events:
                if event.kind == "swapped":
                    yield f"{event.model}@{event.alias}"
                elif event.kind in ("lost", "disconnected"):
                    yield ""
        except errors.Error as error:
            log.warning("gpuwmd does not say what happens: %s", error)
            await asyncio.sleep(AGAIN_S)
        finally:
            events.close()


def still_decides(client: gpuwm.Client) -> bool:
    """Whether this process, which has decided, goes on with that. The library takes the claim again
    from each gpuwmd that comes. If that one had lost all it knew, somebody else may have come
    first."""
    try:
        return decides(client, 0)
    except errors.Busy:  # this client has claimed it already
        return True


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
