"""Requests without end, every answer compared with the one that the same prompt got before any fault."""

import concurrent.futures
import threading
import time

PROMPTS = [
    "Once upon a time", "The price of a bushel of wheat", "def parse(self, text):", "Mix the flour with",
    "She had 12 apples and", "KING HENRY:", "The nature of virtue is", "The city was founded in", "Dear Sir,",
    "In the beginning", "Let x be a", "The king said"
]
TOKENS = 24


def answer(box, prompt, tokens=TOKENS):
    """The token ids of a greedy completion, streamed, so that a token that is lost or sent twice shows."""
    ids = []
    for event in box.stream(
            "/v1/completions",
        {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}):
        if "error" in event:
            raise AssertionError(event["error"]["message"])
        for choice in event["choices"]:
            ids += choice.get("token_ids") or []
    return ids


def calm_answers(box):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = dict(zip(PROMPTS, pool.map(lambda p: answer(box, p), PROMPTS)))
    assert all(len(ids) == TOKENS for ids in answers.values()), answers
    return answers


class Load:
    """`clients` threads that ask until stop(). `allowed(message)`: whether a request may fail with this."""

    def __init__(self, box, expected, clients=6, allowed=lambda message: False):
        self.box, self.expected, self.allowed = box, expected, allowed
        self.answers, self.failed, self.wrong, self.stopping = 0, 0, [], threading.Event()
        self.asking = {}  # thread -> what it waits for, since when
        self.threads = [threading.Thread(target=self.ask, args=(i,), daemon=True) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self, client):
        at = client * 5
        while not self.stopping.is_set():
            prompt = PROMPTS[at % len(PROMPTS)]
            at += 1
            self.asking[client] = (prompt, time.monotonic())
            try:
                ids = answer(self.box, prompt)
                if ids not in self.right(prompt):
                    self.wrong.append(f"'{prompt}': {ids}, not of {self.right(prompt)}")
                self.answers += 1
            except Exception as e:  # pylint: disable=broad-except  (a thread's failure must reach the test)
                if not self.allowed(str(e)):
                    self.wrong.append(f"'{prompt}': {e!r}")
                self.failed += 1
            del self.asking[client]

    def right(self, prompt):
        """The answers that are right."""
        return [self.expected[prompt]]

    def stop(self, seconds=90):
        """Waits for the answers that are under way. Says what hangs, if something does."""
        self.stopping.set()
        end = time.monotonic() + seconds
        while any(t.is_alive() for t in self.threads) and time.monotonic() < end:
            self.box.revive()
            time.sleep(0.01)
        hanging = [f"'{prompt}' for {time.monotonic() - since:.0f} s" for prompt, since in list(self.asking.values())]
        if any(t.is_alive() for t in self.threads):
            self.wrong.append("hangs: " + ", ".join(hanging))
        return self.wrong
