#!/usr/bin/env python3
"""Writes what Python's Jinja2 makes of the chat templates under tests/chat, for tests that need no Python.

  cases.json              of templates.txt: one template to a line, a pilcrow for a newline
  conversations.json      the first conversations of scripts/python/chat_conversations.py
  expected/NAME.json      of models/NAME.jinja: what each of these conversations becomes

  python3 -m venv build/venv-jinja && build/venv-jinja/bin/pip install jinja2==3.1.6
  build/venv-jinja/bin/python scripts/make_chat_cases.py
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "python"))

import chat_conversations
import jinja_reference

HERE = ROOT / "tests" / "chat"
CONVERSATIONS = 24

MESSAGES = [
    {"role": "system", "content": "You are  helpful.\n"},
    {"role": "user", "content": ' Hi <b>"there"</b> é你好 '},
    {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {
        "name": "f", "arguments": {"a": 1, "b": [1.5, None, True], "c": "x'y\"z"}}}]},
    {"role": "tool", "content": "42"},
    {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nok"},
]
EXTRA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_generation_prompt": True,
    "tools": [{
        "type": "function", "function": {
            "name": "f", "description": "d é", "parameters": {
                "type": "object", "properties": {"z": {"type": "number", "default": 1e-5}, "a": {"type": "string"}},
                "required": []
            }
        }
    }],
    "d": {"b": 2, "a": 1, "C": {"x": []}},
    "n": -7,
    "f": 2.5,
    "big": 1e22,
    "s": "Hello World foo-bar it's",
    "l": [3, 1, 2, 1],
    "e": [],
    "u8": "añ😀b",
}


def write(path, value, indent=None):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def outcome(template, messages, extra):
    result = template.render(messages, extra)
    result.pop("why", None)  # in the words of Python
    return result


def main():
    env = jinja_reference.environment()
    cases = []
    for line in (HERE / "templates.txt").read_text(encoding="utf-8").split("\n"):
        source = line.replace("¶", "\n")
        if line:
            cases.append({"template": source, **outcome(jinja_reference.Template(env, source), MESSAGES, EXTRA)})
    write(HERE / "cases.json", {"now": jinja_reference.NOW, "messages": MESSAGES, "extra": EXTRA, "cases": cases},
          indent=1)

    conversations = [chat_conversations.Conversations(1).conversation(n) for n in range(CONVERSATIONS)]
    lines = [{"messages": messages, "extra": extra} for messages, extra in conversations]
    write(HERE / "conversations.json", {"now": jinja_reference.NOW, "conversations": lines}, indent=1)
    models = sorted((HERE / "models").glob("*.jinja"))
    for path in models:
        with open(path, encoding="utf-8", newline="") as f:
            template = jinja_reference.Template(env, f.read())
        write(HERE / "expected" / (path.stem + ".json"), [outcome(template, *c) for c in conversations], indent=0)
    print(f"{len(cases)} cases, {len(models)} templates of models, {len(conversations)} conversations")


if __name__ == "__main__":
    main()
