"""Faults on real processes: what is killed comes back, what was being answered is answered with the same tokens,
nothing is repeated or lost."""

import json
import os
import pathlib
import signal

from cluster import Cluster, DemoTest, expert_and_dense_bytes, main, moestro, pack

PROMPTS = [
    "Once upon a time", "The price of a bushel of wheat", "def parse(self, text):", "Mix the flour with",
    "She had 12 apples and", "KING HENRY:", "The nature of virtue is", "The city was founded in"
]


class Faults(DemoTest):
    def test_a_killed_worker_loses_and_repeats_nothing(self):
        with Cluster(self.pack, "--workers", "2", "--deterministic") as cluster:
            calm = self.run_streams(cluster, PROMPTS, 48)
            victim = cluster.children("moestro-worker")[0]
            stormy = self.run_streams(cluster, PROMPTS, 48, lambda: os.kill(victim, signal.SIGKILL))
            self.assertEqual(stormy, calm)
            cluster.wait_until(lambda: len(cluster.children("moestro-worker")) == 2, what="a second worker")

    def test_a_worker_that_is_told_to_stop_hands_its_work_to_the_other_at_once(self):
        with Cluster(self.pack, "--workers", "2", "--deterministic") as cluster:
            calm = self.run_streams(cluster, PROMPTS, 48)
            log = pathlib.Path(cluster.run_dir, "logs", "orchestrator.log")

            def stop_one():
                os.kill(cluster.children("moestro-worker")[0], signal.SIGTERM)

            self.assertEqual(self.run_streams(cluster, PROMPTS, 48, stop_one), calm)
            cluster.wait_until(lambda: len(cluster.children("moestro-worker")) == 2, what="a second worker")
            status = cluster.request("GET", "/v1/moestro/status")[1]
            self.assertEqual((status["workers_lost"], status["worker_restarts"]), (0, 0), log.read_text())

    def test_a_box_whose_programs_are_told_to_stop_together_answers_what_has_begun(self):
        """As Docker stops it."""
        with Cluster(self.pack, "--workers", "2", "--deterministic") as cluster:
            calm = self.run_streams(cluster, PROMPTS, 48)

            def stop_all():
                for program in ("moestro-worker", "moestro-orchestrator"):
                    for one in cluster.children(program):
                        os.kill(one, signal.SIGTERM)

            self.assertEqual(self.run_streams(cluster, PROMPTS, 48, stop_all), calm)
            log = pathlib.Path(cluster.run_dir, "logs", "orchestrator.log").read_text()
            self.assertIn("no other can go on with its requests", log)

    def test_the_only_worker_killed_comes_back_and_goes_on(self):
        with Cluster(self.pack, "--workers", "1", "--deterministic") as cluster:
            calm = self.run_streams(cluster, PROMPTS, 48)
            victim = cluster.children("moestro-worker")[0]
            stormy = self.run_streams(cluster, PROMPTS, 48, lambda: os.kill(victim, signal.SIGKILL))
            self.assertEqual(stormy, calm)

    def test_a_worker_with_an_emulated_device_and_the_store_are_killed(self):
        """Copies are under way from the arena of a store that dies, and of a worker that does."""
        with Cluster(self.pack, "--deterministic") as cluster:
            calm = self.run_streams(cluster, PROMPTS, 48)
        with Cluster(self.pack, "--deterministic", "--device", "emulated:vram=2M,link=300MB/s", "--predict",
                     "auto") as cluster:
            for program in ("moestro-store", "moestro-worker"):
                victim = cluster.children(program)[0]
                self.assertEqual(self.run_streams(cluster, PROMPTS, 48, lambda: os.kill(victim, signal.SIGKILL)), calm,
                                 program)

    def test_a_store_and_a_worker_are_killed_while_experts_are_read_ahead(self):
        """Two workers have told the store what they will need, which it reads when it, or one of them, dies."""
        with Cluster(self.pack, "--deterministic") as cluster:
            calm = self.run_streams(cluster, PROMPTS, 48)
        expert, dense = expert_and_dense_bytes(self.pack)
        with Cluster(self.pack, "--deterministic", "--workers", "2", "--dram", str(dense + 24 * expert), "--predict",
                     "auto") as cluster:
            for program in ("moestro-store", "moestro-worker", "moestro-store"):
                victim = cluster.children(program)[0]
                self.assertEqual(self.run_streams(cluster, PROMPTS, 48, lambda: os.kill(victim, signal.SIGKILL)), calm,
                                 program)
                cluster.wait_until(lambda: len(cluster.children(program)) == (1 if program == "moestro-store" else 2),
                                   what="its successor")

    def test_a_request_that_waits_for_a_worker_in_vain_is_told(self):
        with Cluster(self.pack, "--worker-wait", "1s") as cluster:
            self.assertEqual(cluster.request("GET", "/v1/models/pack")[0], 200)
            worker = cluster.children("moestro-worker")[0]
            os.kill(worker, signal.SIGSTOP)
            try:
                status, answer = cluster.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 4})
                self.assertEqual(status, 503, answer)
                self.assertIn("no worker has been there for", answer["error"]["message"])
                self.assertEqual(cluster.request("GET", "/health")[0], 503)
            finally:
                os.kill(worker, signal.SIGCONT)
            cluster.wait_until(lambda: cluster.request("GET", "/health")[0] == 200, what="the worker's return")
            self.assertEqual(cluster.complete("a", max_tokens=4, ignore_eos=True)["usage"]["completion_tokens"], 4)

    def test_ctrl_c_lets_streams_end(self):
        with Cluster(self.pack) as cluster:
            events = cluster.stream("/v1/completions",
                                    {"prompt": "a", "max_tokens": 200, "ignore_eos": True, "return_token_ids": True})
            ids = next(events)["choices"][0]["token_ids"]
            cluster.process.send_signal(signal.SIGINT)
            for event in events:
                self.assertNotIn("error", event)
                ids += event["choices"][0].get("token_ids") or []
            self.assertEqual(len(ids), 200)
            self.assertEqual(cluster.process.wait(30), 0)

    def test_what_outlasts_the_drain_is_told(self):
        with Cluster(self.pack, "--drain", "0s") as cluster:
            worker = cluster.children("moestro-worker")[0]
            events = cluster.stream("/v1/completions", {"prompt": "a", "max_tokens": 400, "ignore_eos": True})
            next(events)
            os.kill(worker, signal.SIGSTOP)  # it would be done too soon
            try:
                cluster.process.send_signal(signal.SIGINT)
                last = list(events)[-1]
                self.assertIn("shutting down", last["error"]["message"])
            finally:
                os.kill(worker, signal.SIGCONT)

    def test_a_killed_store_is_replaced_and_answers_are_the_same(self):
        with Cluster(self.pack, "--workers", "2", "--deterministic") as cluster:
            calm = self.run_streams(cluster, PROMPTS, 48)
            store = cluster.children("moestro-store")[0]
            stormy = self.run_streams(cluster, PROMPTS, 48, lambda: os.kill(store, signal.SIGKILL))
            self.assertEqual(stormy, calm)

    def test_a_killed_orchestrator_comes_back(self):
        with Cluster(self.pack, "--deterministic") as cluster:
            before = cluster.complete(PROMPTS[0], max_tokens=16, temperature=0)["choices"][0]["text"]
            os.kill(cluster.children("moestro-orchestrator")[0], signal.SIGKILL)

            def serves():
                try:
                    return cluster.request("GET", "/health")[0] == 200
                except OSError:
                    return False

            cluster.wait_until(lambda: not serves(), 5, "the break")
            cluster.wait_until(serves, what="health")
            self.assertEqual(cluster.complete(PROMPTS[0], max_tokens=16, temperature=0)["choices"][0]["text"], before)

    def test_a_client_that_leaves_does_not_keep_its_place(self):
        with Cluster(self.pack) as cluster:
            connection = cluster.connect()
            connection.request("POST", "/v1/completions",
                               json.dumps({"prompt": "a", "max_tokens": 400, "stream": True, "ignore_eos": True}))
            connection.getresponse().readline()
            connection.sock.close()
            connection.close()

            def idle():
                status, text = cluster.request("GET", "/v1/moestro/status")
                return status == 200 and text["requests"]["running"] == 0

            cluster.wait_until(idle, 10, "the end of the abandoned request")

    def test_a_batch_file_resumes_where_it_stopped(self):
        lines = [{"custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions",
                  "body": {"prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": 8, "temperature": 0}} for i in range(30)]
        source, result = self.dir.name + "/in.jsonl", self.dir.name + "/out.jsonl"
        with open(source, "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        with Cluster(self.pack) as cluster:
            moestro("batch", "run", source, "-o", result, "--url", cluster.url)
            whole = pathlib.Path(result).read_text().splitlines(keepends=True)
            self.assertEqual(len(whole), 30)
            with open(result, "w") as f:  # ten whole lines and a torn one
                f.writelines(whole[:10])
                f.write(whole[10][: len(whole[10]) // 2])
            moestro("batch", "run", source, "-o", result, "--url", cluster.url)
        answers = [json.loads(line) for line in pathlib.Path(result).read_text().splitlines()]
        self.assertEqual(sorted(a["custom_id"] for a in answers), sorted(line["custom_id"] for line in lines))
        texts = {a["custom_id"]: a["response"]["body"]["choices"][0]["text"] for a in answers}
        for line in whole:
            line = json.loads(line)
            self.assertEqual(texts[line["custom_id"]], line["response"]["body"]["choices"][0]["text"])

    def test_ctrl_c_stops_everything(self):
        cluster = Cluster(self.pack).__enter__()
        programs = [
            p for name in ("moestro-store", "moestro-worker", "moestro-orchestrator") for p in cluster.children(name)
        ]
        self.assertEqual(len(programs), 3)
        cluster.__exit__()
        self.assertEqual(cluster.exit_code, 0, cluster.log_text)
        for pid in programs:
            self.assertFalse(os.path.exists(f"/proc/{pid}"))


if __name__ == "__main__":
    main()
