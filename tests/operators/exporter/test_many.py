"""The page with more versions than it lists: what it counts is what gpuwmd has.

GPUWM_PICTURES: a folder for the picture that the test takes.
"""

from __future__ import annotations

import os
import pathlib
import unittest

import browser
import gpuwm
import numpy

import stage

MANY = 1003
LISTED = 200  # exporter/limits.h: STATE_VERSIONS_MAX


class Many(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.it = stage.Stage()
        cls.addClassCleanup(cls.it.close)
        cls.it.start_gpuwmd("--set", f"access.observe_group={stage.GROUP}", "--set", "limits.versions_per_uid=1024",
                            "--set", "limits.fds_per_uid=8192")  # fmt: skip
        port = cls.it.start_exporter()
        stage.get(port, "/healthz")  # it listens to events from now on
        broken = cls.it.models / "broken"
        broken.mkdir()
        (broken / "model.safetensors").write_bytes(b"\xff" * 64)
        try:
            cls.it.admin.load(broken, "night@broken", devices=cls.it.devices[0]).wait(stage.START_S)
        except gpuwm.Error:
            pass
        for number in range(MANY):
            tensors = {"w": numpy.full(1024, number, numpy.float32)}
            gpuwm.publish(tensors, f"tiny-{number:04}@v1", device="host", bind=False, alias="prod")
        cls.page = browser.Browser(cls.it.folder)
        cls.addClassCleanup(cls.page.close)
        cls.page.look(1180, 900)
        cls.page.go(f"http://127.0.0.1:{port}/")
        cls.page.until("document.querySelectorAll('.version').length > 0", "the versions are there")
        if folder := os.environ.get("GPUWM_PICTURES"):
            cls.page.picture(pathlib.Path(folder) / "page-1003.png", whole=True)

    def text(self, selector: str) -> str:
        return self.page.run("return document.querySelector(arguments[0]).innerText", selector)

    def test_the_tiles_count_all_versions_and_the_failed_load(self) -> None:
        summary = self.text("#summary")
        self.assertIn(f"{MANY:,} ready", summary)
        self.assertNotIn("not ready", summary)
        self.assertIn("1 failed", summary)

    def test_the_bar_has_all_versions_and_nothing_is_promised(self) -> None:
        devices = self.text("#devices")
        self.assertNotIn("promised", devices)
        self.assertRegex(devices, r"\d+ other versions")

    def test_a_failed_load_is_listed_after_a_thousand_publishes(self) -> None:
        jobs = self.text("#jobs")
        self.assertIn("night@broken", jobs)
        self.assertIn("is no safetensors file", jobs)
        self.page.run("document.querySelector('#events button').click()")
        self.assertTrue("night@broken" in self.text("#events"), "the event of the failure is there")

    def test_it_says_how_many_it_does_not_list(self) -> None:
        self.assertRegex(self.text("#versions"), rf"({MANY - LISTED}|{MANY + 1 - LISTED}) versions not listed")
        self.page.run("const f = document.getElementById('find'); f.value = 'no such'; f.dispatchEvent(new Event('input'))")
        self.assertIn("are not listed", self.text("#versions"))
        self.page.run("const f = document.getElementById('find'); f.value = ''; f.dispatchEvent(new Event('input'))")

    def test_aliases_stand_beside_the_state_in_another_colour(self) -> None:
        colors = self.page.run(
            "return [...document.querySelector('.version .tags').children].map((p) => [p.innerText, getComputedStyle(p).color])"
        )
        self.assertEqual([name for name, _ in colors], ["ready", "current", "prod"])
        self.assertNotEqual(colors[0][1], colors[1][1])


if __name__ == "__main__":
    unittest.main()
