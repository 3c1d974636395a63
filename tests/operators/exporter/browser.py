"""Headless Chromium, driven over the WebDriver protocol of chromedriver, which is HTTP and JSON."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import subprocess
import urllib.error
import urllib.request
from typing import Any

import stage

TAB = "\ue004"
ENTER = "\ue007"


class Browser:
    def __init__(self, folder: pathlib.Path) -> None:
        self._log = folder / "chromedriver.log"
        with self._log.open("w") as log:
            self._driver = subprocess.Popen(
                ["chromedriver", "--port=0"], stdout=log, stderr=log, preexec_fn=stage.end_with_tests
            )
        port = stage.eventually(
            lambda: re.search(r"started successfully on port (\d+)", self._log.read_text()), "chromedriver listens"
        )[1]
        self._url = f"http://127.0.0.1:{port}"
        options = {
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--user-data-dir={folder}/chromium"],
        }  # fmt: skip
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._url += f"/session/{session['sessionId']}"

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None

    def close(self) -> None:
        self._call("DELETE", "")
        self._driver.terminate()
        self._driver.wait(20)

    def look(self, width: int, height: int, scale: float = 1, dark: bool = False, mobile: bool = False) -> None:
        """The size of the window, and what the system's settings are said to be."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def go(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        return self._call("POST", "/execute/sync", {"script": script, "args": arguments})

    def until(self, expression: str, what: str) -> Any:
        """Waits until the expression in JavaScript is true; its value."""
        return stage.eventually(lambda: self.run(f"return {expression}"), what)

    def press(self, key: str) -> None:
        presses = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": presses}]})

    def complaints(self) -> list[str]:
        """What the console got since the last call."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def picture(self, path: pathlib.Path, whole: bool = False) -> None:
        """whole: with what is below the window's end."""
        path.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))
