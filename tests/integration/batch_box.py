"""Batches over HTTP, as tests of them want them."""

import json
import os
import signal

from cluster import DemoTest

OVER = ("completed", "failed", "cancelled", "expired")


def line(i, tokens=16, **body):
    return {"custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions",
            "body": {"prompt": f"Chapter {i}. Once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **body}}


class BatchTest(DemoTest):
    def upload(self, cluster, text):
        form = ('--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--XX\r\nContent-Disposition: form-data; name="file"; '
                f'filename="in.jsonl"\r\n\r\n{text}\r\n--XX--\r\n')
        return cluster.request("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=XX"})

    def create(self, cluster, file, window="24h"):
        return cluster.request("POST", "/v1/batches", {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": window})

    def submit(self, cluster, lines, window="24h"):
        status, file = self.upload(cluster, "\n".join(json.dumps(one) for one in lines))
        self.assertEqual(status, 200, file)
        status, batch = self.create(cluster, file["id"], window)
        self.assertEqual(status, 200, batch)
        return batch["id"]

    def look(self, cluster, batch):
        """The batch; None while the orchestrator or the state is away."""
        try:
            status, found = cluster.request("GET", "/v1/batches/" + batch)
            return found if status == 200 else None
        except OSError:
            return None

    def completed(self, cluster, batch):
        return (self.look(cluster, batch) or {}).get("request_counts", {}).get("completed", 0)

    def wait_over(self, cluster, batch, seconds=120):
        seen = {}

        def over():
            seen.update(self.look(cluster, batch) or {})
            return seen.get("status") in OVER

        cluster.wait_until(over, seconds, "the end of the batch")
        return seen

    def results(self, cluster, batch, which="output_file_id"):
        connection = cluster.connect()
        connection.request("GET", f"/v1/files/{batch[which]}/content")
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        self.assertEqual(response.status, 200)
        return [json.loads(one) for one in text.splitlines()]

    def kill_one(self, cluster, program):
        """Kills it at some moment and waits until its successor serves."""
        before = cluster.children(program)
        os.kill(before[0], signal.SIGKILL)

        def back():
            now = cluster.children(program)
            if not now or set(now) & set(before):
                return False
            try:
                return cluster.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
            except OSError:
                return False

        cluster.wait_until(back, 60, f"the successor of {program}")
