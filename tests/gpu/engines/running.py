"""One run: where things lie, how engines are started in it, and what is asked of each."""

from __future__ import annotations

import os
import pathlib
import shutil
import time
from dataclasses import dataclass, field
from typing import Any

import processes
from engine import Options
from memory import Gpus
from processes import Engine, Failed, Spares
from report import Report, differing, first_difference
from service import Service

MAX_LENGTH = 2048  # tokens of a prompt and its answer: the longest here has 535
ALONE = 0.6  # of the GPU for one engine: a checkpoint and two versions may lie beside it
START_S = 170.0  # for a start with a cold compilation, and its answers
WORKER = "gpuwm.vllm.Worker"
EXTRA_MIB = 2 << 10  # what a builder may need besides the model, its context included
WEIGHTS_S = 0.3  # the goal for the weights' part of an engine whose weights are there
COMMON = "common"  # the cache of engines that compile nothing, or whose cache does not matter
# NVLink multicast can put GPUs of a host that others share out of service.
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
ENVIRONMENT = {
    **NO_MULTICAST,
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the batches of a step don't depend on a queue's timing
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer is not there
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONHASHSEED": "0",
}
COLUMNS = ("weights s", "loader s", "LLM() s", "answered s", "KV tokens", "load peak MiB", "same")


@dataclass
class Run:
    """`state`: the folder that stays for the next run, with models and caches. `program`:
    engine.py, or what stands in for it; `serving`, `training`: the same for serving.py and
    trainer.py. `standing`: what stands in for the servers of `standby-http`; empty: they are real.
    `switches`: how many the part `swap` makes with mode keep, and with finish; `publishes`: how
    many the part `trainer` makes. `answers`: how many tokens the shortest
    answers in `swap` have. `spares`: engines start in processes that
    wait for them; without, each imports vLLM itself. `attention`: the backend; vLLM chooses where
    it is empty. `ranks`: what engines of two ranks get besides."""

    out: pathlib.Path
    state: pathlib.Path
    report: Report
    gpus: Gpus
    service: Service
    program: str
    serving: str = ""
    standing: str = ""
    training: str = ""
    switches: tuple[int, int] = (50, 20)
    publishes: int = 10
    answers: int = 224
    turns: int = 20
    spares: Spares | None = None
    attention: str = ""
    llm: dict[str, Any] = field(default_factory=dict)
    ranks: dict[str, Any] = field(default_factory=dict)
    running: list[Engine] = field(default_factory=list)

    @property
    def host(self) -> bool:
        return len(self.gpus) == 0

    def device(self, rank: int) -> str:
        """gpuwm's name of the device of a rank."""
        if self.host:
            return "host"
        return "cuda:0" if self.ranks else f"cuda:{rank}"  # --one-card: all share the first

    def model(self, name: str) -> str:
        return str(self.state / "models" / name)

    def cache(self, name: str) -> dict[str, str]:
        """The environment of an engine whose compiled code is kept in this cache alone. What vLLM
        knows about classes of models is there from the start: to look at a class it imports
        everything once more."""
        folder, known = self.state / "caches" / name, self.state / "caches" / COMMON / "modelinfos"
        if known.exists() and name != COMMON:
            shutil.copytree(known, folder / "modelinfos", dirs_exist_ok=True)
        return {"VLLM_CACHE_ROOT": str(folder)}

    # ---- engines ----

    def engine(
        self,
        name: str,
        model: str,
        gpuwm: dict[str, Any] | None = None,
        *,
        fresh: bool = False,
        lora: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        streams: int = 0,
        http: bool = False,
        stands_by: bool = False,
        on_request: bool = False,
        training: tuple[str, ...] = (),
        **llm: Any,
    ) -> Engine:
        """Starts one. gpuwm: the loader's extra configuration; None: vLLM's own load. fresh: its
        process imports vLLM first. streams, http: it is serving.py, with so many streams, as a
        server or not; it imports vLLM first. training: it is trainer.py, with these models, and
        imports vLLM first. stands_by: it answers only after it was asked to "occupy".
        on_request: it answers no batch by itself. Eager, unless `enforce_eager=False`."""
        given: dict[str, Any] = {
            "model": self.model(model),
            "skip_tokenizer_init": True,
            "max_model_len": MAX_LENGTH,
            "dtype": "bfloat16",
            "seed": 0,
            "gpu_memory_utilization": ALONE,
            "enforce_eager": True,
            **self.llm,
        }
        if self.attention:
            given["attention_backend"] = self.attention
        if gpuwm is not None:
            given |= {
                "load_format": "gpuwm",
                "model_loader_extra_config": gpuwm,
                "worker_cls": WORKER,
            }
        options = Options(
            llm={**given, **llm},
            answers="",
            lora=[self.model(adapter) for adapter in lora],
            environment={**self.cache(COMMON), **(environment or {})},
            streams=streams,
            tokens=self.answers,
            http=http,
            stands_by=stands_by,
            on_request=on_request,
            training=[self.model(each) for each in training],
        )
        program = self.serving if streams else self.training if training else self.program
        is_other = bool(streams or training)
        spare = self.spares.take() if self.spares and not fresh and not is_other else None
        engine = Engine(f"{self.report.part}-{name}", options, self.out, self.gpus, spare, program)
        self.running.append(engine)
        return engine

    def end(self, *engines: Engine) -> None:
        """These, or all; returns when their memory is back."""
        ending = list(engines) or list(self.running)
        processes.end(ending)
        self.running = [engine for engine in self.running if engine not in ending]
        self.gpus.settled_mib()

    def kill_all(self) -> None:
        for engine in self.running:
            engine.kill()
        self.running.clear()

    # ---- what is asked of them ----

    def head(self) -> None:
        self.report.head("", *COLUMNS)

    def measured(self, engine: Engine, base: Engine | None, *, ends: bool = True) -> Engine:
        """Waits for its answers, prints its row, compares with `base`, and lets it end."""
        processes.answered([engine], START_S)
        answered = time.monotonic() - engine.began
        same = None if base is None else not differing(base.hashes(), engine.hashes())
        numbers, started = engine.log.numbers, engine.log.event("started") or {}
        loader = engine.log.gpuwm[-1] if engine.log.gpuwm else {}
        self.report.row(
            engine.name.partition("-")[2],
            numbers.get("loaded s"),
            loader_seconds(loader),
            started.get("seconds", {}).get("LLM()"),
            answered,
            int(numbers["KV tokens"]) if "KV tokens" in numbers else None,
            engine.peak_loading,
            {None: "base", True: "yes", False: "NO"}[same],
        )
        self.report.record(
            "engine",
            name=engine.name,
            spare=engine.spare,
            answered_s=answered,
            numbers=numbers,
            started=started,
            gpuwm=engine.log.gpuwm,
            backend=engine.log.backend,
            peak_loading_mib=engine.peak_loading,
            peak_mib=engine.peak.most,
            hashes=engine.hashes(),
        )
        if base is not None:
            self.same(base, engine)
        if ends:
            self.end(engine)
        return engine

    def same(self, base: Engine, engine: Engine) -> bool:
        names = differing(base.hashes(), engine.hashes())
        what = f"{engine.name} answers as {base.name}: every token and log-probability, bit by bit"
        if not self.report.check(not names, what):
            for name in names[:2]:
                self.report.note(first_difference(base.answers(), engine.answers(), name))
        return not names

    def way(self, engine: Engine, expected: str) -> None:
        """That it built, or attached."""
        ways = [line["way"] for line in engine.log.gpuwm]
        self.report.check(
            ways == [expected] * len(ways) != [], f"{engine.name} {expected}: {ways or 'no line'}"
        )

    def quick(self, engine: Engine) -> None:
        """The goal for weights that are there: all that the loader does but building the model's
        modules, which vLLM does with every loader (0.15 to 0.35 s, with a tiny model too). Its own
        figure holds more: the V2 model runner collects Python's garbage three times in it, about
        0.35 s each."""
        told = engine.log.gpuwm[-1]["seconds"] if engine.log.gpuwm else {}
        seconds = told["in all"] - told["build"] if "in all" in told else None
        found = "no line" if seconds is None else f"{seconds:.3f} s"
        self.report.check(
            seconds is not None and (self.host or seconds <= WEIGHTS_S),
            f"{engine.name}: the weights' part takes at most {WEIGHTS_S} s: {found}",
        )

    def small_peak(
        self, engine: Engine, ref: str | None = None, base: Engine | None = None
    ) -> None:
        """That building took the model and not much more. base: for several ranks, an engine with
        vLLM's own load: what NCCL has on each GPU is in both."""
        name = ref or (engine.log.gpuwm[-1]["version"] if engine.log.gpuwm else "")
        version = self.service.version(name)
        if version is None or engine.peak_loading is None:
            self.report.check(
                False, f"{engine.name}: the peak of building {name or 'a version'} is known"
            )
            return
        model = max(part["bytes"] for part in version["parts"]) >> 20
        extra = engine.peak_loading - model
        self.report.record("peak", name=engine.name, model_mib=model, extra_mib=extra)
        beside = f"the model's {model} MiB"
        if base is not None and base.peak_loading is not None:
            extra = engine.peak_loading - base.peak_loading
            beside = f"the {base.peak_loading} MiB of vLLM's own load"
        what = f"besides {beside} building needed {extra} MiB, at most {EXTRA_MIB}"
        self.report.check(self.host or extra <= EXTRA_MIB, f"{engine.name}: {what}")

    def refused(self, engine: Engine, *words: str) -> None:
        """That it ends with an error that has all these words, and serves nothing."""
        try:
            processes.answered([engine], START_S)
            self.report.check(False, f"{engine.name} is refused; it answered")
        except Failed as failed:
            missing = [word for word in words if word.lower() not in str(failed).lower()]
            self.report.check(
                not missing and not engine.alive, f"{engine.name} is refused: {failed}"
            )
        self.end(engine)


def loader_seconds(line: dict[str, Any]) -> float | None:
    """Of gpuwm's loader: all of an attach, or the load and the publish of a build."""
    seconds: dict[str, float] = line.get("seconds", {})
    return seconds.get("in all", sum(seconds.values()) if seconds else None)


def set_environment() -> None:
    os.environ.update(ENVIRONMENT)
