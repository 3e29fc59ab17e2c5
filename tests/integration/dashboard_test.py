"""Every metric and label that the dashboard and the alerts ask for is in /metrics of a cluster that serves."""

import json
import re
import unittest

import monitoring
from cluster import SOURCE, Cluster, DemoTest, main


class Dashboard(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with Cluster(cls.pack, *monitoring.on_a_device(cls.pack)) as served:
            def all_there():
                served.complete("Once upon a time", max_tokens=48, ignore_eos=True)
                text = served.request("GET", "/metrics")[1]
                return "moestro_store_up 1" in text and "moestro_tier_recent_hit_ratio" in text
            served.wait_until(all_there, 120, what="the store's figures, and a window of the device's last uses")
            text = served.request("GET", "/metrics")[1]
        cls.labels = {}  # metric -> {label: {values}}
        for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.M):
            known = cls.labels.setdefault(name, {})
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels):
                known.setdefault(label, set()).add(value)

    def check(self, query, where):
        series = monitoring.series_of(query)
        self.assertTrue(series, f"{where}: {query} asks for nothing")
        for name, labels in series:
            if name == "up":  # Prometheus' own
                continue
            self.assertIn(name, self.labels, where)
            for label in set(labels) - monitoring.ADDED:
                self.assertIn(label, self.labels[name], f"{where}: {name}")
        for name, label, value in monitoring.matches(query):
            self.assertIn(value, self.labels[name].get(label, {value} if label in monitoring.ADDED else ()),
                          f"{where}: {name}{{{label}}}")
        there = {label for name, _ in series for label in self.labels.get(name, {})} | monitoring.ADDED
        self.assertLessEqual(monitoring.grouped_by(query), there, where)

    def test_the_panels_ask_for_what_there_is(self):
        queries = monitoring.dashboard_queries()
        self.assertGreater(len(queries), 40)
        for title, query, legend in queries:
            self.check(query, title)
            self.assertNotIn("$", query, title)
            named = set(re.findall(r"\{\{(\w+)\}\}", legend))
            aggregated = re.search(r"\b(sum|min|max|count)\b", query)
            self.assertLessEqual(named,
                                 monitoring.grouped_by(query) if aggregated else {"instance", "drive"},
                                 f"{title}: {legend}")

    def test_every_metric_is_documented(self):
        known = monitoring.documented()
        self.assertFalse(known("moestro_unknown_total"))
        families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in self.labels}
        self.assertEqual([name for name in sorted(families) if not known(name)], [])

    def test_every_alert_has_a_row_that_says_what_to_do(self):
        rows = re.findall(r"^\| `(Moestro\w+)`", (SOURCE / "docs/monitoring.md").read_text(), re.M)
        self.assertEqual(sorted(rows), sorted(name for name, _ in monitoring.alerts()))

    def test_the_alerts_ask_for_what_there_is(self):
        alerts = monitoring.alerts()
        self.assertEqual(len(alerts), (monitoring.FOLDER / "alerts.yml").read_text().count("- alert:"))
        for name, query in alerts:
            self.check(query, name)

    def test_a_query_for_what_is_not_there_is_found(self):
        for query in ("moestro_nothing_total", 'moestro_workers{worker="a"}', 'sum by (tier) (moestro_workers)',
                      'moestro_requests_total{result="lost"}', "1 + 1"):
            with self.assertRaises(AssertionError):
                self.check(query, "a test")

    def test_panels_have_their_place_and_the_variables_are_used(self):
        taken = {}
        for panel in monitoring.panels():
            g = panel["gridPos"]
            self.assertLessEqual(g["x"] + g["w"], 24, panel["title"])
            for x in range(g["x"], g["x"] + g["w"]):
                for y in range(g["y"], g["y"] + g["h"]):
                    self.assertIsNone(taken.get((x, y)), f"{panel['title']} lies on {taken.get((x, y))}")
                    taken[x, y] = panel["title"]
        self.assertEqual(len({p["id"] for p in monitoring.panels()}), len(monitoring.panels()))
        text = json.dumps(monitoring.panels())
        for name, variable in monitoring.variables().items():
            self.assertIn(f"${name}" if name != "datasource" else "${datasource}", text)
            if variable["type"] == "query":
                self.assertRegex(variable["definition"], r"^label_values\(moestro_workers, instance\)$")

    def test_compose_mounts_what_there_is(self):
        """Docker would make a folder of a file that is missing."""
        compose = (SOURCE / "docker-compose.yml").read_text()
        mounted = re.findall(r"- \./(configs/monitoring/[^:]+):", compose)
        self.assertEqual(len(mounted), 5)
        for path in mounted:
            self.assertTrue((SOURCE / path).exists(), path)
        told = (monitoring.FOLDER / "grafana/datasources/moestro.yml").read_text()
        for name in re.findall(r"\$(\w+)", told):
            self.assertIn(f"      {name}: ", compose, "Grafana's data source asks for it")
        self.assertIn("/etc/moestro/dashboards/", compose)
        self.assertIn("/etc/moestro/dashboards", (monitoring.FOLDER / "grafana/dashboards/moestro.yml").read_text())


if __name__ == "__main__":
    main()
