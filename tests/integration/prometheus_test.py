"""A real Prometheus reads a cluster at work with configs/monitoring, and answers every query of dashboard and
alerts."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

import monitoring
from cluster import Cluster, DemoTest, main

# Beside a distribution's package: scripts/test_page unpacks one.
PLACES = os.pathsep.join(filter(None, (os.environ.get("MOESTRO_PROMETHEUS_DIR"), os.environ["PATH"])))


def program(name):
    return shutil.which(name, path=PLACES)


class Prometheus:
    """A context manager: reads `target` once a second."""

    def __init__(self, target):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="moestro-prom-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = (monitoring.FOLDER / "prometheus.yml").read_text()
        assert "127.0.0.1:8080" in config and "_interval: 5s" in config
        (self.dir / "prometheus.yml").write_text(
            config.replace("127.0.0.1:8080", target).replace("_interval: 5s", "_interval: 1s"))
        shutil.copy(monitoring.FOLDER / "alerts.yml", self.dir)
        self.log = open(self.dir / "log", "w+")
        self.process = subprocess.Popen([
            program("prometheus"), f"--config.file={self.dir}/prometheus.yml", f"--storage.tsdb.path={self.dir}/data",
            f"--web.listen-address=127.0.0.1:{self.port}"
        ], stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def get(self, path, **query):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}",
                                    timeout=30) as answer:
            return json.load(answer)["data"]

    def ask(self, query):
        """The series that a query comes to; none while it cannot be asked."""
        try:
            return self.get("query", query=query)["result"]
        except urllib.error.HTTPError as refused:
            if refused.code == 503:  # it is starting
                return []
            raise AssertionError(f"{query}: {refused.read().decode()}") from None
        except OSError:
            return []


class Queries(DemoTest):
    def test_all_are_answered(self):
        with Cluster(self.pack, *monitoring.on_a_device(
                self.pack)) as served, Prometheus(f"{served.host}:{served.port}") as prometheus:
            over = threading.Event()

            def work():
                while not over.is_set():
                    served.complete("Once upon a time", max_tokens=16, ignore_eos=True)
            hand = threading.Thread(target=work)
            hand.start()
            with contextlib.ExitStack() as end:
                end.callback(hand.join)
                end.callback(over.set)
                # Rates need two scrapes: wait for the last that comes.
                served.wait_until(
                    lambda: prometheus.ask("rate(moestro_drive_read_bytes_total[1m])") and prometheus.ask(
                        "rate(moestro_worker_steps_total[1m]) > 0") and prometheus.ask("moestro_tier_recent_hit_ratio"),
                    120, "two scrapes, and a window of the device's last uses")
                for title, query, _ in monitoring.dashboard_queries():
                    self.assertTrue(prometheus.ask(query), f"{title}: {query} comes to nothing")
                self.assertEqual({r["metric"]["instance"] for r in prometheus.ask("moestro_workers")},
                                 {f"{served.host}:{served.port}"})
                served.wait_until(
                    lambda: all(rule["health"] == "ok"
                                for group in prometheus.get("rules")["groups"]
                                for rule in group["rules"]), 60, "every alert's health")
                rules = prometheus.get("rules")["groups"][0]["rules"]
                self.assertEqual(sorted(rule["name"] for rule in rules),
                                 sorted(name for name, _ in monitoring.alerts()))
                self.assertEqual([rule["name"] for rule in rules if rule["state"] != "inactive"], [],
                                 "nothing is wrong, and an alert says so")

    def test_promtool_finds_nothing(self):
        if program("promtool") is None:
            self.skipTest("there is no promtool")
        done = subprocess.run([program("promtool"), "check", "config", monitoring.FOLDER / "prometheus.yml"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with Cluster(self.pack) as served:
            served.wait_until(lambda: "moestro_store_up 1" in served.request("GET", "/metrics")[1],
                              what="the store's figures")
            text = served.request("GET", "/metrics")[1]
        done = subprocess.run([program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    if program("prometheus") is None:
        print("there is no Prometheus here (scripts/test_page unpacks one)")
        sys.exit(77)
    main()
