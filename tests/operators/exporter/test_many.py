"""The page with more versions, jobs and events than it lists: what it counts is what gpuwmd has.

The classes share one gpuwmd, one exporter and one browser. Each publishes the versions that its own number still lacks, so
the order of their names is that of the numbers. GPUWM_PICTURES: a folder for the pictures that the test takes.
"""

from __future__ import annotations

import collections
import os
import pathlib
import unittest
from typing import Any

import browser
import gpuwm
import numpy

import stage

LISTED = 200  # exporter/limits.h: STATE_VERSIONS_MAX
JOBS_LISTED = 40  # STATE_JOBS_MAX
SWAPS_KEPT = 200  # TIMELINE_SWAPS_MAX
JOBS_KEPT = 1000  # base/limits.h: JOBS_KEPT_MAX. Each publish is a job, which checks it
ROWS = 5000  # of jobs and events together
FAILED = "night@broken"
MOVED = "tiny-0000"  # the model whose alias moves again and again


class Scene(stage.Stage):
    """A gpuwmd with a failed load and as many versions as somebody asked for, and the page in a browser."""

    def __init__(self) -> None:
        super().__init__()
        self.start_gpuwmd("--set", f"access.observe_group={stage.GROUP}")
        self.port = self.start_exporter()
        stage.get(self.port, "/healthz")  # it listens to events from now on
        broken = self.models / "broken"
        broken.mkdir()
        (broken / "model.safetensors").write_bytes(b"\xff" * 64)
        try:
            self.admin.load(broken, FAILED, devices=self.devices[0]).wait(stage.START_S)
        except gpuwm.Error:
            pass
        self.published = 0
        self.page = browser.Browser(self.folder)
        self.page.look(1180, 900)

    def publish_up_to(self, number: int) -> None:
        for each in range(self.published, number):
            tensors = {"w": numpy.full(1024, each, numpy.float32)}
            # No user gets as many.
            gpuwm.publish(
                tensors, f"tiny-{each:04}@v1", device="host", bind=False, alias="prod", client=self.admin
            )
            self.published = each + 1

    def state(self) -> Any:
        return stage.get(self.port, "/api/state").json()

    def is_known(self) -> bool:
        """The exporter asks each question when its last answer has become old, so the answers do not change together."""
        state, jobs = self.state(), self.admin.jobs()
        newest = max(job["job"] for job in jobs)
        return (
            state["status"]["seq"] >= self.admin.status()["seq"]
            and state["totals"]["versions"]["ready"] == self.published
            and newest in [job["job"] for job in state["jobs"]]
        )

    def look(self) -> None:
        """Has the page show all that gpuwmd has by now."""
        stage.eventually(self.is_known, "the exporter has asked for versions and jobs since", pause_s=0.2)
        self.page.go(f"http://127.0.0.1:{self.port}/")
        self.page.until("document.querySelectorAll('.version').length > 0", "the versions are there")
        if folder := os.environ.get("GPUWM_PICTURES"):
            self.page.picture(pathlib.Path(folder) / f"page-{self.published}.png", whole=True)

    def text(self, selector: str) -> str:
        return self.page.run("return document.querySelector(arguments[0]).innerText", selector)


scene: Scene


def setUpModule() -> None:
    global scene
    scene = Scene()
    unittest.addModuleCleanup(scene.close)
    unittest.addModuleCleanup(scene.page.close)


class Versions:
    """What holds with any number of versions."""

    many: int

    @classmethod
    def setUpClass(cls) -> None:
        scene.publish_up_to(cls.many)
        scene.look()

    def test_the_tiles_count_all_versions_and_the_failed_load(self) -> None:
        summary = scene.text("#summary")
        self.assertRegex(summary, rf"(?<![\d,]){self.many:,} ready")
        self.assertNotIn("not ready", summary)
        self.assertIn("1 failed", summary)

    def test_the_bar_has_all_versions_and_nothing_is_promised(self) -> None:
        devices = scene.text("#devices")
        self.assertNotIn("promised", devices)
        self.assertRegex(devices, r"\d+ other versions")

    def test_it_says_how_many_it_does_not_list(self) -> None:
        rest = len(scene.admin.list()["versions"]) - LISTED
        self.assertIn(f"\n{rest:,} version{'' if rest == 1 else 's'} not listed", scene.text("#versions"))
        self.find("no such")
        self.assertIn(f"{rest:,} are not listed", scene.text("#versions"))
        self.find("")

    def find(self, name: str) -> None:
        change = "const f = document.getElementById('find'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))"
        scene.page.run(change, name)

    def test_the_state_counts_what_gpuwmd_lists(self) -> None:
        state = scene.state()
        states = collections.Counter(version["state"] for version in scene.admin.list()["versions"])
        self.assertEqual(states["ready"], self.many)
        self.assertEqual(state["totals"]["versions"], states)
        self.assertEqual(state["status"]["versions"], self.many)
        self.assertEqual(len(state["versions"]), LISTED)
        jobs = collections.Counter(job["state"] for job in scene.admin.jobs())
        self.assertEqual(state["totals"]["jobs"], jobs)
        self.assertEqual(len(state["jobs"]), JOBS_LISTED)

    def test_a_failed_load_is_listed_after_many_publishes(self) -> None:
        jobs = scene.text("#jobs")
        self.assertIn(FAILED, jobs)
        self.assertIn("is no safetensors file", jobs)
        scene.page.run("document.querySelector('#events button')?.click()")
        self.assertTrue(FAILED in scene.text("#events"), "the event of the failure is there")

    def test_aliases_stand_beside_the_state_in_another_colour(self) -> None:
        colors = scene.page.run(
            "return [...document.querySelector('.version .tags').children].map((p) => [p.innerText, getComputedStyle(p).color])"
        )
        self.assertEqual([name for name, _ in colors], ["ready", "current", "prod"])
        self.assertNotEqual(colors[0][1], colors[1][1])


class Test0201(Versions, unittest.TestCase):
    many = 201


class Test1003(Versions, unittest.TestCase):
    many = 1003


class Test1022(Versions, unittest.TestCase):
    """As many as fit in systemd's store of descriptors."""

    many = 1022


def last_move(state: Any) -> Any:
    return max(state["swaps"], key=lambda event: event["seq"])


class Test5000Rows(unittest.TestCase):
    """Jobs that gpuwmd keeps, and moves of an alias."""

    @classmethod
    def setUpClass(cls) -> None:
        scene.publish_up_to(Test1022.many)
        jobs = len(scene.admin.jobs())
        for number in range(ROWS - jobs):
            scene.admin.swap(MOVED, "v1", alias=f"move-{number % 2}")
            scene.admin.swap(MOVED, None, alias=f"move-{number % 2}")
        # Events come by themselves, later than the answers to questions.
        stage.eventually(cls.is_heard, "the exporter has heard of the last move", pause_s=0.2)
        scene.look()
        cls.state = scene.state()

    @staticmethod
    def is_heard() -> bool:
        """A swap is an event, and an audit."""
        return last_move(scene.state())["seq"] >= scene.admin.status()["seq"] - 1

    def test_the_page_lists_some_jobs_and_counts_the_others(self) -> None:
        kept = collections.Counter(job["state"] for job in scene.admin.jobs())
        self.assertGreaterEqual(kept.total(), JOBS_KEPT)
        states = scene.page.run("return [...document.querySelectorAll('#jobs .job .pill')].map((p) => p.innerText)")
        told = collections.Counter(states)
        self.assertEqual(told["failed"], kept["failed"])
        self.assertIn(f"Not listed: {kept['done'] - told['done']:,} done.", scene.text("#jobs"))

    def test_the_last_moves_stand_first_and_each_row_once(self) -> None:
        self.assertEqual(len(self.state["swaps"]), SWAPS_KEPT)
        rows = [event["seq"] for event in (*self.state["swaps"], *self.state["events"])]
        self.assertEqual(len(rows), len(set(rows)))
        last = last_move(self.state)
        scene.page.run("document.querySelector('#events button').click()")
        told = scene.page.run("return [...document.querySelectorAll('#events .event .name')].map((row) => row.innerText)")
        self.assertEqual(len(told), len(rows))
        self.assertIn(f"{MOVED}@{last['alias']} is removed, was v1", told[:2])
        self.assertTrue(any(FAILED in row for row in told), "the failure is not pushed out by moves")


if __name__ == "__main__":
    unittest.main()
