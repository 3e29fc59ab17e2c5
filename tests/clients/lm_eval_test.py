"""lm-evaluation-harness against the demo model: what it reads off the API is what the API says, for loglikelihood and
for generation."""

import hashlib
import json
import os
import pathlib
import tempfile
import unittest

KEY = "sk-test-of-the-harness"
# Before it is imported: nothing here comes from a hub.
os.environ.update(
    {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OPENAI_API_KEY": KEY})
SCRATCH = tempfile.TemporaryDirectory()
os.environ["HF_HOME"] = SCRATCH.name + "/hf"

import lm_eval  # noqa: E402
from cluster import DEMO, Cluster, main, pack  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

CHOICES = [
    {"text": "Once upon a time there was a", "choices": [" little girl", " xylophone of"], "answer": 0},
    {"text": "The dog ran to the", "choices": [" park", " seventeen"], "answer": 0},
    {"text": "She was very", "choices": [" the", " happy"], "answer": 1},
    {"text": "They went to the", "choices": [" beach and played", " and of"], "answer": 0},
    {"text": "Tom and", "choices": [" his friend", " very"], "answer": 0},
]
BEGINNINGS = [{"text": t} for t in ("Once upon a time", "The little dog", "One day, Tom", "She said")]
TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
target_delimiter: ""
num_fewshot: 0
"""
CHOICE = """output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list:
  - metric: acc
"""
GENERATE = """output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "."
generation_kwargs:
  until: ["."]
  max_gen_toks: 24
  do_sample: false
metric_list:
  - metric: bypass
"""


class Harness(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(SCRATCH.name)
        keys = cls.dir / "keys"
        keys.write_text(f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()} harness\n")
        keys.chmod(0o600)
        cls.cluster = Cluster(pack(DEMO, cls.dir / "pack"), "--name", "demo", "--api-keys", str(keys),
                              "--deterministic").__enter__()
        cls.addClassCleanup(SCRATCH.cleanup)
        cls.addClassCleanup(cls.cluster.__exit__)
        for name, rows, kind in (("demo_choice", CHOICES, CHOICE), ("demo_generate", BEGINNINGS, GENERATE)):
            (cls.dir / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
            (cls.dir / f"{name}.yaml").write_text(TASK.format(name=name, data=cls.dir / f"{name}.jsonl") + kind)

    def evaluate(self, task, **model):
        """The result of a task and its samples, in the order of the documents."""
        arguments = {
            "model": "demo", "base_url": self.cluster.url + "/v1/completions", "tokenizer_backend": "huggingface",
            "tokenizer": str(DEMO), "num_concurrent": 4, "max_retries": 1, "max_length": 512, **model
        }
        found = lm_eval.simple_evaluate(model="local-completions", model_args=arguments, tasks=[task],
                                        bootstrap_iters=0, log_samples=True,
                                        task_manager=TaskManager(include_path=str(self.dir), include_defaults=False))
        return found["results"][task], sorted(found["samples"][task], key=lambda s: s["doc_id"])

    def ask(self, path, body):
        status, answer = self.cluster.request("POST", path, body, {"Authorization": "Bearer " + KEY})
        self.assertEqual(status, 200, answer)
        return answer

    def tokens(self, text):
        return self.ask("/tokenize", {"content": text})["tokens"]

    def score(self, text, continuation):
        """(log-likelihood, whether it is what greedy decoding says) of a continuation, by the server's own
        tokenizer."""
        begin, whole = self.tokens(text), self.tokens(text + continuation)
        self.assertEqual(whole[:len(begin)], begin, "the border of the texts is one of tokens")
        scored = self.ask("/v1/completions",
                          {"prompt": whole, "echo": True, "max_tokens": 0, "logprobs": 1})["choices"][0]["logprobs"]
        logprobs, top = scored["token_logprobs"][len(begin):], scored["top_logprobs"][len(begin):]
        return sum(logprobs), all(p >= max(t.values()) for p, t in zip(logprobs, top))

    def check_choices(self, **model):
        result, samples = self.evaluate("demo_choice", **model)
        right = 0
        for row, sample in zip(CHOICES, samples):
            wanted = [self.score(row["text"], c) for c in row["choices"]]
            got = [r[0] if isinstance(r[0], (list, tuple)) else r for r in sample["resps"]]
            for (logprob, greedy), seen in zip(wanted, got):
                self.assertAlmostEqual(float(seen[0]), logprob, places=3)
                self.assertEqual(str(seen[1]), str(greedy))
            right += max(range(len(wanted)), key=lambda i: wanted[i][0]) == row["answer"]
        self.assertAlmostEqual(result["acc,none"], right / len(CHOICES))
        self.assertIn(right, range(1, len(CHOICES)), "not all of one kind")

    def test_loglikelihood_of_tokens(self):
        self.check_choices()

    def test_loglikelihood_of_texts_in_batches(self):
        self.check_choices(tokenized_requests=False, num_concurrent=1, batch_size=4)

    def test_generation(self):
        _, samples = self.evaluate("demo_generate")
        for row, sample in zip(BEGINNINGS, samples):
            wanted = self.ask(
                "/v1/completions",
                {"prompt": row["text"], "max_tokens": 24, "temperature": 0, "stop": ["."]})["choices"][0]["text"]
            self.assertEqual(sample["resps"][0][0], wanted)
            self.assertNotIn(".", wanted)


if __name__ == "__main__":
    main()
