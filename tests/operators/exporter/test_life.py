"""gpuwmd is away, hangs, comes back; the exporter starts and ends; probes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import unittest

import gpuwm

import stage

EXPORTER = stage.BUILD / "bin/gpuwm-exporter"
SNAPSHOT_WAIT_S = 5  # exporter/limits.h: SNAPSHOT_WAIT_MS


def up(port: int) -> float:
    answer = stage.get(port, "/metrics")
    assert answer.code == 200, answer.text
    return stage.series(answer.text)["gpuwm_up"]


class Life(stage.CaseWithOneVersion):
    def ready(self, reference: str) -> tuple[int, str]:
        answer = stage.get(self.port, f"/readyz?version={reference}")
        return answer.code, answer.text.strip()

    def sick(self) -> bool:
        return stage.get(self.port, "/healthz").code == 503

    def told(self, reference: str, code: int, text: str) -> None:
        """At last: a snapshot counts as new for a while."""
        stage.eventually(
            lambda: self.ready(reference)[0] == code and text in self.ready(reference)[1], f"{code} {text}", 10
        )

    def test_without_gpuwmd_it_serves_and_says_so(self) -> None:
        port = self.it.start_exporter("nobody.sock")
        self.assertEqual(up(port), 0)
        text = stage.get(port, "/metrics").text
        self.assertIn("nobody listens there", text.splitlines()[0])
        self.assertEqual(stage.series(text)['gpuwm_exporter_sees{method="status"}'], 0)
        health, ready = stage.get(port, "/healthz"), stage.get(port, "/readyz?version=llama")
        self.assertEqual((health.code, ready.code), (503, 503))
        self.assertIn("nobody listens there", health.text)
        self.assertIn("gpuwmd does not answer", ready.text)

    def test_it_goes_on_with_the_next_gpuwmd(self) -> None:
        self.assertEqual(up(self.port), 1)
        self.it.restart_gpuwmd()
        stage.eventually(
            lambda: stage.series(stage.get(self.port, "/metrics").text).get("gpuwm_epoch") == 2, "gpuwm_up is 1 again"
        )
        series = stage.series(stage.get(self.port, "/metrics").text)
        self.assertEqual((series["gpuwm_epoch"], series["gpuwm_adopted_versions"]), (2, 1))
        self.assertGreaterEqual(series["gpuwm_exporter_connects_total"], 2)
        # It hears events of the next one too.
        self.it.admin.swap("llama", "v1", alias="after")
        stage.eventually(
            lambda: "after" in [swap["alias"] for swap in stage.get(self.port, "/api/state").json()["swaps"]],
            "the swap is told",
        )

    def test_a_gpuwmd_that_hangs_does_not_hang_a_scrape(self) -> None:
        pid = self.it.admin.status()["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            # The last snapshot counts as new for SNAPSHOT_MS.
            stage.eventually(self.sick, "gpuwmd is found to hang")
            began = time.monotonic()
            answer = stage.get(self.port, "/healthz")
            self.assertEqual(
                (answer.code, answer.text), (503, f"gpuwmd has not answered for {SNAPSHOT_WAIT_S} seconds\n")
            )
            self.assertLess(time.monotonic() - began, SNAPSHOT_WAIT_S + 3)
            # A scrape that is given up after a second has its answer before.
            for said, waited in (("1", "0.8"), ("2", "1.6"), ("0.5", "0.4"), ("60", "5"), ("soon", "5"), ("-1", "5")):
                answer = stage.get(self.port, "/metrics", headers={"X-Prometheus-Scrape-Timeout-Seconds": said})
                self.assertIn(f"gpuwmd has not answered for {waited} seconds", answer.text.splitlines()[0])
                self.assertEqual(stage.series(answer.text)["gpuwm_up"], 0)
        finally:
            os.kill(pid, signal.SIGCONT)
        stage.eventually(lambda: up(self.port) == 1, "gpuwm_up is 1 again")

    def test_readyz_says_where_a_version_is_or_why_it_is_not(self) -> None:
        device = self.it.devices[0]
        version = self.it.admin.list("llama")["versions"][0]["version"]
        self.it.admin.swap("llama", "v1", alias="prod")
        self.told("llama@prod", 200, "is ready")
        for reference in ("llama", "llama@v1", "llama@current", "llama@prod", version):
            self.assertEqual(self.ready(reference), (200, f"llama@v1 is ready on {device}"), reference)
        for reference in ("llama@v2", "lla", "ma@v1", "llama@", "%3Cb%3E", "0" * 32):
            code, why = self.ready(reference)
            self.assertEqual((code, why[:24]), (503, "there is no version " + why[20:24]), reference)
        answer = stage.get(self.port, "/readyz")
        self.assertEqual(answer.code, 400)
        self.assertIn("version=MODEL", answer.text)

    def test_readyz_tells_the_error_of_a_load(self) -> None:
        broken = self.it.models / "broken"
        broken.mkdir()
        (broken / "model.safetensors").write_bytes(b"\xff" * 64)
        with self.assertRaises(gpuwm.Error):
            self.it.admin.load(broken, "llama@broken", devices=self.it.devices[0]).wait(stage.START_S)
        self.told("llama@broken", 503, "the load of llama@broken failed: ")
        self.assertIn("is no safetensors file", self.ready("llama@broken")[1])

    def test_wrong_arguments_are_named(self) -> None:
        for arguments, said in (
            (["--listen", "localhost:80"], "--listen takes an address in digits and a port, not 'localhost:80'"),
            (["--listen"], "--listen needs a value: --listen ADDRESS:PORT"),
            (["--nothing"], "has no option --nothing: gpuwm-exporter --help lists the options"),
            (["more"], "takes options only, not 'more': gpuwm-exporter --help lists the options"),
        ):
            done = subprocess.run([EXPORTER, *arguments], capture_output=True, text=True, timeout=20, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)

    def test_a_port_that_is_taken_is_named(self) -> None:
        arguments = [EXPORTER, "--listen", f"127.0.0.1:{self.port}"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"can't listen at 127.0.0.1:{self.port}: Address already in use", done.stderr)
        self.assertIn("--listen ADDRESS:PORT", done.stderr)

    def test_it_tells_the_service_manager_and_ends_at_once(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(self.it.folder / "notify"))
            manager.settimeout(stage.START_S)
            process = self.it.spawn(
                [EXPORTER, "--listen", "127.0.0.1:0"], "ended.log",
                env={**os.environ, "NOTIFY_SOCKET": str(self.it.folder / "notify")},
            )  # fmt: skip
            self.assertEqual(manager.recv(1000), b"READY=1\nSTATUS=Serving at 127.0.0.1:0")
            process.terminate()
            self.assertEqual(manager.recv(1000), b"STOPPING=1")
            self.assertEqual(process.wait(stage.START_S), 0)


if __name__ == "__main__":
    unittest.main()
