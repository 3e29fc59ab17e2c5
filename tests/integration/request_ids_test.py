"""Ids of requests in answers and in the logs of orchestrator and worker, and logs as JSON."""

import contextlib
import json
import pathlib
import re
import shutil
import tempfile
import unittest

from cluster import DEMO, Cluster, main, pack
from safetensors_edit import fill_tensors

HUGE_BF16 = b"\x00\x7f"  # 1.7e38: what is routed to an expert of these becomes infinite


def broken_pack(directory):
    """The demo model with the first layer's experts too large for sums: every request fails with a 500."""
    model = pathlib.Path(directory) / "huge"
    shutil.copytree(DEMO, model)
    fill_tensors(model / "model.safetensors", "model.layers.0.mlp.experts.", HUGE_BF16)
    return pack(model, directory + "/bad")


def post(cluster, body, request_id=None):
    """(status, the answer's X-Request-Id, text) of a completion."""
    with contextlib.closing(cluster.connect()) as connection:
        headers = {"Content-Type": "application/json", **({"X-Request-Id": request_id} if request_id else {})}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.headers["X-Request-Id"], response.read().decode()


def lines(cluster, program):
    return (cluster.dir / "run/logs" / f"{program}.log").read_text().splitlines()


class RequestIds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        cls.bad = broken_pack(cls.dir.name)

    def test_a_failure_is_found_in_every_log_by_its_id(self):
        with Cluster(self.bad, "--log-format", "json", "--log-level", "debug") as cluster:
            status, answered, _ = post(cluster, {"prompt": "a", "max_tokens": 2}, "ticket-17")
            self.assertEqual((status, answered), (500, "ticket-17"))
            status, answered, text = post(cluster, {"prompt": "a", "max_tokens": 2, "stream": True}, "ticket-18")
            self.assertEqual((status, answered), (200, "ticket-18"))
            self.assertIn("server_error", text)
            status, own, _ = post(cluster, {"prompt": "a", "max_tokens": -1}, "not an id")
            self.assertEqual(status, 400)
            self.assertRegex(own, "^req-[0-9a-f]{16}$")
            for program in ("orchestrator", "worker-0"):
                wanted = {"ticket-17", "ticket-18"} | ({own} if program == "orchestrator" else set())
                cluster.wait_until(lambda: all(f'"{w}"' in "\n".join(lines(cluster, program)) for w in wanted),
                                   what=f"the ids in {program}'s log")
            logs = {
                program: [json.loads(line) for line in lines(cluster, program)]
                for program in ("store", "worker-0", "orchestrator")
            }
        for program, said in logs.items():
            for line in said:
                self.assertEqual(list(line)[:4], ["time", "level", "program", "message"], program)
                self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

        def about(program, request):
            return [(line["level"], line["message"]) for line in logs[program] if line.get("request_id") == request]
        self.assertRegex(str(about("worker-0", "ticket-17")), r"warning.*sequences failed: .*layer 0")
        self.assertRegex(str(about("orchestrator", "ticket-17")),
                         r"warning.*POST /v1/completions: 500 in [\d.]+ s: .*layer 0")
        self.assertRegex(str(about("orchestrator", "ticket-18")), r"warning.*failed: .*layer 0")
        self.assertRegex(str(about("orchestrator", own)), r"debug.*POST /v1/completions: 400 in")
        self.assertEqual([line for line in logs["store"] if "request_id" in line], [])

    def test_text_has_it_at_the_end_of_the_line(self):
        with Cluster(self.bad) as cluster:
            post(cluster, {"prompt": "a", "max_tokens": 2}, "ticket-19")
            failed = re.compile(r"^\S+ warning moestro-(worker|orchestrator): .* request_id=ticket-19$")
            for program in ("orchestrator", "worker-0"):
                cluster.wait_until(lambda: any(failed.match(line) for line in lines(cluster, program)),
                                   what=f"the line in {program}'s log")
            self.assertFalse(any("debug" in line for line in lines(cluster, "orchestrator")),
                             "who succeeds makes no lines")


if __name__ == "__main__":
    main()
