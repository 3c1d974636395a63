"""The status page in headless Chromium: what it shows, what it does not run, the keyboard, light, dark and phone.

GPUWM_PICTURES: a folder for the pictures that the tests take.
"""

from __future__ import annotations

import os
import pathlib
import signal
import unittest

import browser
import scene
import stage

WIDE, PHONE = (1180, 900), (390, 844)
GROUND = {"light": "rgb(246, 246, 243)", "dark": "rgb(20, 23, 26)"}  # --ground of page.css


it: stage.Stage
page: browser.Browser
url: str


def setUpModule() -> None:
    global it, page, url
    it = stage.Stage()
    unittest.addModuleCleanup(it.close)
    it.start_gpuwmd("--set", f"access.observe_group={stage.GROUP}")
    scene.play(it)
    url = f"http://127.0.0.1:{it.start_exporter()}/"
    page = browser.Browser(it.folder)
    unittest.addModuleCleanup(page.close)


class Case(unittest.TestCase):
    def setUp(self) -> None:
        page.look(*WIDE)
        self.open()
        self.addCleanup(self.nothing_complained)

    def open(self) -> None:
        page.go(url)
        page.until("document.querySelectorAll('.version').length > 0", "the versions are there")

    def nothing_complained(self) -> None:
        self.assertEqual(page.complaints(), [])

    def text(self, selector: str) -> str:
        return page.run("return document.querySelector(arguments[0]).innerText", selector)

    def keep(self, name: str) -> None:
        if folder := os.environ.get("GPUWM_PICTURES"):
            page.picture(pathlib.Path(folder) / f"{name}.png", whole=True)


class Page(Case):
    # ---- what it shows ----

    def test_it_shows_what_gpuwmd_has(self) -> None:
        self.assertEqual(self.text("#pulse"), "answering")
        self.assertRegex(self.text("#summary"), r"\d ready")
        for model in ("llama-3.1-8b@v1", "qwen2.5-7b@2024-11", "embed/bge-large@v3", "research/draft@seed-7"):
            self.assertIn(model, self.text("#devices") + self.text("#versions"))
        self.assertIn("shared by several versions", self.text("#devices"))
        self.assertIn("is no safetensors file", self.text("#jobs"))
        page.run("document.querySelector('#events button').click()")
        self.assertIn("llama-3.1-8b@current is v2 now, was v1", self.text("#events"))
        self.assertTrue(page.run("return document.querySelectorAll('.track').length > 5"))
        colors = page.run(
            "return [...document.querySelectorAll('.version .swatch')].map((s) => getComputedStyle(s).backgroundColor)"
        )
        self.assertEqual(len(set(colors)), len(colors), colors)
        self.assertIn("kv-cache", self.text("#regions"))
        self.assertIn("65,536", self.text("#users"))

    def test_bars_have_the_share_of_each_version(self) -> None:
        widths = page.run(
            "const bar = document.querySelector('.bar'); return [...bar.children].map("
            "(child) => [child.title, child.getBoundingClientRect().width / bar.getBoundingClientRect().width])"
        )
        budget = next(d["budget"] for d in it.admin.status()["devices"] if d["device"] == it.devices[0])
        listed = {f"{v['model']}@{v['tag']}": v["bytes"] for v in it.admin.list()["versions"]}
        for title, width in widths:
            name = title.partition(": ")[0]
            if name in listed:
                self.assertAlmostEqual(width, max(listed[name] / budget, 2 / WIDE[0]), delta=0.02, msg=title)
        self.assertGreaterEqual(len(widths), 2)

    def test_who_holds_a_version_is_one_key_away_and_stays_open(self) -> None:
        page.run("[...document.querySelectorAll('summary')].find((s) => s.innerText.includes('qwen2.5')).focus()")
        page.press(browser.ENTER)
        page.until("document.activeElement.closest('details').open", "Enter opens it")
        self.assertIn(scene.MARKUP_COMMAND, self.text("details[open]"))
        # The page is drawn anew with what comes next: what is open stays open, and has the focus.
        it.admin.pin("research/draft@seed-7", "kept")
        page.until("document.querySelector('#versions').innerText.includes('kept')"
                        " || [...document.querySelectorAll('.version')].some((v) => v.innerText.includes('seed-7') && v.innerText.includes('1 pin'))",
                        "the pin is shown")  # fmt: skip
        self.assertTrue(page.run("return document.activeElement.closest('details').open"))
        it.admin.unpin("research/draft@seed-7", "kept")

    def test_a_job_shows_its_progress_while_it_runs(self) -> None:
        source = it.checkpoint("live", "8M", 11)
        pids = stage.loader_pids(it.admin.status()["pid"])
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            job = it.admin.load(source, "live@v1", devices=it.devices[0])
            page.until("document.querySelector('#jobs progress') !== null", "the job is shown")
            self.assertIn("live@v1", self.text("#jobs"))
            self.assertEqual(
                page.run("return document.querySelector('#jobs progress').getAttribute('aria-label')"), "load live@v1"
            )
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        job.wait(stage.START_S)
        page.until(
            "!document.querySelector('#jobs progress') && document.querySelector('#versions').innerText.includes('live@v1')",
            "it is done",
        )

    def test_a_filter_leaves_what_has_the_name(self) -> None:
        page.run("const f = document.getElementById('find'); f.value = 'QWEN'; f.dispatchEvent(new Event('input'))")
        self.assertNotIn("llama", self.text("#versions"))
        self.assertIn("qwen2.5-7b@2024-11", self.text("#versions"))
        page.run("const f = document.getElementById('find'); f.value = 'no such'; f.dispatchEvent(new Event('input'))")
        self.assertIn("No version has such a name", self.text("#versions"))

    # ---- what it does not do ----

    def test_names_from_users_are_text(self) -> None:
        shown = page.run("return document.querySelector('main').textContent")
        self.assertIn(scene.MARKUP_COMMAND, shown)
        self.assertIn(scene.MARKUP_FOLDER, shown)
        self.assertEqual(
            page.run("return document.querySelectorAll('main img, main b, main i, main script').length"), 0
        )

    def test_the_policy_keeps_scripts_and_addresses_out(self) -> None:
        page.run("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
                      "const b = document.createElement('p'); b.setAttribute('onclick', 'window.ran = 1'); b.click();"
                      "const i = new Image(); i.src = 'http://127.0.0.1:1/x.png'")  # fmt: skip
        self.assertIsNone(page.run("return window.ran"))
        said = page.complaints()
        self.assertTrue(said and all("Content Security Policy" in line for line in said), said)

    # ---- how it is used ----

    def test_the_keyboard_reaches_everything_in_order(self) -> None:
        seen = []
        for _ in range(6):
            page.press(browser.TAB)
            seen.append(
                page.run("const a = document.activeElement; return a.id || a.className || a.tagName.toLowerCase()")
            )
            outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
            self.assertEqual(outline, "solid", f"{seen[-1]} shows no focus")
        self.assertEqual(seen, ["skip", "theme", "find", "summary", "summary", "summary"])

    def test_light_dark_and_the_readers_own_choice(self) -> None:
        def ground() -> str:
            return page.run("return getComputedStyle(document.body).backgroundColor")

        self.assertEqual(ground(), GROUND["light"])
        self.keep("light")
        page.look(*WIDE, dark=True)
        page.until(f"getComputedStyle(document.body).backgroundColor === '{GROUND['dark']}'", "it is dark")
        self.keep("dark")
        for theme, expected in (("light", "light"), ("dark", "dark"), ("auto", "dark")):
            page.run("document.getElementById('theme').click()")
            self.assertEqual((self.text("#theme"), ground()), (f"Theme: {theme}", GROUND[expected]))

    def test_a_phone_shows_all_without_scrolling_sideways(self) -> None:
        page.look(*PHONE, dark=True, mobile=True)
        self.open()
        self.assertEqual(page.run("return document.documentElement.scrollWidth"), PHONE[0])
        page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        self.assertEqual(page.run("return document.documentElement.scrollWidth"), PHONE[0])
        self.keep("phone")


class Restart(Case):
    """After all others: what gpuwmd knew of jobs is gone then."""

    def test_gpuwmd_away_is_said_and_the_last_state_stays(self) -> None:
        pid = it.admin.status()["pid"]
        os.kill(it.keeper.pid, signal.SIGSTOP)  # so that no other gpuwmd comes
        os.kill(pid, signal.SIGKILL)
        try:
            page.until("document.querySelector('#pulse').innerText === 'gpuwmd does not answer'", "it is said")
            self.assertRegex(self.text("#notices"), r"gpuwmd was last seen \d+ s ago, at [\d:]+; what the page shows is from then")
            self.assertIn("llama-3.1-8b@v1", self.text("#versions"))
            self.keep("away")
            # A page that is opened now has nothing to show, and says since when.
            page.go(url)
            page.until("document.querySelector('#notices').innerText.includes('gpuwmd was last seen')", "it says so")
            self.assertNotIn("Versions and who holds them", self.text("main"))
        finally:
            os.kill(it.keeper.pid, signal.SIGCONT)
        page.until("document.querySelector('#pulse').innerText === 'answering'", "the next gpuwmd is there")
        self.assertIn("start 2 with these weights", self.text("#about"))


if __name__ == "__main__":
    unittest.main()
