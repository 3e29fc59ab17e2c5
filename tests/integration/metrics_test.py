"""What /metrics says of a cluster at work, read by the parser of Prometheus' own client."""

import json
import re
import sys
import unittest

from cluster import DemoTest, Cluster, expert_and_dense_bytes, main

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:  # Debian's package is for Debian's Python
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("there is no Python module prometheus_client here (package python3-prometheus-client)")
        sys.exit(77)

# What design and docs promise, by kind.
COUNTERS = """moestro_prompt_tokens moestro_generated_tokens moestro_requests moestro_steps moestro_step_seconds
    moestro_stall_seconds moestro_dense_read_bytes moestro_dense_stall_seconds moestro_kv_stall_seconds
    moestro_worker_restarts moestro_workers_lost moestro_expert_hits moestro_expert_misses
    moestro_expert_fetched_bytes moestro_prefix_cached_tokens moestro_nonfinite_sequences moestro_tier_hits
    moestro_tier_misses moestro_tier_late moestro_tier_prefetched moestro_tier_prefetched_used
    moestro_tier_prefetched_wasted moestro_tier_prefetched_wasted_bytes moestro_tier_prefetched_dropped
    moestro_tier_evictions moestro_tier_read_bytes moestro_drive_read_bytes moestro_drive_read_retries
    moestro_worker_steps moestro_worker_step_seconds moestro_worker_stall_seconds moestro_batch_lines
    moestro_batch_retries moestro_store_read_bytes moestro_store_foreseen_below_floor
    moestro_store_foreseen_over_budget moestro_store_foreseen_early moestro_store_foreseen_guarded
    moestro_preemptions moestro_quarantined moestro_prefix_states_kept
    moestro_prefix_states_restored""".split(
)
GAUGES = """moestro_requests_running moestro_sequences_waiting moestro_sequences_running moestro_workers
    moestro_kv_blocks     moestro_kv_blocks_used moestro_prefix_blocks
    moestro_state_slots moestro_state_slots_used moestro_prefix_states
    moestro_tier_capacity_bytes moestro_tier_used_bytes
    moestro_tier_resident_bytes moestro_tier_experts moestro_tier_model_bytes moestro_model_experts
    moestro_drive_speed_bytes_per_second moestro_store_up moestro_store_pins moestro_store_read_queue
    moestro_store_unreadable_blobs
    moestro_worker_plans_in_flight moestro_batches moestro_batches_stalled moestro_queue_sequences""".split(
)
DEVICE_COUNTERS = """moestro_device_link_bytes moestro_device_staged_bytes moestro_device_link_busy_seconds
    moestro_device_step_seconds moestro_device_stall_seconds moestro_worker_device_hits moestro_worker_device_misses
    moestro_worker_device_link_busy_seconds moestro_device_host_experts moestro_device_host_rows
    moestro_device_rewinds moestro_worker_device_host_experts moestro_worker_device_rewinds""".split() + [
    f"moestro_device_layer_{name}"
    for name in ("hits", "misses", "late", "evictions", "prefetched", "prefetched_used", "prefetched_wasted")
]
HISTOGRAMS = """moestro_time_to_first_token_seconds moestro_time_per_output_token_seconds
    moestro_step_duration_seconds""".split(
)
# Labels take their values from configuration alone, never from what a client sends.
LABELS = {"model", "result", "le", "worker", "tier", "drive", "class", "state", "status", "layer", "policy"}
SERIES_OF_A_FAMILY_MAX = 40


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(found, name, **labels):
    """The sum of the samples of this name that have these labels."""
    base = re.sub(r"_(total|bucket|sum|count)$", "", name)
    samples = [s for family in {name, base} & set(found) for s in found[family].samples
               if s.name == name and all(s.labels.get(k) == v for k, v in labels.items())]
    assert samples, f"no sample {name} {labels}"
    return sum(s.value for s in samples)


class Scraped(DemoTest):
    """A cluster whose metrics are read."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster(cls.pack, *cls.options())
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cluster.wait_until(lambda: len(cls.cluster.request("GET", "/v1/moestro/status")[1]["workers"]) == 2,
                               what="both workers")
        cls.cluster.wait_until(lambda: "moestro_store_up 1" in cls.cluster.request("GET", "/metrics")[1],
                               what="the store's figures")

    @classmethod
    def options(cls):
        return ("--workers", "2")

    def settled(self):
        """Waits until the control thread's figures have all that was answered: an answer may be read before they are
        published."""
        self.cluster.wait_until(
            lambda: self.cluster.request("GET", "/v1/moestro/status")[1]["sequences"]["running"] == 0,
            what="the end of all sequences")

    def scrape(self):
        status, text = self.cluster.request("GET", "/metrics")
        self.assertEqual(status, 200)
        return text

    def test_the_parser_takes_it_and_every_family_is_described_once(self):
        text = self.scrape()
        names = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
        self.assertEqual(len(names), len({name for name, _ in names}), "a family stands there twice")
        described = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
        samples = [line.rpartition(" ")[0] for line in text.splitlines() if line and not line.startswith("#")]
        self.assertEqual(len(samples), len(set(samples)), "a series stands there twice")
        found = families(text)
        for family in found.values():
            self.assertTrue(family.name.startswith("moestro_"), family.name)
            self.assertIn(family.type, ("counter", "gauge", "histogram"), family.name)
            self.assertGreater(len(family.documentation), 5, family.name)
            self.assertTrue(family.samples, family.name)
            self.assertLessEqual(len(family.samples), SERIES_OF_A_FAMILY_MAX, family.name)
            for sample in family.samples:
                self.assertLessEqual(set(sample.labels), LABELS, sample)
                self.assertGreaterEqual(sample.value, 0, sample)
        for name, kind in names:
            self.assertIn(name, described)
            self.assertEqual(name.endswith("_total"), kind == "counter", name)


class Metrics(Scraped):
    def test_has_what_is_promised(self):
        self.cluster.complete("Once upon a time", max_tokens=8, ignore_eos=True)
        found = families(self.scrape())
        for kind, names in (("counter", COUNTERS), ("gauge", GAUGES), ("histogram", HISTOGRAMS)):
            for name in names:
                self.assertTrue(name in found, name)
                self.assertEqual(found[name].type, kind, name)
        for result in ("ok", "error", "cancelled", "refused"):
            value(found, "moestro_requests_total", result=result, model=self.pack.name)
        self.assertEqual({s.labels["worker"] for s in found["moestro_worker_steps"].samples}, {"worker-0", "worker-1"})
        self.assertEqual({s.labels["tier"] for s in found["moestro_tier_used_bytes"].samples}, {"dram", "nvme"})
        for name in ("moestro_tier_hits", "moestro_tier_misses", "moestro_tier_experts"):
            self.assertEqual([(s.labels["tier"], s.labels["model"]) for s in found[name].samples],
                             [("dram", self.pack.name)])

    def test_counts_what_has_been_done(self):
        before = families(self.scrape())
        answers = [self.cluster.complete("Once upon a time", max_tokens=n, ignore_eos=True) for n in (1, 7, 16)]
        status, _ = self.cluster.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": -3})
        self.assertEqual(status, 400)
        self.settled()
        after = families(self.scrape())

        def more(name, **labels):
            return value(after, name, **labels) - value(before, name, **labels)
        self.assertEqual(more("moestro_prompt_tokens_total"), sum(a["usage"]["prompt_tokens"] for a in answers))
        self.assertEqual(more("moestro_generated_tokens_total"), 24)
        self.assertEqual(
            (more("moestro_requests_total", result="ok"), more("moestro_requests_total", result="refused")), (3, 1))
        self.assertEqual(more("moestro_time_to_first_token_seconds_count"), 3)
        self.assertEqual(more("moestro_time_per_output_token_seconds_count"), 21)
        steps = more("moestro_steps_total")
        self.assertGreaterEqual(steps, 24)
        self.assertEqual(more("moestro_step_duration_seconds_count"), steps)
        self.assertEqual(more("moestro_worker_steps_total"), steps)
        self.assertAlmostEqual(more("moestro_step_duration_seconds_sum"), more("moestro_step_seconds_total"), places=6)
        self.assertEqual(more("moestro_tier_hits_total", tier="dram"), more("moestro_expert_hits_total"))
        self.assertGreater(more("moestro_tier_hits_total"), 0)
        self.assertEqual(value(after, "moestro_requests_running"), 0)
        for name in HISTOGRAMS:
            counts = [s.value for s in after[name].samples if s.name.endswith("_bucket")]
            self.assertEqual(counts, sorted(counts))
            self.assertEqual(counts[-1], value(after, name + "_count"))

    def test_clients_make_no_series(self):
        self.cluster.complete("a", max_tokens=1)
        series = [line.rpartition(" ")[0] for line in self.scrape().splitlines() if not line.startswith("#")]
        for i in range(20):
            self.cluster.request("POST", "/v1/completions",
                                 {"prompt": "a", "max_tokens": 1, "model": f"m{i}", "user": f"u{i}"},
                                 {"X-Request-Id": f"r{i}", "Authorization": f"Bearer k{i}"})
            self.cluster.request("GET", f"/v1/nothing/{i}?q={i}")
        self.assertEqual([line.rpartition(" ")[0] for line in self.scrape().splitlines() if not line.startswith("#")],
                         series)

    def test_the_status_has_the_same_figures(self):
        self.cluster.complete("Once upon a time", max_tokens=4, ignore_eos=True)
        self.settled()
        found, status = families(self.scrape()), self.cluster.request("GET", "/v1/moestro/status")[1]
        self.assertEqual((status["state"], status["problems"]), ("serving", []))
        self.assertEqual(status["tokens"]["generated"], value(found, "moestro_generated_tokens_total"))
        self.assertEqual(status["requests"]["ended"]["ok"], value(found, "moestro_requests_total", result="ok"))
        self.assertEqual(status["steps"]["count"], value(found, "moestro_steps_total"))
        for name, path in (("moestro_time_to_first_token_seconds",
                            ("latency", "ttft_s")), ("moestro_time_per_output_token_seconds", ("latency", "tpot_s")),
                           ("moestro_step_duration_seconds", ("steps", "duration_s"))):
            histogram = status[path[0]][path[1]]
            self.assertEqual(len(histogram["counts"]), len(histogram["bounds"]) + 1)
            self.assertEqual(sum(histogram["counts"]), histogram["count"])
            self.assertEqual(histogram["count"], value(found, name + "_count"))
        self.assertEqual(status["tiers"]["dram"]["capacity_bytes"],
                         value(found, "moestro_tier_capacity_bytes", tier="dram"))
        self.assertEqual({w["name"]: w["state"] for w in status["workers"]}, {"worker-0": "idle", "worker-1": "idle"})
        self.assertEqual(sum(w["plans"] for w in status["workers"]), status["steps"]["count"])
        json.dumps(status, allow_nan=False)


class Devices(Scraped):
    """Two workers on devices that hold a part of the experts."""

    @classmethod
    def options(cls):
        expert, _ = expert_and_dense_bytes(cls.pack)
        return ("--workers", "2", "--device", f"emulated:vram={10 * expert},link=1GB/s", "--predict", "auto")

    def test_devices_are_counted_apart_from_memory(self):
        for _ in range(4):
            self.cluster.complete("Once upon a time", max_tokens=24, ignore_eos=True)
        self.settled()
        found, status = families(self.scrape()), self.cluster.request("GET", "/v1/moestro/status")[1]
        for name in DEVICE_COUNTERS:
            self.assertTrue(name in found, name)
            self.assertEqual(found[name].type, "counter", name)
        hits, misses = (value(found, f"moestro_tier_{what}_total", tier="device", model=self.pack.name)
                        for what in ("hits", "misses"))
        self.assertGreater(hits, 0)
        self.assertGreater(misses, 0)
        self.assertEqual((value(found, "moestro_tier_hits_total",
                                tier="dram"), value(found, "moestro_tier_misses_total", tier="dram")), (0, 0))
        self.assertEqual((hits, misses),
                         (value(found, "moestro_expert_hits_total"), value(found, "moestro_expert_misses_total")),
                         "every step's device figures have come")
        for what in ("hits", "misses", "late", "evictions", "prefetched", "prefetched_used", "prefetched_wasted"):
            layers = found[f"moestro_device_layer_{what}"].samples
            self.assertEqual([s.labels["layer"] for s in layers],
                             [str(i) for i in range(len(status["tiers"]["device"]["layers"]["hits"]))])
            self.assertEqual(sum(s.value for s in layers), value(found, f"moestro_tier_{what}_total", tier="device"),
                             what)
        self.assertEqual({s.labels["worker"] for s in found["moestro_worker_device_slots"].samples},
                         {"worker-0", "worker-1"})
        self.assertEqual(value(found, "moestro_worker_device_slots"), 20)
        self.assertEqual(value(found, "moestro_tier_capacity_bytes", tier="device"),
                         status["tiers"]["device"]["capacity_bytes"])
        self.assertLessEqual(value(found, "moestro_tier_used_bytes", tier="device"),
                             value(found, "moestro_tier_capacity_bytes", tier="device"))
        self.assertGreater(value(found, "moestro_device_link_busy_seconds_total"), 0)
        self.assertGreaterEqual(value(found, "moestro_device_step_seconds_total"),
                                value(found, "moestro_device_stall_seconds_total"))
        self.assertEqual(sum(w["device_memory"]["hits"] for w in status["workers"]), status["tiers"]["device"]["hits"])

    def test_the_recent_window_stands_beside_lru_and_belady(self):
        def told():
            self.cluster.complete("Once upon a time", max_tokens=48, ignore_eos=True)
            return "moestro_tier_recent_hit_ratio" in self.scrape()
        self.cluster.wait_until(told, 120, what="the first window")
        found, recent = families(self.scrape()), self.cluster.request(
            "GET", "/v1/moestro/status")[1]["tiers"]["device"]["recent"]
        ratios = {s.labels["policy"]: s.value for s in found["moestro_tier_recent_hit_ratio"].samples}
        self.assertEqual(set(ratios), {"realised", "lru", "belady"})
        self.assertLessEqual(ratios["lru"], ratios["belady"] + 1e-9,
                             "nobody does better on demand than who knows the future")
        self.assertTrue(all(0 <= r <= 1 for r in ratios.values()), ratios)
        self.assertGreater(value(found, "moestro_tier_recent_uses"), 0)
        self.assertGreater(recent["uses"], 0)

    def test_experts_are_shown_to_those_who_ask(self):
        self.cluster.complete("Once upon a time", max_tokens=8, ignore_eos=True)
        self.assertNotIn("experts", self.cluster.request("GET", "/v1/moestro/status")[1])
        experts = self.cluster.request("GET", "/v1/moestro/status?experts=1")[1]["experts"]
        self.assertEqual(len(experts["shares"]), experts["layers"])
        for row in experts["shares"]:
            self.assertEqual(len(row), experts["experts"])
            self.assertAlmostEqual(sum(row), 1, delta=1e-4 * len(row))


del Scraped  # no tests of its own


if __name__ == "__main__":
    main()
