"""Who sees what: without a token nobody reads a name of a model, a user or a folder."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import unittest

import browser
import scene
import stage

TOKEN = "0123456789abcdef0123456789abcdef"
NAMES = ("llama", "qwen", "embed", "research", "vllm", "search", "kv-cache", "/models", scene.MARKUP_FOLDER)
# Refusals reach the page when let_go was called; `asked_with` has what the page's questions showed.
HOLD_REFUSALS = """
    const real = window.fetch;
    const release = new Promise((go) => window.let_go = go);
    window.refusals = 0;
    window.asked_with = [];
    window.fetch = async (where, options) => {
        window.asked_with.push(options.headers.Authorization ?? 'nothing');
        const answer = await real(where, options);
        if (answer.status === 401) {
            window.refusals++;
            await release;
        }
        return answer;
    };
"""
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Token(stage.Case):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        scene.play(cls.it)
        cls.file = cls.it.folder / "token"
        cls.file.write_text(TOKEN + "\n")
        cls.port = cls.it.start_exporter(admission=["--token-file", str(cls.file)])

    def nothing_is_named(self, port: int) -> None:
        for path in ("/metrics", "/api/state", "/healthz", "/"):
            answer = stage.get(port, path)
            self.assertEqual(answer.code, 200, path)
            for name in NAMES if path != "/" else ():
                self.assertNotIn(name, answer.text, path)
            self.assertNotRegex(answer.text, r'"uid":|uid="' if path != "/" else "Bearer [0-9a-f]", path)
        answer = stage.get(port, "/readyz?version=llama-3.1-8b@v1")
        self.assertEqual((answer.code, answer.headers["WWW-Authenticate"]), (401, 'Bearer realm="gpuwm"'))

    def test_without_a_token_nobody_is_named(self) -> None:
        self.nothing_is_named(self.port)

    def test_an_exporter_without_token_file_names_nobody(self) -> None:
        port = self.it.start_exporter(admission=[])
        self.nothing_is_named(port)
        self.assertIn("start it with --token-file", stage.get(port, "/metrics", headers=BEARER).text)

    def test_totals_are_for_everybody(self) -> None:
        series = stage.series(stage.get(self.port, "/metrics").text)
        self.assertEqual((series["gpuwm_up"], series["gpuwm_named_versions"]), (1, 6))
        state = stage.get(self.port, "/api/state").json()
        self.assertTrue(state["restricted"])
        self.assertEqual((state["totals"]["versions"]["ready"], state["totals"]["jobs"]["failed"]), (6, 1))
        self.assertEqual(state["totals"]["workers"], 3)

    def test_the_token_shows_everything(self) -> None:
        for path, name in (("/metrics", 'model="llama-3.1-8b"'), ("/api/state", "qwen2.5-7b"),
                           ("/readyz?version=llama-3.1-8b@v1", "is ready")):  # fmt: skip
            answer = stage.get(self.port, path, headers=BEARER)
            self.assertEqual(answer.code, 200, answer.text)
            self.assertIn(name, answer.text)

    def test_a_wrong_token_is_refused(self) -> None:
        for shown in ("Bearer wrong", "Bearer ", f"Bearer {TOKEN}0", f"Basic {TOKEN}"):
            for path in ("/metrics", "/api/state", "/readyz?version=llama"):
                answer = stage.get(self.port, path, headers={"Authorization": shown})
                self.assertEqual(answer.code, 401, (shown, path))
                self.assertIn("--token-file", answer.text)

    def test_a_token_file_that_is_missing_or_too_short_is_named(self) -> None:
        short = self.it.folder / "short"
        short.write_text("secret\n")
        for path, said in ((self.it.folder / "none", "No such file"), (short, "has 6 bytes")):
            done = subprocess.run(
                [stage.BUILD / "bin/gpuwm-exporter", "--listen", "127.0.0.1:0", "--token-file", path],
                capture_output=True, text=True, timeout=20, check=False,
            )  # fmt: skip
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(said, done.stderr)
            self.assertIn("openssl rand -hex 32", done.stderr)

    def test_the_page_asks_for_the_token_once(self) -> None:
        page = browser.Browser(self.it.folder)
        self.addCleanup(page.close)
        type_in = "const t = document.getElementById('token'); t.value = arguments[0]; t.form.requestSubmit()"
        page.look(1180, 900)
        page.go(f"http://127.0.0.1:{self.port}/")
        page.until("!document.getElementById('ask-token').hidden", "it asks")
        shown = page.run("return document.querySelector('main').innerText")
        self.assertIn("6 ready", shown)
        self.assertIn("4 versions", shown)
        if folder := os.environ.get("GPUWM_PICTURES"):
            page.picture(pathlib.Path(folder) / "page-without-token.png", whole=True)
        for name in ("Jobs\n", *NAMES):
            self.assertNotIn(name, shown.partition("Devices")[2])
        page.run(type_in, "wrong")
        page.until("document.getElementById('token-said').innerText.includes('wrong')", "it says that it is wrong")
        page.complaints()  # of the answer 401
        page.run(type_in, TOKEN)
        page.until("document.querySelector('#versions').innerText.includes('llama-3.1-8b@v1')", "the models are there")
        page.go(f"http://127.0.0.1:{self.port}/")
        page.until("document.querySelector('#versions').innerText.includes('llama-3.1-8b@v1')", "it is kept")
        self.assertTrue(page.run("return document.getElementById('ask-token').offsetParent === null"), "it asks no more")
        self.assertEqual(page.complaints(), [])
        self.assertNotIn(TOKEN, json.dumps(page.run("return {...localStorage}")))

    def test_a_late_answer_to_an_old_token_does_not_drop_the_new_one(self) -> None:
        page = browser.Browser(self.it.folder)
        self.addCleanup(page.close)
        type_in = "const t = document.getElementById('token'); t.value = arguments[0]; t.form.requestSubmit()"
        page.go(f"http://127.0.0.1:{self.port}/")
        page.until("!document.getElementById('ask-token').hidden", "it asks")
        page.run(HOLD_REFUSALS)
        page.run(type_in, "wrong")
        page.until("window.refusals === 1", "the exporter has refused the token")
        page.run(type_in, TOKEN)
        page.until("document.querySelector('#versions').innerText.includes('llama-3.1-8b@v1')", "the models are there")
        page.run("window.asked_with = []; window.let_go()")
        page.until("window.asked_with.length >= 2", "it has asked twice since")
        self.assertEqual(set(page.run("return window.asked_with")), {f"Bearer {TOKEN}"})
        self.assertEqual(page.run("return sessionStorage.getItem('token')"), TOKEN)
        self.assertTrue(page.run("return document.getElementById('ask-token').hidden"))


if __name__ == "__main__":
    unittest.main()
