"""Interactive requests that overtake the long steps of a batch: the same tokens, also when a program is killed
meanwhile."""

import os
import signal
import threading
import time

from batch_box import BatchTest, line
from cluster import Cluster, expert_and_dense_bytes, main

LINES = 60
HOST_ATTENDS = ("--kv-home", "host", "--context", "128", "--kv-ring-tokens", "384")
PROMPTS = ["The price of a bushel of wheat", "def parse(self, text):", "Mix the flour with"]


class Overtaking(BatchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expert, _ = expert_and_dense_bytes(cls.pack)
        with Cluster(cls.pack, "--deterministic") as cluster:
            cls.alone = {prompt: cls.ask(cluster, prompt) for prompt in PROMPTS}
            cls.lines = cls().run_batch(cluster)

    def options(self, *more):
        """Steps of the batch last much longer than the target."""
        return ("--deterministic", "--tpot-target", "20ms", "--device",
                f"emulated:vram={32 * self.expert},link=10MB/s", *more)

    @staticmethod
    def ask(cluster, prompt):
        return cluster.complete(prompt, max_tokens=10, temperature=0, ignore_eos=True)["choices"][0]["text"]

    def run_batch(self, cluster, meanwhile=lambda: None):
        """What the lines say; `meanwhile` runs when their first steps do."""
        batch = self.submit(cluster, [line(i, tokens=6) for i in range(LINES)])
        meanwhile()
        over = self.wait_over(cluster, batch)
        self.assertEqual(over["request_counts"]["completed"], LINES, over)
        return {one["custom_id"]: one["response"]["body"]["choices"][0]["text"]
                for one in self.results(cluster, over)}

    def steps(self, cluster):
        return cluster.request("GET", "/v1/moestro/status")[1]["steps"]

    def until_overtaken(self, cluster, then=lambda: None):
        """Asks, and expects what is said without a batch; `then` is called once when a step has been overtaken."""
        told = threading.Event()

        def watch():
            while not told.is_set():
                if self.steps(cluster)["parks"] > 0:
                    then()
                    return
                time.sleep(0.02)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            time.sleep(0.3)
            for prompt in PROMPTS:
                self.assertEqual(self.ask(cluster, prompt), self.alone[prompt])
        finally:
            told.set()
            watcher.join()

    def test_tokens_are_the_same_and_the_breaks_are_counted(self):
        for schedule, more in (("layerwise", ()), ("expert-pipeline", ()), ("cgo", HOST_ATTENDS)):
            with Cluster(self.pack, *self.options("--schedule", schedule, *more)) as cluster:
                said = self.run_batch(cluster, lambda: self.until_overtaken(cluster))
                steps = self.steps(cluster)
                metrics = cluster.request("GET", "/metrics")[1]
            self.assertEqual(said, self.lines, schedule)
            self.assertGreater(steps["parks"], 0, schedule)
            self.assertGreater(steps["parked_seconds"], 0, schedule)
            self.assertIn(f"moestro_step_parks_total {steps['parks']}", metrics)

    def test_not_if_it_is_turned_off(self):
        with Cluster(self.pack, *self.options("--no-overtaking")) as cluster:
            said = self.run_batch(cluster, lambda: self.until_overtaken(cluster))
            self.assertEqual(self.steps(cluster)["parks"], 0)
        self.assertEqual(said, self.lines)

    def test_a_program_that_is_killed_meanwhile_changes_no_token(self):
        cgo = ("--schedule", "cgo", *HOST_ATTENDS)
        for program, more in (("moestro-worker", ()), ("moestro-store", ()), ("moestro-worker", cgo),
                              ("moestro-store", cgo)):
            with Cluster(self.pack, *self.options(*more)) as cluster:
                killed = []

                def kill():
                    killed.extend(cluster.children(program))
                    os.kill(killed[0], signal.SIGKILL)

                said = self.run_batch(cluster, lambda: self.until_overtaken(cluster, kill))
                self.assertEqual(len(killed), 1, (program, more))
            self.assertEqual(said, self.lines, (program, more))


if __name__ == "__main__":
    main()
