"""Prometheus scrapes a real gpuwmd; every query of the dashboard returns data; the alerts are as they should be."""

from __future__ import annotations

import json
import math
import pathlib
import re
import subprocess
import tempfile
import unittest
import urllib.parse

import scene
import stage

MONITORING = stage.ROOT / "exporter"
DASHBOARD = MONITORING / "grafana/gpuwm.json"
RULES = MONITORING / "prometheus/gpuwm.rules.yml"
ALERTS_TEST = stage.HERE / "gpuwm.rules.test.yml"
RANGE = "30s"  # what Grafana puts for its intervals
CONFIG = """
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [%s]
scrape_configs:
"""
SCRAPE = MONITORING / "prometheus/gpuwm.scrape.yml"
TOKEN = "0123456789abcdef0123456789abcdef"
# A configuration that is there already, as Debian's: monitoring.md's command puts the job into it.
OWN = """
global: {scrape_interval: 15s}
scrape_configs:
  - job_name: node
    static_configs:
      - targets: ["127.0.0.1:9100"]
"""


def promtool(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, check=False)


class Rules(unittest.TestCase):
    def test_prometheus_takes_rules_and_configuration(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "token").write_text(TOKEN)
            (folder / "job.yml").write_text(SCRAPE.read_text().replace("/etc/gpuwm/exporter.token", f"{folder}/token"))
            (folder / "prometheus.yml").write_text(OWN)
            command = re.search(r"^sed -i '/.scrape_configs.*$", (stage.ROOT / "docs/how-to/monitoring.md").read_text(), re.M)
            assert command
            here = command[0].replace("/usr/share/gpuwm/monitoring/gpuwm.scrape.yml", f"{folder}/job.yml")
            subprocess.run(here.replace("/etc/prometheus", name), shell=True, check=True)
            self.assertIn("job_name: gpuwm", (folder / "prometheus.yml").read_text())
            for arguments in (["check", "rules", RULES], ["check", "config", folder / "prometheus.yml"]):
                done = promtool(*arguments)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_fires_when_it_should(self) -> None:
        done = promtool("test", "rules", ALERTS_TEST)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
        self.assertEqual(alerts, set(re.findall(r"alertname: (\w+)\n *exp_alerts", ALERTS_TEST.read_text())))


class Prometheus(unittest.TestCase):
    def setUp(self) -> None:
        self.it = stage.Stage()
        self.addCleanup(self.it.close)
        self.it.start_gpuwmd(
            "--set", f"access.observe_group={stage.GROUP}", "--set", "scrub.interval=1", "--set", "scrub.duty=100"
        )
        self.token = self.it.folder / "token"
        self.token.write_text(TOKEN)
        self.port = self.it.start_exporter(admission=["--token-file", str(self.token)])
        self.start_prometheus()

    def start_prometheus(self) -> None:
        folder = self.it.folder
        job = SCRAPE.read_text().replace("127.0.0.1:9464", f"127.0.0.1:{self.port}")
        job = job.replace("/etc/gpuwm/exporter.token", str(self.token))
        (folder / "prometheus.yml").write_text(CONFIG % json.dumps(str(RULES)) + job)
        self.it.spawn(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
             "--web.listen-address=127.0.0.1:0", "--log.format=json"],
            "prometheus.log",
        )  # fmt: skip
        said = stage.eventually(
            lambda: re.search(r'"address":"127.0.0.1:([1-9]\d*)"', self.it.log("prometheus.log")), "Prometheus listens"
        )
        self.prometheus = int(said[1])
        stage.eventually(lambda: stage.get(self.prometheus, "/-/ready").code == 200, "Prometheus is ready")

    def ask(self, path: str, **parameters: str) -> dict:
        answer = stage.get(self.prometheus, f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        self.assertEqual(answer.code, 200, answer.text)
        return answer.json()["data"]

    def values(self, query: str) -> list[float]:
        found = self.ask("query", query=query)["result"]
        return [value for value in (float(row["value"][1]) for row in found) if not math.isnan(value)]

    def test_every_query_of_the_dashboard_returns_data(self) -> None:
        stage.eventually(lambda: self.values("gpuwm_attaches_total"), "the first scrape")
        scene.play(self.it)
        # A rate needs two samples.
        stage.eventually(lambda: self.values("gpuwm_load_phase_seconds_count"), "a scrape after the loads")
        self.it.load("embed/bge-large@v4", seed=6)
        panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]
        self.assertGreater(len(panels), 20)
        for panel in panels:
            for target in panel["targets"]:
                query = re.sub(r"\$__(rate_interval|range)", RANGE, target["expr"]).replace("$instance", ".*")
                with self.subTest(panel=panel["title"], query=query):
                    stage.eventually(lambda query=query: self.values(query), query)
        self.check_scrape()

    def firing(self) -> set[str]:
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def check_scrape(self) -> None:
        stage.eventually(lambda: self.values('up{job="gpuwm"}') == [1], "the last scrape went well")
        rules = self.ask("rules")["groups"][0]["rules"]
        self.assertEqual([rule["lastError"] for rule in rules if rule.get("lastError")], [])
        # The scene has a load that fails, and nothing else that is wrong.
        stage.eventually(self.firing, "an alert fires")
        self.assertEqual(self.firing(), {"GpuwmLoadsFail"})


if __name__ == "__main__":
    unittest.main()
