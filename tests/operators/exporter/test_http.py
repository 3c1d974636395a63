"""What the exporter answers over HTTP, to good clients and to bad ones."""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.error

import stage

CONNECTIONS_MAX = 128  # exporter/limits.h: HTTP_CONNECTIONS_MAX
CROWDED = 64  # HTTP_CROWDED
CROWDED_S = 0.5  # HTTP_CROWDED_MS
HEADER_BYTES = 16384  # HTTP_HEADER_BYTES
HTTP_WAIT_S = 30
FIRST_S = 3  # HTTP_FIRST_MS
IDLE = 10000
FLOOD = """
import resource, socket, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
print("begins", flush=True)
idle = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("all", flush=True)
sys.stdin.read()
"""


class Http(stage.CaseWithOneVersion):
    def get(self, path: str, **more: object) -> stage.Answer:
        return stage.get(self.port, path, **more)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), HTTP_WAIT_S)

    # ---- good clients ----

    def test_the_page_runs_nothing_but_its_own_script(self) -> None:
        nonces = set()
        for _ in range(2):
            page = self.get("/")
            self.assertEqual(page.headers["Content-Type"], "text/html; charset=utf-8")
            policy = page.headers["Content-Security-Policy"]
            nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", policy)[1]
            self.assertTrue(policy.startswith("default-src 'none'; "), policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual(page.text.count(f'nonce="{nonce}"'), 2)
            nonces.add(nonce)
        self.assertEqual(len(nonces), 2)

    def test_the_page_takes_nothing_from_outside(self) -> None:
        addresses = set(re.findall(r"https?://[^'\" ]+", self.get("/").text))
        self.assertEqual(addresses, {"http://www.w3.org/2000/svg"})  # the name of a language, which nobody fetches

    def test_no_answer_is_kept_framed_or_guessed_at(self) -> None:
        for path in ("/", "/metrics", "/api/state", "/healthz", "/nothing"):
            headers = self.get(path).headers
            self.assertEqual(headers["Cache-Control"], "no-store")
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["X-Frame-Options"], "DENY")
            self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
            self.assertIsNone(headers["Access-Control-Allow-Origin"])

    def test_a_head_request_gets_the_headers_alone(self) -> None:
        answer = self.get("/metrics", method="HEAD")
        self.assertEqual((answer.code, answer.text), (200, ""))
        self.assertGreater(int(answer.headers["Content-Length"]), 1000)

    def test_other_paths_and_methods_are_refused_with_what_there_is(self) -> None:
        answer = self.get("/metrics/")
        self.assertEqual(answer.code, 404)
        self.assertIn("/readyz?version=", answer.text)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = self.get("/metrics", method=method)
            self.assertEqual((answer.code, answer.headers["Allow"]), (405, "GET, HEAD"))

    def test_many_scrapers_are_one_to_gpuwmd(self) -> None:
        def snapshots() -> float:
            return stage.series(self.get("/metrics").text)["gpuwm_exporter_snapshots_total"]

        before, began = snapshots(), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda i: self.get("/metrics" if i % 2 else "/api/state"), range(300)))
        made = snapshots() - before
        self.assertEqual({answer.code for answer in answers}, {200})
        self.assertLessEqual(made, time.monotonic() - began + 1)  # SNAPSHOT_MS is a second

    # ---- bad clients ----

    def test_a_web_page_that_names_this_machine_otherwise_reads_nothing(self) -> None:
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9464", "[::1].evil.example"):
            answer = self.get("/api/state", headers={"Host": host})
            self.assertEqual(answer.code, 403, host)
            self.assertIn("127.0.0.1", answer.text)
        for host in ("localhost", f"LOCALHOST:{self.port}", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:9464"):
            self.assertEqual(self.get("/healthz", headers={"Host": host}).code, 200, host)

    def test_headers_and_paths_above_the_limit_are_refused(self) -> None:
        for path, headers in (("/", {"X-Long": "x" * HEADER_BYTES}), ("/" + "x" * HEADER_BYTES, {})):
            answer = self.get(path, headers=headers)
            self.assertIn(answer.code, (413, 414, 431))

    def test_what_is_no_http_ends_its_connection(self) -> None:
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"\0" * 5000, b"GET\r\n\r\n"):
            with self.connect() as client:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
        self.assertEqual(self.get("/healthz").code, 200)

    def test_what_has_no_end_of_a_line_is_soon_ended(self) -> None:
        with self.connect() as client:
            client.sendall(b"\x16\x03\x01\x02" * 8)
            began = time.monotonic()
            self.assertEqual(client.recv(65536), b"")
            self.assertLess(time.monotonic() - began, FIRST_S + 4)

    def test_thousands_that_say_nothing_reset_nobody_else(self) -> None:
        flood = subprocess.Popen([sys.executable, "-c", FLOOD, str(self.port), str(IDLE)], stdout=subprocess.PIPE)
        self.addCleanup(flood.wait)
        self.addCleanup(flood.kill)
        assert flood.stdout
        with flood.stdout as said:
            self.assertEqual(said.readline(), b"begins\n")
            for _ in range(100):
                self.assertEqual(self.get("/healthz").code, 200)
            self.assertEqual(said.readline(), b"all\n")

    def begin_slowly(self, count: int) -> None:
        """So many clients send a piece of a request, and no more."""
        for _ in range(count):
            client = self.connect()
            self.addCleanup(client.close)
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")

    def cut(self) -> float:
        return stage.series(self.get("/metrics").text)["gpuwm_exporter_cut_total"]

    def is_served(self) -> bool:
        try:
            return self.get("/metrics").code == 200
        except (ConnectionError, urllib.error.URLError):
            return False

    def test_a_scraper_takes_the_place_of_a_slow_client(self) -> None:
        before = self.cut()
        self.begin_slowly(CROWDED + 10)
        self.assertTrue(self.is_served())
        stage.eventually(lambda: self.cut() - before >= 10, "those above the limit are cut")

    def test_slow_clients_in_all_places_keep_a_scraper_out_for_moments_only(self) -> None:
        self.begin_slowly(2 * CONNECTIONS_MAX)
        began = time.monotonic()
        stage.eventually(self.is_served, "a scraper is served")
        self.assertLess(time.monotonic() - began, CROWDED_S + 4)

    def test_clients_that_ask_again_and_again_leave_room(self) -> None:
        ends, served = threading.Event(), set()

        def ask(number: int) -> None:
            while not ends.is_set():
                with contextlib.suppress(OSError), self.connect() as client:
                    while not ends.wait(0.1):
                        client.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
                        if not client.recv(65536):
                            break
                        served.add(number)

        threads = [threading.Thread(target=ask, args=[number]) for number in range(CONNECTIONS_MAX)]
        for thread in threads:
            thread.start()
            self.addCleanup(thread.join)
        self.addCleanup(ends.set)
        stage.eventually(lambda: len(served) == CONNECTIONS_MAX, "each has had its answer")
        stage.eventually(self.is_served, "a scraper is served", CROWDED_S + 4)

    def test_a_request_has_no_body(self) -> None:
        for header in (b"Content-Length: 1000000", b"Transfer-Encoding: chunked"):
            with self.connect() as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
                answer = b""
                while part := client.recv(65536):
                    answer += part
                self.assertEqual(answer.split()[1], b"400", answer)
        self.assertEqual(self.get("/healthz", headers={"Content-Length": "0"}).code, 200)

    def test_clients_in_all_places_that_do_not_read_leave_room(self) -> None:
        for _ in range(2 * CONNECTIONS_MAX):
            client = self.connect()
            self.addCleanup(client.close)
            with contextlib.suppress(OSError):
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        stage.eventually(self.is_served, "a scraper is served", CROWDED_S + 4)

    def test_a_client_that_does_not_read_keeps_nobody_waiting(self) -> None:
        with self.connect() as client:
            client.sendall(b"GET /api/state HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
            self.assertEqual(self.get("/metrics").code, 200)


if __name__ == "__main__":
    unittest.main()
