#!/usr/bin/env python3
"""Writes models/demo/reference.json: what transformers in float32, over the demo model's bf16 weights, says of twenty
prompts.

{"transformers": version, "prompts": [{"text", "ids", "logprobs": [of ids[1:]], "greedy": {"ids": [32], "logprobs":
[32]}}]} Prompts whose greedy continuation has a choice closer than MARGIN_MIN to its runner-up are passed over:
rounding could turn it. Run it with the environment of make_fixtures.py, after every change of the weights.
"""

import json
import pathlib

MARGIN_MIN = 1e-3
GREEDY_TOKENS = 32
PROMPTS_WANTED = 20
DEMO = pathlib.Path(__file__).resolve().parents[1] / "models" / "demo"

CANDIDATES = [
    "Once upon a time there was a king who",
    "It was a cold and windy evening when the stranger knocked at the door.",
    "\"My dear Watson,\" said he,",
    "She looked at him for a long time, and then",
    "The ship sailed from the harbour at",
    "The price of labour in every country depends upon",
    "Virtue, then, is a state of character concerned with choice,",
    "The nature of the soul is",
    "Every man has a right to",
    "When the demand for corn rises,",
    "KING RICHARD:\nMy lord,",
    "ROMEO:\nO, speak again,",
    "Mix the flour with the butter and",
    "Preheat the oven to 350 degrees. In a large bowl,",
    "Add the onions and cook until",
    "The film was released in the United States on",
    "The city was founded in 1845 and",
    "He played for the team in the first season and",
    "def __init__(self, name, value=None):\n        self.name = name\n",
    "import os\nimport sys\n\nclass Reader:\n    def read(self, path):\n        ",
    "    try:\n        return int(value)\n    except ValueError:\n        raise",
    "Tom has 12 apples. He gives 5 of them to Anna. How many apples",
    "A book costs 8 dollars. How much do 4 books cost?",
    "John runs 3 miles every day. In a week he",
    "Hello, how are you?",
    "What is your favourite book?",
    "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n",
    "café naïve – “quoted” … 東京 🙂",
    "for i in range(10):\n    print(i)\n",
    "The Project",
]


def main():
    import torch
    import transformers

    torch.set_num_threads(1)  # a tiny model: more threads only wait for each other
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO)
    net = transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32,
                                                            attn_implementation="eager").eval()
    chosen = []
    for text in CANDIDATES:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            out = net(torch.tensor([ids]), use_cache=True)
            logits = out.logits[0].double()
            logprobs = torch.log_softmax(logits, -1)
            scores = [round(float(logprobs[i, ids[i + 1]]), 7) for i in range(len(ids) - 1)]
            greedy, greedy_scores, margin, last, cache = [], [], 1.0, logits[-1], out.past_key_values
            for _ in range(GREEDY_TOKENS):
                best = last.topk(2).values
                margin = min(margin, float(best[0] - best[1]))
                greedy.append(int(last.argmax()))
                greedy_scores.append(round(float(torch.log_softmax(last, -1)[greedy[-1]]), 7))
                out = net(torch.tensor([[greedy[-1]]]), past_key_values=cache, use_cache=True)
                last = out.logits[0, -1].double()
        if margin <= MARGIN_MIN:
            print(f"passed over, margin {margin:.1e}: {text!r}")
            continue
        chosen.append(dict(text=text, ids=ids, logprobs=scores, greedy=dict(ids=greedy, logprobs=greedy_scores)))
        if len(chosen) == PROMPTS_WANTED:
            break
    assert len(chosen) == PROMPTS_WANTED, f"only {len(chosen)} prompts have clear margins"
    (DEMO / "reference.json"
    ).write_text(json.dumps(dict(transformers=transformers.__version__, prompts=chosen), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
