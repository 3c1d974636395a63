"""Takes the pictures for docs/images: pictures.py FOLDER [whole]. Not a test, and needs 2 GiB of memory.

They have all colors; `pngquant --ext .png --force --strip FOLDER/*` makes them small. The models are larger than in the tests, the swaps further apart, and a load runs while the pictures are taken.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import time

import browser
import scene
import stage

SIZES = {"light": (1180, 1240, False), "dark": (1180, 1240, True), "phone": (390, 844, True)}
MIB = 32  # what the smallest version has
PAUSE_S = 7  # between swaps
# The folder of the models as on a real machine, in place of the temporary one. The page passes texts of others through shown().
SHOW_SRV = "const real = window.shown; window.shown = (text) => real(text).replaceAll(arguments[0], '/srv'); redraw()"


def swap_about(it: stage.Stage) -> None:
    for tag in ("v1", "v2", "v2b", "v2"):
        it.admin.swap("llama-3.1-8b", tag)
        time.sleep(PAUSE_S)


def has_copied(job: dict) -> bool:
    return job["phase"] == "copying" and job["done"] > 0


def main() -> None:
    target = pathlib.Path(sys.argv[1])
    it = stage.Stage()
    try:
        it.start_gpuwmd("--set", f"access.observe_group={stage.GROUP}", "--budget", "*=1400M")
        port = it.start_exporter()
        scene.play(it, MIB)
        swap_about(it)
        source = it.checkpoint("next", f"{8 * MIB}M", 7)
        loaders = stage.loader_pids(it.admin.status()["pid"])
        job = it.admin.load(source, "llama-3.1-8b@v3", devices=it.devices[0])
        # Its loader is held when it has copied a piece.
        stage.eventually(lambda: has_copied(it.admin.jobs(job)[0]), "it copies", pause_s=0)
        for pid in loaders:
            os.kill(pid, signal.SIGSTOP)
        window = browser.Browser(it.folder)
        try:
            for name, (width, height, dark) in SIZES.items():
                window.look(width, height, 1, dark, name == "phone")
                window.go(f"http://127.0.0.1:{port}/")
                window.until("document.querySelectorAll('.tile').length === 5", "the figures are there")
                window.run(SHOW_SRV, str(it.folder))
                if name == "light":
                    window.run("document.querySelectorAll('.version')[2].open = true")
                window.picture(target / f"status-page-{name}.png", len(sys.argv) > 2)
            print("\n".join(window.complaints()))
        finally:
            window.close()
    finally:
        it.close()


main()
