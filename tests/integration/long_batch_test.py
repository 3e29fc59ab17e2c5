"""A long file: what it costs the orchestrator in memory, and interactive requests in time to first token.
MOESTRO_LONG_LINES (100000, say), _SECONDS and _TOKENS make it longer. Prints both; the batch is cancelled when the time
is over, so that its rest is written as well."""

import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

from batch_box import BatchTest, line
from cluster import Cluster, main

LINES = int(os.environ.get("MOESTRO_LONG_LINES", "10000"))
SECONDS = float(os.environ.get("MOESTRO_LONG_SECONDS", "8"))
TOKENS = int(os.environ.get("MOESTRO_LONG_TOKENS", "16"))
STATE = os.environ.get("MOESTRO_LONG_STATE", "")  # redis://... of one that is there; else SQLite
# What may grow with the file: a digest of each custom_id while lines are checked, and a bit for each line.
KIB_MAX = 32 * 1024 + LINES * 200 // 1024
PADDING = "and so the story goes on " * 20


class Memory(threading.Thread):
    """The orchestrator's resident memory, looked at again and again."""

    def __init__(self, pid):
        super().__init__()
        self.status = pathlib.Path(f"/proc/{pid}/status")
        self.before = self.kib()
        self.most = self.before
        self.ended = threading.Event()

    def kib(self):
        return int(self.status.read_text().split("VmRSS:")[1].split()[0])

    def run(self):
        while not self.ended.wait(0.02):
            self.most = max(self.most, self.kib())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


class LongBatch(BatchTest):
    def first_token_ms(self, cluster):
        begin = time.monotonic()
        events = cluster.stream("/v1/completions",
                                {"prompt": "Once", "max_tokens": 1, "temperature": 0, "ignore_eos": True})
        next(events)
        elapsed = (time.monotonic() - begin) * 1000
        for _ in events:
            pass
        return elapsed

    def upload_file(self, cluster, path):
        """As a client that reads the file in pieces; http.client sends an open file so."""
        head = (
            '--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--XX\r\nContent-Disposition: '
            'form-data; name="file"; '
            'filename="in.jsonl"\r\n\r\n').encode()
        tail = b"\r\n--XX--\r\n"
        body = tempfile.TemporaryFile()
        body.write(head + path.read_bytes() + tail)
        size = body.tell()
        body.seek(0)
        connection = cluster.connect()
        connection.request("POST", "/v1/files", body,
                           {"Content-Type": "multipart/form-data; boundary=XX", "Content-Length": str(size)})
        response = connection.getresponse()
        answer = response.read().decode()
        connection.close()
        body.close()
        self.assertEqual(response.status, 200, answer)
        return answer.split('"id":"')[1].split('"')[0], size

    def download_lines(self, cluster, file):
        if file is None:
            return 0
        connection = cluster.connect()
        connection.request("GET", f"/v1/files/{file}/content")
        response = connection.getresponse()
        lines = sum(1 for _ in response)
        connection.close()
        return lines

    def test_memory_is_bounded_and_interactive_requests_go_first(self):
        source = pathlib.Path(self.dir.name) / "long.jsonl"
        with open(source, "w") as out:
            for i in range(LINES):
                one = line(i, tokens=TOKENS)
                one["body"]["user"] = PADDING  # bytes that would show if lines were kept
                out.write(json.dumps(one) + "\n")
        state = STATE or f"sqlite:{self.dir.name}/long/state.db"
        with Cluster(self.pack, "--state", state, "--file-max", "4GiB") as cluster:
            idle = [self.first_token_ms(cluster) for _ in range(20)]
            with Memory(cluster.children("moestro-orchestrator")[0]) as memory:
                file, size = self.upload_file(cluster, source)
                uploaded = memory.most
                status, batch = self.create(cluster, file)
                self.assertEqual(status, 200, batch)
                beside, end = [], time.monotonic() + SECONDS
                while time.monotonic() < end or self.completed(cluster, batch["id"]) == 0:
                    beside.append(self.first_token_ms(cluster))
                status_now = self.look(cluster, batch["id"])
                if status_now["status"] != "completed":
                    cluster.request("POST", f"/v1/batches/{batch['id']}/cancel")
                over = self.wait_over(cluster, batch["id"], 240)
                lines = self.download_lines(cluster, over["output_file_id"]) + self.download_lines(
                    cluster, over["error_file_id"])
            grown = memory.most - memory.before
            print(
                f"{LINES} lines, {size >> 20} MiB: resident memory {memory.before >> 10} MiB before, at most "
                f"{uploaded >> 10} MiB in the upload and {memory.most >> 10} MiB in all; "
                f"{over['request_counts']['completed']} lines done in {SECONDS:.0f} s; time to first token "
                f"{statistics.median(idle):.1f} ms idle, beside the batch "
                f"{statistics.median(beside):.1f} ms (median of {len(beside)}), "
                f"{sorted(beside)[int(len(beside) * 0.99)]:.1f} ms (p99)",
                file=sys.stderr)
            self.assertEqual(lines, LINES)
            self.assertLess(grown, KIB_MAX, "memory has grown with the file")
            self.assertGreaterEqual(len(beside), 5)
            self.assertLess(statistics.median(beside), 2000, "interactive requests wait for the batch")


if __name__ == "__main__":
    main()
