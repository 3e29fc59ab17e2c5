"""Steps that are sent before the result of the one before them: answers, usage and traces are those of one step at a
time."""

import json
import os
import pathlib
import signal
import threading

from cluster import Cluster, DemoTest, main

PROMPTS = ["Once upon a time", "The price of a bushel of wheat", "def parse(self, text):", "Mix the flour with"]
SCHEMA = {
    "type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}}, "required": ["a", "b"],
    "additionalProperties": False
}
REQUESTS = [
    {"temperature": 0, "max_tokens": 30},
    {"temperature": 0.8, "seed": 7, "max_tokens": 30, "logprobs": 3},
    {"temperature": 0, "max_tokens": 40, "stop": [" the", "\n"]},
    {"temperature": 0.7, "seed": 3, "max_tokens": 24, "presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"temperature": 1, "seed": 5, "n": 3, "max_tokens": 12, "ignore_eos": True},
    {"temperature": 0, "max_tokens": 1},
    {
        "temperature": 0, "max_tokens": 60,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    },
    {"echo": True, "logprobs": 1, "max_tokens": 4, "temperature": 0},
]


def in_threads(calls):
    """The results of calls that run at once, in their order; a failure is raised here."""
    results, failures = [None] * len(calls), []

    def one(i):
        try:
            results[i] = calls[i]()
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return results


class StepsInFlight(DemoTest):
    def answers(self, cluster):
        calls = [lambda p=p, r=r: cluster.complete(p, return_token_ids=True, **r) for p in PROMPTS for r in REQUESTS]
        said = []
        for answer in in_threads(calls):
            usage = {key: answer["usage"][key] for key in ("prompt_tokens", "completion_tokens")}
            said.append((answer["choices"], usage))
        return said

    def streamed(self, cluster, prompt, when=lambda n: None):
        ids = []
        for event in cluster.stream(
                "/v1/completions",
            {"prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": True, "return_token_ids": True}):
            for choice in event["choices"]:
                ids += choice.get("token_ids") or []
            when(len(ids))
        self.assertEqual(len(ids), 60, prompt)
        return ids

    def test_answers_are_the_same_with_one_and_two(self):
        said = []
        for steps in ("1", "2"):
            with Cluster(self.pack, "--deterministic", "--steps-in-flight", steps) as cluster:
                said.append(
                    (self.answers(cluster), in_threads([lambda p=p: self.streamed(cluster, p) for p in PROMPTS])))
        self.assertEqual(said[0], said[1])

    def test_a_worker_killed_with_two_steps_loses_and_repeats_nothing(self):
        with Cluster(self.pack, "--deterministic", "--steps-in-flight", "1") as cluster:
            calm = in_threads([lambda p=p: self.streamed(cluster, p) for p in PROMPTS])
        with Cluster(self.pack, "--deterministic", "--steps-in-flight", "2") as cluster:
            killed = set()

            def kill_at(n):
                for at in (5, 35):
                    if n >= at and at not in killed:
                        killed.add(at)
                        workers = cluster.children("moestro-worker")
                        if workers:
                            os.kill(workers[0], signal.SIGKILL)

            calls = [lambda p=p: self.streamed(cluster, p) for p in PROMPTS[1:]
                    ] + [lambda: self.streamed(cluster, PROMPTS[0], kill_at)]
            stormy = in_threads(calls)
        self.assertEqual(killed, {5, 35})
        self.assertEqual(stormy, calm[1:] + calm[:1])

    def test_a_trace_has_what_the_answer_is_made_of(self):
        for steps in ("1", "2"):
            trace = pathlib.Path(self.dir.name) / f"routes-{steps}.jsonl"
            wanted = []
            with Cluster(self.pack, "--deterministic", "--steps-in-flight", steps, "--trace", trace,
                         "--no-prefix-cache") as cluster:
                for prompt in PROMPTS:
                    for options in ({"max_tokens": 40,
                                     "stop": [" the", "\n",
                                              "e"]}, {"max_tokens": 20}, {"max_tokens": 12, "ignore_eos": True}):
                        usage = cluster.complete(prompt, temperature=0, **options)["usage"]
                        wanted.append(usage["prompt_tokens"] + usage["completion_tokens"] - 1)

                def traced():
                    positions = {}
                    for line in trace.read_text().splitlines():
                        token = json.loads(line)
                        if "r" in token:
                            positions.setdefault(token["r"], []).append(token["t"])
                    return positions

                cluster.wait_until(
                    lambda: len(traced()) == len(wanted) and sum(map(len,
                                                                     traced().values())) >= sum(wanted), 10,
                    "the last lines")
                self.assertEqual([p for _, p in sorted(traced().items())], [list(range(n)) for n in wanted])


if __name__ == "__main__":
    main()
