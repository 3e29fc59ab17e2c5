"""`moestro bench serve` against a real cluster: what it counts is what the server counted; a cluster that dies amid a
load."""

import json
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

from cluster import BIN, DEMO, Cluster, DemoTest, main, moestro


class BenchServe(DemoTest):
    def metric(self, cluster, name, **labels):
        text = cluster.request("GET", "/metrics")[1]
        found = [line for line in text.splitlines() if line.startswith(name + "{") or line.startswith(name + " ")]
        return sum(float(line.split()[-1]) for line in found if all(f'{k}="{v}"' in line for k, v in labels.items()))

    def figures(self, cluster):
        return {
            "ok": self.metric(cluster, "moestro_requests_total",
                              result="ok"), "refused": self.metric(cluster, "moestro_requests_total", result="refused"),
            "prompt": self.metric(cluster, "moestro_prompt_tokens_total"),
            "generated": self.metric(cluster, "moestro_generated_tokens_total"),
            "first": self.metric(cluster, "moestro_time_to_first_token_seconds_count")
        }

    def load(self, cluster, *options):
        before = self.figures(cluster)
        report = json.loads(moestro("bench", "serve", "--url", cluster.url, "--warm-up", 0, "--json", *options).stdout)
        after = self.figures(cluster)
        return report, {k: after[k] - before[k] for k in after}

    def test_what_it_counts_is_what_the_server_counted(self):
        with Cluster(self.pack, "--queue-max", "24") as cluster:
            report, counted = self.load(cluster, "--rate", "100", "--count", "40", "--prompt", "4-60", "--output",
                                        "1-30", "--concurrency", "8", "--goodput", "e2e:60s")
            (run,) = report["runs"]
            self.assertEqual((run["completed"], run["failed"], run["refused"], run["other_length"]), (40, 0, 0, 0))
            self.assertEqual(counted, {
                "ok": 40, "refused": 0, "prompt": run["prompt_tokens"], "generated": run["output_tokens"], "first": 40
            })
            self.assertEqual(run["goodput"]["share"], 1)
            self.assertLessEqual(run["in_flight_max"], 8)
            self.assertEqual(report["model"], "pack")
            self.assertEqual((report["vocab"], report["context"]), (4096, 1024))

            report, counted = self.load(cluster, "--count", "60", "--prompt", "200", "--output", "20", "--idle", "5")
            (run,) = report["runs"]
            self.assertGreater(run["refused"], 0)
            self.assertEqual(run["failures"].keys(), {"HTTP 429"})
            self.assertEqual(run["refused_without_retry_after"], 0)
            self.assertEqual(run["completed"] + run["refused"], 60)
            self.assertEqual((counted["ok"], counted["refused"]), (run["completed"], run["refused"]))
            self.assertEqual(counted["generated"], run["output_tokens"])
            self.assertEqual(run["idle_connections"], {"opened": 5, "lost": 0})

    def tiers(self, cluster):
        status = cluster.request("GET", "/v1/moestro/status")[1]
        return status["tiers"], status["steps"]

    def test_tier_figures_are_what_the_server_counted(self):
        for options, where in (((), "dram"), (("--device", "emulated:vram=2MiB,link=1GB/s"), "device")):
            with Cluster(self.pack, *options) as cluster:
                before, steps_before = self.tiers(cluster)
                report, _ = self.load(cluster, "--count", "6", "--prompt", "20", "--output", "10")
                after, steps_after = self.tiers(cluster)
                tiers = report["runs"][0]["tiers"]
                for name in ("hits", "misses"):
                    self.assertEqual(tiers[where][name], after[where][name] - before.get(where, {}).get(name, 0))
                self.assertGreater(tiers[where]["hits"] + tiers[where]["misses"], 0)
                self.assertAlmostEqual(tiers["step_seconds"], steps_after["seconds"] - steps_before["seconds"])
                self.assertTrue(0 <= tiers["stall_share"] <= 1, tiers)
                self.assertGreater(tiers["nvme"]["read_bytes"], 0, "the demo's experts come from its pack")
                if where == "device":
                    self.assertGreater(tiers["device"]["moved_bytes"], 0)
                    self.assertLessEqual(tiers["device"]["moved_bytes"], after["device"]["moved_bytes"])
                else:
                    self.assertIsNone(tiers["device"])

    def test_a_trace_with_shared_prefixes(self):
        trace = pathlib.Path(self.dir.name) / "trace.jsonl"
        lines = [{"timestamp": 40 * i, "input_length": 1024 + i, "output_length": 6, "hash_ids": [1, 2, 3 + i]}
                 for i in range(5)]
        trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with Cluster(self.pack) as cluster:
            before = cluster.request("GET", "/v1/moestro/status")[1]["tokens"]["prefix_cached"]
            report, counted = self.load(cluster, "--trace", trace, "--speed", "2", "--lengths", "0.5", "--concurrency",
                                        "1")
            (run,) = report["runs"]
            self.assertEqual((run["completed"], counted["ok"], counted["generated"]), (5, 5, 15))
            self.assertAlmostEqual(run["offered_requests_per_s"], 4 / 0.08)
            cached = cluster.request("GET", "/v1/moestro/status")[1]["tokens"]["prefix_cached"] - before
            self.assertGreaterEqual(cached, 4 * 512 - 4 * 16, "blocks of one name hold the same tokens")

    def test_a_cluster_that_dies_amid_a_load(self):
        with Cluster(self.pack) as cluster:
            process = subprocess.Popen([
                BIN / "moestro", "bench", "serve", "--url", cluster.url, "--rate", "40", "--count", "120", "--prompt",
                "8", "--output", "4", "--json"
            ], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            cluster.wait_until(lambda: self.metric(cluster, "moestro_requests_total", result="ok") >= 20, 30,
                               "a sixth of the load")
            cluster.process.send_signal(signal.SIGKILL)  # store, worker and orchestrator end with it
            out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        (run,) = json.loads(out)["runs"]
        self.assertGreaterEqual(run["completed"], 19)  # one of those counted was the warm-up
        self.assertGreater(run["failed"], 0)
        self.assertEqual(run["completed"] + run["failed"] + run["refused"], 120)
        self.assertIn("cannot connect", run["failures"])

    def test_a_box_of_its_own(self):
        ran = moestro("bench", "serve", "--model", self.pack, "--rate", "20", "--count", "10", "--prompt", "4-20",
                      "--output", "1-8", "--kv-tokens", "2048")
        self.assertRegex(ran.stdout, r"pack on a box of its own; Poisson")
        self.assertRegex(ran.stdout, r"10 requests, 10 completed, 0 refused, 0 failed")
        self.assertRegex(ran.stdout, re.compile(r"^time to first token +[0-9.]+", re.MULTILINE))

    def test_the_table_has_every_row(self):
        rows = json.loads(
            moestro("bench", "serve", "--model", self.pack, "--table", "--rounds", "1", "--count", "24", "--kv-tokens",
                    "8192", "--json").stdout)
        by_what = {
            row["what"] + ("; " + row["baseline_is"] if row["baseline"] is not None else ""): row for row in rows
        }
        mixed = by_what["mixed lengths, requests/s; padded static batches"]
        self.assertAlmostEqual(mixed["value"] / mixed["baseline"], mixed["ratio"])
        self.assertEqual((mixed["aim"], mixed["aim_is"], mixed["reached"]),
                         (1.9, "at least, of the ratio", mixed["ratio"] >= 1.9))
        self.assertIn("mixed lengths, requests/s; the same, sorted by known lengths", by_what)
        self.assertIn("arrivals above capacity: tokens/s out; its peak", by_what)
        queue = by_what["arrivals above capacity: sequences in the server, at most"]
        self.assertTrue(queue["reached"], queue)
        self.assertTrue(by_what["arrivals above capacity: refusals that are no 429 with Retry-After"].get(
            "reached", True))
        beside = by_what["interactive during a saturating batch job: TTFT p99; 2 steps + its own prefill"]
        self.assertGreater(beside["baseline"], 0)
        streams = [row for row in rows if row["what"].startswith("500 streams and 2000 idle connections")]
        for row in streams:
            self.assertTrue(row.get("reached", "missing" in row), row)
        self.assertEqual({row["model"] for row in rows}, {"demo"})


if __name__ == "__main__":
    main()
