"""Batches over HTTP, as tests of them want them."""

import json
import os
import pathlib
import signal

from cluster import DemoTest, moestro

OVER = ("completed", "failed", "cancelled", "expired")


def line(i, tokens=16, **body):
    return {
        "custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions", "body": {
            "prompt": f"Chapter {i}. Once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
            **body
        }
    }


class BatchTest(DemoTest):
    def upload(self, cluster, text):
        form = (
            '--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--XX\r\nContent-Disposition: '
            'form-data; name="file"; '
            f'filename="in.jsonl"\r\n\r\n{text}\r\n--XX--\r\n')
        return cluster.request("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=XX"})

    def create(self, cluster, file, window="24h"):
        return cluster.request("POST", "/v1/batches",
                               {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": window})

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

    def write_input(self, lines, more=""):
        path = self.dir.name + "/in.jsonl"
        with open(path, "w") as file:
            file.writelines(json.dumps(one) + "\n" for one in lines)
            file.write(more)
        return path

    def carry_through(self, cluster):
        """The commands of a batch from its submission to its results."""
        source, output, url = self.write_input([line(i) for i in range(50)],
                                               "nonsense\n"), self.dir.name + "/out.jsonl", ("--url", cluster.url)
        ran = moestro("batch", "submit", source, *url, "--wait", "--json", "--metadata", "who=test", check=False)
        self.assertEqual(ran.returncode, 1, "a line failed")
        self.assertIn("1 of 51 lines failed", ran.stderr)
        submitted = json.loads(ran.stdout)
        self.assertEqual(submitted["status"], "completed")
        self.assertEqual(submitted["request_counts"], {"total": 51, "completed": 50, "failed": 1})
        self.assertEqual(submitted["metadata"], {"who": "test"})
        batch = submitted["id"]
        self.assertIn("completed", moestro("batch", "status", batch, *url).stdout)
        self.assertIn(batch, moestro("batch", "list", *url).stdout)
        moestro("batch", "results", batch, "-o", output, "--errors", output + ".errors", *url)
        self.assertEqual(len(pathlib.Path(output).read_text().splitlines()), 50)
        self.assertEqual(len(pathlib.Path(output + ".errors").read_text().splitlines()), 1)
        refused = moestro("batch", "cancel", batch, *url, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("completed", refused.stderr)
        self.assertEqual(moestro("batch", "status", "batch_none", *url, check=False).returncode, 1)

    def cancel_midway(self, cluster):
        """What was done is in the output, the rest in the error file, each line once."""
        output, url = self.dir.name + "/part.jsonl", ("--url", cluster.url)
        batch = json.loads(
            moestro("batch", "submit", self.write_input([line(i, tokens=150) for i in range(300)]), *url,
                    "--json").stdout)["id"]
        cluster.wait_until(lambda: self.completed(cluster, batch) > 0, 60, "a line that is done")
        early = moestro("batch", "results", batch, "-o", output, *url, check=False)
        self.assertEqual(early.returncode, 1, "it is not over")
        moestro("batch", "cancel", batch, *url)
        results = moestro("batch", "results", batch, "-o", output, "--errors", output + ".errors", "--wait", *url)
        self.assertIn("cancelled", results.stdout)
        done, rest = ([json.loads(one)
                       for one in pathlib.Path(name).read_text().splitlines()]
                      for name in (output, output + ".errors"))
        self.assertGreater(len(done), 0)
        self.assertEqual({one["error"]["code"] for one in rest}, {"batch_cancelled"})
        self.assertEqual(sorted(one["custom_id"] for one in done + rest), sorted(f"line-{i}" for i in range(300)))
