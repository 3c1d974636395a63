"""What each rank of an engine in a group of standbys does besides computing: it says which process
it is, and ends when its API server has ended.

Without this an engine core whose API server was killed lives on and keeps its GPU memory: the core
of vLLM 0.25 to 0.33 does not look for its API server (vllm-project/vllm#55510). Workers below a
core do end with it.

A thread waits on the API server's pidfd. The kernel's own means, PR_SET_PDEATHSIG, is not used, for
three reasons: it fires when the *thread* that started the process ends; it knows only the direct
parent; and it must be armed in a process in which no code of gpuwm runs.
"""

from __future__ import annotations

import threading

from . import processes
from .answers import Answer, answering


class Lifeline:
    """A part of `gpuwm.vllm.Worker`. Its methods answer as those of `gpuwm.vllm.Extension` do."""

    _gpuwm_lifeline: threading.Thread | None = None

    @answering
    def gpuwm_process(self) -> Answer:
        """Returns `pid` and `started` of this rank's process, and `parents`: the same of its
        parent, of the parent's parent, and so on."""
        mine = processes.this("rank")
        return {"pid": mine.pid, "started": mine.started, "parents": processes.parents()}

    @answering
    def gpuwm_end_with(self, pid: str, started: str) -> Answer:
        """From now on this rank ends when the API server ends, and takes the engine core with it. A
        second call changes nothing.

        Unsupported: that API server is not above this rank.
        """
        if self._gpuwm_lifeline is not None:
            return {}
        server = processes.Process(processes.API_SERVER, int(pid), int(started))
        me = self.gpuwm_process()
        found = processes.of_ranks(server, [me])
        others = [process for process in found if process.pid != me["pid"]]
        watch = processes.Watch([server])
        thread = threading.Thread(
            target=processes.end_with, args=(watch, others), name="gpuwm-lifeline", daemon=True
        )
        thread.start()
        # set only now: if there is no room for a thread, none is noted
        self._gpuwm_lifeline = thread
        return {}
