"""`moestro store replace` under requests: workers take the new version of the pack one after the other, whatever is
killed meanwhile."""

import os
import signal
import threading
import time

from cluster import DEMO, Cluster, DemoTest, main, moestro, pack

PROMPTS = [
    "Once upon a time", "The price of a bushel of wheat", "def parse(self, text):", "Mix the flour with",
    "She had 12 apples and", "KING HENRY:", "The nature of virtue is", "The city was founded in"
]
TOKENS = 64
OPTIONS = ["--workers", "2", "--deterministic"]
TOLD = "the model's pack was replaced while this request was answered"


class Asking:
    """Asks for all prompts again and again until it is left; whole answers by prompt, and what failed."""

    def __init__(self, cluster):
        self.cluster, self.stopping, self.answers, self.failures = cluster, threading.Event(), [], []
        self.threads = [threading.Thread(target=self.ask, args=(p,)) for p in PROMPTS]

    def ask(self, prompt):
        while not self.stopping.is_set():
            try:
                choice = self.cluster.complete(prompt, max_tokens=TOKENS, temperature=0, ignore_eos=True,
                                               return_token_ids=True)["choices"][0]
                self.answers.append((prompt, choice["token_ids"]))
            except Exception as e:  # pylint: disable=broad-except  (a thread's failure must reach the test)
                self.failures.append(str(e))

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for t in self.threads:
            t.join()


class Rollover(DemoTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.int8 = pack(DEMO, cls.dir.name + "/int8", "--experts", "int8")
        cls.whole = {}
        for version, at in (("before", cls.pack), ("after", cls.int8)):
            with Cluster(at, *OPTIONS) as cluster:
                cls.whole[version] = cls.run_streams(cls(), cluster, PROMPTS, TOKENS)
        assert cls.whole["before"] != cls.whole["after"]

    def replace(self, cluster):
        return moestro("store", "replace", f"pack={self.int8}", "--run-dir", cluster.dir / "run").stdout

    def until_replaced(self, cluster):
        def replaced():
            workers = cluster.request("GET", "/v1/moestro/status")[1]["workers"]
            return len(workers) == 2 and not any(w["outdated"] for w in workers)

        # Until the orchestrator has heard of it, nobody is outdated.
        cluster.wait_until(lambda: "another version of the pack is served" in self.log(cluster), 20, "the news")
        cluster.wait_until(replaced, 60, "two workers of the new version")

    @staticmethod
    def log(cluster):
        return (cluster.dir / "run" / "logs" / "orchestrator.log").read_text()

    def check(self, cluster, asking):
        """Every answer is of one version, from beginning to end; afterwards all are of the new one."""
        self.assertGreater(len(asking.answers), len(PROMPTS))
        for prompt, ids in asking.answers:
            self.assertIn(ids, [self.whole["before"][prompt], self.whole["after"][prompt]], prompt)
        self.assertIsNone(cluster.process.poll(), "up lives")
        self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.whole["after"])

    def test_no_request_fails_and_none_mixes_versions(self):
        with Cluster(self.pack, *OPTIONS) as cluster:
            with Asking(cluster) as asking:
                cluster.wait_until(lambda: len(asking.answers) >= 4)
                self.assertIn("2 workers of the version before", self.replace(cluster))
                self.until_replaced(cluster)
            self.assertEqual(asking.failures, [])
            self.check(cluster, asking)
            self.assertEqual(self.replace(cluster).count("the same version as before"), 1)

    def test_a_worker_is_killed_after_the_pack_was_replaced(self):
        for wait in (0, 0.5, 1.5):
            for victim in (0, 1):
                with self.subTest(wait=wait, victim=victim), Cluster(self.pack, *OPTIONS) as cluster:
                    with Asking(cluster) as asking:
                        cluster.wait_until(lambda: len(asking.answers) >= 4)
                        self.replace(cluster)
                        time.sleep(wait)
                        os.kill(cluster.children("moestro-worker")[victim], signal.SIGKILL)
                        self.until_replaced(cluster)
                    for failure in asking.failures:
                        self.assertIn(TOLD, failure)
                    self.check(cluster, asking)

    def test_the_only_worker_is_replaced_by_itself(self):
        with Cluster(self.pack, "--deterministic") as cluster:
            began = self.run_streams(cluster, PROMPTS, TOKENS, lambda: self.replace(cluster))
            self.assertEqual(began, self.whole["before"], "what has begun ends as it has begun")
            cluster.wait_until(lambda: "attached anew" in self.worker_log(cluster), 30, "the new version")
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.whole["after"])

    @staticmethod
    def worker_log(cluster):
        return "".join(p.read_text() for p in (cluster.dir / "run" / "logs").glob("*worker*.log"))


if __name__ == "__main__":
    main()
