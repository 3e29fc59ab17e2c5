"""The queries of configs/monitoring: what a dashboard's panels and the alerts ask Prometheus."""

import json
import re

from cluster import SOURCE, expert_and_dense_bytes

FOLDER = SOURCE / "configs" / "monitoring"
# What Prometheus adds to every series by itself.
ADDED = {"instance", "job"}


def on_a_device(pack):
    """Options of a cluster that has every metric: its worker computes on a device that holds a part of the experts."""
    expert, _ = expert_and_dense_bytes(pack)
    return ("--device", f"emulated:vram={12 * expert},link=2GB/s", "--predict", "auto")


def panels():
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    return [p for p in dashboard["panels"] if p["type"] != "row"]


def variables():
    return {v["name"]: v for v in json.loads((FOLDER / "grafana-dashboard.json").read_text())["templating"]["list"]}


def dashboard_queries():
    """[(panel's title, query, legend)], the variables filled in as Grafana does for `All`."""
    return [(p["title"], t["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m"), t["legendFormat"])
            for p in panels()
            for t in p["targets"]]


def alerts():
    """[(name, query)]"""
    text = (FOLDER / "alerts.yml").read_text()
    return re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", text)


def documented():
    """A function that knows whether the documentation has a metric. `_end` after a name stands for that name with
    another end, `name*` for all that begin so."""
    text = "\n".join(page.read_text() for page in sorted((SOURCE / "docs").glob("*.md")))
    names, beginnings = set(re.findall(r"moestro_\w+", text)), tuple(re.findall(r"(moestro_\w+)\*", text))
    for line in text.splitlines():
        last = []
        for word in re.findall(r"`(\w+)[`{]", line):
            if word.startswith("moestro_"):
                last = word.split("_")
            elif word.startswith("_"):
                names.update("_".join(last[:i]) + word for i in range(1, len(last) + 1))
    return lambda name: name in names or name.startswith(beginnings)


def series_of(query):
    """[(metric, [labels that its selector names])]"""
    found = re.findall(r"\b(moestro_\w+|up)\b(?:\{([^}]*)\})?", re.sub(r"\bby \([^)]*\)", "", query))
    return [(name, re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector)) for name, selector in found]


def grouped_by(query):
    return {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}


def matches(query):
    """[(metric, label, value)] of the selectors that want one value."""
    return [(name, label, value)
            for name, selector in re.findall(r"\b(moestro_\w+)\{([^}]*)\}", query)
            for label, value in re.findall(r'(\w+)="([^"]*)"', selector)]
