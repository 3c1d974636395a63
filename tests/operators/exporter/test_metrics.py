"""What /metrics says, compared with what gpuwmd has; and what clients with fewer rights see."""

from __future__ import annotations

import json
import subprocess
import unittest

import scene
import stage


def promtool_check(text: str) -> tuple[int, str]:
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Metrics(stage.Case):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        scene.play(cls.it)
        cls.port = cls.it.start_exporter()
        cls.text = stage.get(cls.port, "/metrics").text
        cls.series = stage.series(cls.text)

    def value(self, name: str, **labels: object) -> float:
        written = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return self.series[f"{name}{{{written}}}" if written else name]

    def test_promtool_has_nothing_to_say(self) -> None:
        self.assertEqual(promtool_check(self.text), (0, ""))

    def test_memory_is_that_of_list_and_status(self) -> None:
        device = self.it.devices[0]
        listed = {f"{v['model']}@{v['tag']}": v for v in self.it.admin.list()["versions"]}
        for tag in ("v1", "v2", "v2b"):
            version = listed[f"llama-3.1-8b@{tag}"]
            labels = {"model": "llama-3.1-8b", "tag": tag, "device": device}
            self.assertEqual(self.value("gpuwm_version_held_bytes", **labels), version["bytes"])
            self.assertEqual(self.value("gpuwm_version_shared_bytes", **labels), version.get("shared_bytes") or 0)
        self.assertGreater(self.value("gpuwm_version_shared_bytes", **labels), 0)
        for told in self.it.admin.status()["devices"]:
            self.assertEqual(self.value("gpuwm_device_used_bytes", device=told["device"]), told["used"])
            self.assertEqual(self.value("gpuwm_device_budget_bytes", device=told["device"]), told["budget"])
        mine = sum(v["bytes"] for v in listed.values() if v["parts"] and v["parts"][0]["device"] == device)
        self.assertEqual(self.value("gpuwm_owner_held_bytes", uid=0, by="operator", device=device), mine)

    def test_leases_pins_jobs_regions_and_aliases(self) -> None:
        version = {"model": "llama-3.1-8b", "tag": "v2", "state": "ready"}
        self.assertEqual(self.value("gpuwm_version_leases", **version), 1)
        self.assertEqual(self.value("gpuwm_version_state", **version), 1)
        self.assertEqual(self.value("gpuwm_version_pins", model="embed/bge-large", tag="v3", state="ready"), 1)
        self.assertEqual(self.value("gpuwm_leases"), 4)
        self.assertEqual(self.value("gpuwm_user_leases", uid=0), 4)
        self.assertEqual(self.value("gpuwm_user_limit", quota="leases"), 65536)
        self.assertEqual(self.value("gpuwm_alias_generation", model="llama-3.1-8b", alias="current"), 2)
        self.assertEqual(self.value("gpuwm_jobs", kind="load", state="done"), 6)
        self.assertEqual(self.value("gpuwm_jobs", kind="load", state="failed"), 1)
        self.assertEqual(self.value("gpuwm_region_bytes", region="kv-cache", kind="pool", device="host"), 8 << 20)
        self.assertEqual(self.value("gpuwm_region_processes", region="kv-cache", kind="pool", device="host"), 1)
        self.assertEqual((self.value("gpuwm_epoch"), self.value("gpuwm_kept")), (1, 1))

    def test_what_gpuwmd_counted(self) -> None:
        self.assertEqual(self.value("gpuwm_attaches_total"), 4)
        self.assertEqual(self.value("gpuwm_loads_total"), 6)
        self.assertEqual(self.value("gpuwm_loads_failed_total"), 1)
        self.assertEqual(self.value("gpuwm_attach_seconds_count"), 4)
        self.assertEqual(self.value("gpuwm_attach_seconds_bucket", le="+Inf"), 4)
        self.assertGreater(self.value("gpuwm_attach_seconds_sum"), 0)
        self.assertEqual(self.value("gpuwm_load_phase_seconds_count", phase="copying"), 6)
        self.assertEqual(self.value("gpuwm_refusals_total", method="pin_version", code="ENOENT"), 1)
        self.assertGreater(self.value("gpuwm_user_busy_seconds_total", uid=0), 0)
        self.assertGreater(self.value("gpuwm_operators_busy_seconds_total"), 0)

    def test_what_was_given_up_and_is_still_mapped(self) -> None:
        self.it.load("gone@v1", seed=9)
        worker = self.it.worker("gone@v1")
        self.it.admin.swap("gone", None)
        self.it.admin.retire("gone@v1", force=True)
        name = f'gpuwm_version_given_up_bytes{{model="gone",tag="v1",device="{self.it.devices[0]}"}}'

        def given_up() -> float:
            return stage.series(stage.get(self.port, "/metrics").text).get(name, 0)

        self.assertGreater(stage.eventually(given_up, "the freed memory is still mapped"), 0)
        self.it.end(worker)
        stage.eventually(lambda: given_up() == 0, "the memory is back")

    def test_an_operator_sees_the_same_on_the_other_socket(self) -> None:
        port = self.it.start_exporter("admin.sock")
        series = stage.series(stage.get(port, "/metrics").text)
        self.assertEqual({value for name, value in series.items() if name.startswith("gpuwm_exporter_sees")}, {1})

    def test_the_state_has_no_more_than_the_page_shows(self) -> None:
        state = stage.get(self.port, "/api/state").json()
        self.assertEqual(state["left_out"]["versions"], 0)
        self.assertIn(scene.MARKUP_COMMAND, json.dumps(state["clients"], ensure_ascii=False).replace('\\"', '"'))
        self.assertIn("current", [swap["alias"] for swap in state["swaps"]])
        self.assertNotIn("running", [event.get("state") for event in state["events"]])


class PlainWorker(stage.Case):
    """An exporter whose user is in no group: it sees what a worker sees."""

    def test_it_says_what_it_does_not_see(self) -> None:
        it = stage.Stage()
        self.addCleanup(it.close)
        it.start_gpuwmd("--set", "access.observe_group=daemon")
        it.load("llama@v1")
        port = it.start_exporter()
        text = stage.get(port, "/metrics").text
        series = stage.series(text)
        self.assertEqual(promtool_check(text), (0, ""))
        sees = {
            name.split('"')[1] for name, value in series.items() if name.startswith("gpuwm_exporter_sees") and value
        }
        self.assertEqual(sees, {"status", "list", "region_list"})
        self.assertIn(f'gpuwm_version_held_bytes{{model="llama",tag="v1",device="{it.devices[0]}"}}', series)
        self.assertNotIn("gpuwm_attaches_total", series)
        self.assertFalse(stage.get(port, "/api/state").json()["sees"]["clients"])
        self.assertIn("or none that the exporter's user may attach to", stage.get(port, "/readyz?version=other").text)


if __name__ == "__main__":
    unittest.main()
