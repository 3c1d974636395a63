#!/usr/bin/env python3
"""gpuwm beside what workers do today, on the same files in the same run, interleaved:
safetensors straight to the GPU, and torch's own hand-over between processes.

    compare.py --socket SOCKET --library libgpuwm-client.so [--rounds N] SOURCE

Needs torch and safetensors, a GPU, and `gpuwmctl` on PATH. SOURCE lies beneath a root of gpuwmd.
"""

import argparse
import ctypes
import glob
import json
import os
import statistics
import subprocess
import sys
import time

GOAL_COPY = 6.0
GOAL_READY_SMALL, GOAL_READY_LARGE = 3.5, 4.5  # below 32 GiB, and from there on


def result(value, unit, what, goal=None, most=False):
    """One line, in the columns of lib/report.c."""
    digits = 2 if value < 10 else 1 if value < 1000 else 0
    line = f"  {what:<72} {value:>10.{digits}f} {unit:<6}"
    if goal is not None:
        met = value <= goal if most else value >= goal
        line += f"  goal {'<=' if most else '>='} {goal:g}: {'met' if met else 'MISSED'}"
    print(line, flush=True)


def files_of(source):
    files = sorted(glob.glob(os.path.join(source, "*.safetensors"))) if os.path.isdir(source) else [source]
    if not files:
        sys.exit(f"{source}: no weights")
    return files


def warm(files):
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 23):
                pass


# ---- gpuwm ----


def ctl(*arguments):
    return subprocess.run(["gpuwmctl", "-o", "json", *arguments], check=True, stdout=subprocess.PIPE).stdout


def wait_for_standby():
    deadline = time.monotonic() + 30
    while not json.loads(ctl("status"))["standby"]:
        if time.monotonic() > deadline:
            sys.exit("gpuwmd has no standby loader")
        time.sleep(0.01)


def load_gpuwm(source, ref):
    """(request to ready, copy) in seconds. The first includes the start of gpuwmctl."""
    wait_for_standby()
    begin = time.perf_counter()
    subprocess.run(["gpuwmctl", "load", source, ref, "--device", "cuda:0", "--wait"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ready = time.perf_counter() - begin
    jobs = [job for job in json.loads(ctl("jobs"))["jobs"] if job["kind"] == "load"]
    phases = max(jobs, key=lambda job: job["job"])["phases"]
    return ready, sum(phase["ms"] for phase in phases if phase["phase"] == "copying") / 1000


def retire_gpuwm(ref):
    subprocess.run(["gpuwmctl", "swap", ref.split("@")[0] + "@current", "--remove"], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    subprocess.run(["gpuwmctl", "retire", ref, "--wait", "30"], check=True, stdout=subprocess.DEVNULL)


def attach_gpuwm(library, ref):
    """Seconds of the call, in this process, which has a context and did not load the version."""
    gpuwm = ctypes.CDLL(library)
    client, mapping = ctypes.c_void_p(), ctypes.c_void_p()
    if gpuwm.gpuwm_connect(None, ctypes.byref(client)) < 0:
        sys.exit("gpuwm_connect failed")
    begin = time.perf_counter()
    if gpuwm.gpuwm_attach(client, ref.encode(), None, ctypes.byref(mapping)) < 0:
        sys.exit("gpuwm_attach failed")
    took = time.perf_counter() - begin
    gpuwm.gpuwm_detach(mapping)
    gpuwm.gpuwm_close.restype = ctypes.c_void_p
    gpuwm.gpuwm_close(client)
    return took


# ---- safetensors ----


def drop(torch, tensors):
    tensors.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def load_file(torch, files):
    from safetensors.torch import load_file as load

    tensors = {}
    begin = time.perf_counter()
    for path in files:
        tensors.update(load(path, device="cuda"))
    torch.cuda.synchronize()
    return time.perf_counter() - begin, tensors


def load_safe_open(torch, files):
    from safetensors import safe_open

    tensors = {}
    begin = time.perf_counter()
    for path in files:
        with safe_open(path, framework="pt", device="cuda:0") as file:
            for name in file.keys():
                tensors[name] = file.get_tensor(name)
    torch.cuda.synchronize()
    return time.perf_counter() - begin, tensors


# ---- torch's hand-over ----


def receive(torch_queue, answers):
    """What gets the tensors, ready before they are sent; tells when it has touched each of them."""
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    answers.put("ready")
    tensors = torch_queue.get()
    for tensor in tensors.values():
        tensor.view(-1)[:1].clone()
    torch.cuda.synchronize()
    answers.put(time.clock_gettime(time.CLOCK_MONOTONIC))
    del tensors
    torch_queue.get()


def hand_over(torch, tensors):
    """Seconds from sending all tensors to another process until that has touched each of them."""
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    receiver = context.Process(target=receive, args=(queue, answers))
    receiver.start()
    answers.get(timeout=120)
    begin = time.clock_gettime(time.CLOCK_MONOTONIC)
    queue.put(tensors)
    took = answers.get(timeout=120) - begin
    queue.put(None)
    receiver.join()
    return took


# ---- the table ----


def measure(torch, arguments, files):
    figures = {"file": [], "open": [], "ready": [], "copy": [], "ipc": [], "attach": []}
    for number in range(arguments.rounds):
        took, tensors = load_file(torch, files)
        figures["file"].append(took)
        figures["ipc"].append(hand_over(torch, tensors))
        drop(torch, tensors)
        took, tensors = load_safe_open(torch, files)
        figures["open"].append(took)
        drop(torch, tensors)
        ref = f"compare@{number}"
        ready, copy = load_gpuwm(arguments.source, ref)
        figures["ready"].append(ready)
        figures["copy"].append(copy)
        figures["attach"].append(attach_gpuwm(arguments.library, ref))
        retire_gpuwm(ref)
    return {name: statistics.median(values) for name, values in figures.items()}


def report(half, size, import_s, rounds, count):
    rate = {name: size / 1e9 / half[name] for name in ("file", "open", "copy", "ready")}
    goal = GOAL_READY_LARGE if size >= 32 << 30 else GOAL_READY_SMALL
    print(f"beside safetensors and torch: {size / 2**30:.2f} GiB in {count} files, cached; medians of {rounds}")
    result(rate["file"], "GB/s", f"safetensors.torch.load_file to the GPU ({half['file']:.2f} s)")
    result(rate["open"], "GB/s", f"safetensors.safe_open to the GPU ({half['open']:.2f} s)")
    result(rate["copy"], "GB/s", f"gpuwm's copy, digests on ({half['copy']:.2f} s)")
    result(half["ready"], "s", "gpuwm, gpuwmctl load to ready")
    result(rate["copy"] / rate["file"], "x", "gpuwm's copy / load_file", GOAL_COPY)
    result(half["file"] / half["ready"], "x", "load_file / gpuwm's load to ready", goal)
    result(import_s, "s", "import torch, in none of these")
    result(half["ipc"] * 1e3, "ms", "torch: all tensors to another process, until it has touched each")
    result(half["attach"] * 1e3, "ms", "gpuwm_attach of the same tensors, in a process with a context")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["GPUWM_SOCKET"] = arguments.socket
    files = files_of(arguments.source)
    size = sum(os.path.getsize(path) for path in files)

    begin = time.perf_counter()
    import torch

    import_s = time.perf_counter() - begin
    torch.zeros(1, device="cuda")
    warm(files)
    # Once for nothing: the machine's memory grows on first touch.
    drop(torch, load_file(torch, files)[1])
    load_gpuwm(arguments.source, "compare@warm")
    retire_gpuwm("compare@warm")
    report(measure(torch, arguments, files), size, import_s, arguments.rounds, len(files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
