"""Serves the real page, and figures that a test sets."""

import copy
import http.server
import json
import threading


def histogram(*counts):
    return {"bounds": [0.01, 0.1, 1], "counts": list(counts), "sum": 1.0, "count": sum(counts)}


def worker(name, **more):
    return {
        "name": name, "model": "demo", "device": "cpu", "state": "busy", "last_heard_s": 0.1, "plans": 100,
        "plans_in_flight": 1, "step_seconds": 2.0, "stall_seconds": 0.5, "last_step_s": 0.025, "expert_hits": 90,
        "expert_misses": 10, "kv_blocks": 64, "device_memory": None, **more
    }


def figures():
    """A status as the server gives it: serving, nothing done yet."""
    return copy.deepcopy({
        "model": "demo", "uptime_s": 100.0, "state": "serving", "problems": [],
        "requests": {"running": 3, "ended": {"ok": 7, "error": 1, "cancelled": 2, "refused": 4}},
        "latency": {"ttft_s": histogram(0, 0, 0, 0), "tpot_s": histogram(0, 0, 0, 0)}, "sequences": {
            "waiting": 5, "waiting_of_batches": 3, "running": 4, "max": 4096, "preemptions": 9, "quarantined": 1
        }, "tokens": {"prompt": 1000, "generated": 2000,
                      "prefix_cached": 0}, "kv_blocks": {"used": 10, "prefixes": 20, "total": 100},
        "steps": {"count": 100, "seconds": 2.0, "stall_seconds": 0.5, "duration_s": histogram(0, 0, 0, 0)}, "tiers": {
            "dram": {
                "hits": 900, "misses": 100, "hit_rate": 0.9, "fetched_bytes": 1 << 20, "capacity_bytes": 4 << 30,
                "used_bytes": 3 << 30, "resident_bytes": 2 << 30, "late": 6, "prefetched": 50, "prefetched_used": 40,
                "prefetched_wasted": 3, "prefetched_wasted_bytes": 3 << 20, "evictions": 17
            }, "nvme": {"used_bytes": 8 << 30, "read_bytes": 5 << 30, "reads": 700, "retries": 0}
        }, "store": {
            "policy": "lfru", "reader": "io_uring", "read_bytes": 5 << 30, "warm_start_running": False,
            "warm_start_bytes": 0, "warm_start_there_bytes": 0, "models": [{
                "name": "demo", "pack_bytes": 8 << 30, "used_bytes": 3 << 30, "experts": 64, "resident_experts": 48,
                "layers": 16, "streamed_layers": 0, "streamed_bytes": 0
            }], "drives": [{
                "path": "/packs", "read_bytes": 5 << 30, "retries": 2, "bytes_per_s_at_start": 2 << 30,
                "utilisation": 0.25
            }], "queues": {
                "demand": {"waiting": 2, "reading": 1}, "prefetch": {"waiting": 0, "reading": 0},
                "scrub": {"waiting": 0, "reading": 0}
            }
        }, "workers": [worker("worker-0"), worker("worker-1", state="idle", plans_in_flight=0)], "workers_lost": 1,
        "worker_restarts": 1, "nonfinite_sequences": 0, "capacity_dropped": 0, "batches": {
            "by_status": {"in_progress": 1, "completed": 2, "failed": 0}, "stalled": None,
            "under_way": [{"id": "batch_0123", "status": "in_progress", "total": 200, "completed": 50,
                           "failed": 2}], "lines": {"completed": 250, "failed": 2, "in_flight": 8, "retries": 1}
        }, "experts": {"layers": 2, "experts": 4, "half_life_s": 60, "shares": [[0.1, 0.4, 0.25, 0.25], [0, 0, 1, 0]]}
    })


def on_devices():
    """The same of workers on devices with a memory of their own."""
    told = figures()
    told["tiers"]["device"] = {
        "workers": 2, "slots": 64, "experts": 48, "capacity_bytes": 4 << 30, "used_bytes": 3 << 30,
        "resident_bytes": 3 << 30, "hits": 900, "misses": 300, "late": 44, "hit_rate": 0.75, "evictions": 99,
        "prefetched": 50, "prefetched_used": 40, "prefetched_wasted": 3, "prefetched_wasted_bytes": 3 << 20,
        "moved_bytes": 5 << 30, "link_busy_seconds": 10.0, "step_seconds": 40.0, "stall_seconds": 8.0,
        "host_experts": 1200, "host_rows": 1800, "rewinds": 7,
        "recent": {"uses": 4096, "realised": 0.84, "lru": 0.71, "belady": 0.88}, "layers": {
            "hits": [600, 300], "misses": [100, 200], "late": [40, 4], "evictions": [60, 39], "prefetched": [30, 20],
            "prefetched_used": [25, 15], "prefetched_wasted": [2, 1]
        }
    }
    return told


MEMBERS = ("uptime_s", "tokens.generated", "tokens.prompt", "requests.running", "sequences.waiting", "tiers.dram.hits",
           "tiers.dram.misses", "tiers.device.hits", "tiers.device.misses", "store.read_bytes", "steps.prompts",
           "steps.decoding", "latency.ttft_s.counts", "latency.tpot_s.counts", "steps.duration_s.counts")


def member(status, path):
    for name in path.split("."):
        status = status.get(name) if isinstance(status, dict) else None
    return status


def with_history(told, seconds, tokens_per_s):
    """The same as the last of so many seconds, in which tokens were written at an even rate."""
    samples = []
    for back in range(seconds, 0, -1):
        then = copy.deepcopy(told)
        then["uptime_s"] -= back
        then["tokens"]["generated"] -= back * tokens_per_s
        samples.append([member(then, path) for path in MEMBERS])
    return {**told, "history": {"members": list(MEMBERS), "samples": samples}}


class FakeServer:
    """A context manager. `answer` is (status, object), or a function of the request's headers; after close_port()
    nobody answers until open_port()."""

    def __init__(self, html, headers):
        self.html, self.headers, self.answer = html, headers, (200, figures())
        self.port, self.server = 0, None

    def __enter__(self):
        self.open_port()
        return self

    def __exit__(self, *_):
        if self.server:
            self.close_port()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def open_port(self):
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path == "/":
                    return self.send(200, fake.html, fake.headers)
                status, body = fake.answer(self.headers) if callable(fake.answer) else fake.answer
                asked = self.path.partition("?")[2].split("&")  # as the server does
                body = {name: value for name, value in body.items()
                        if name not in ("experts", "history") or f"{name}=1" in asked}
                self.send(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

            def send(self, status, body, headers):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        class Server(http.server.ThreadingHTTPServer):
            allow_reuse_address, daemon_threads = True, True

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close_port(self):
        self.server.shutdown()
        self.server.server_close()
        self.server = None
