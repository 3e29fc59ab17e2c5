#!/usr/bin/env python3
"""Writes cases.json beside this file: templates, what they are rendered with, and what Python's Jinja2 makes of them.

Needs jinja2 (3.1 or newer). The environment is the one that transformers renders chat templates in. Templates stand in
templates.txt: one to a line, a pilcrow for a newline.   make_cases.py
"""
import datetime
import json
import pathlib

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = 1700049600  # noon in UTC, so that the day is the same in most time zones

MESSAGES = [
    {"role": "system", "content": "You are  helpful.\n"},
    {"role": "user", "content": ' Hi <b>"there"</b> é你好 '},
    {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {
        "name": "f", "arguments": {"a": 1, "b": [1.5, None, True], "c": "x'y\"z"}}}]},
    {"role": "tool", "content": "42"},
    {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nok"},
]
EXTRA = {
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True,
    "tools": [{"type": "function", "function": {"name": "f", "description": "d é", "parameters": {
        "type": "object", "properties": {"z": {"type": "number", "default": 1e-5}, "a": {"type": "string"}}, "required": []}}}],
    "d": {"b": 2, "a": 1, "C": {"x": []}}, "n": -7, "f": 2.5, "big": 1e22, "s": "Hello World foo-bar it's",
    "l": [3, 1, 2, 1], "e": [], "u8": "añ😀b",
}


class Generation(Extension):
    """{% generation %} marks what an assistant said; in rendering it does nothing."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    cases = []
    for line in (HERE / "templates.txt").read_text(encoding="utf-8").split("\n"):
        if not line:
            continue
        case = {"template": line.replace("¶", "\n")}
        try:
            case["text"] = env.from_string(case["template"]).render(messages=MESSAGES, **EXTRA)
        except Raised as raised:
            case["raises"] = str(raised)
        except Exception as error:  # whatever Jinja refuses, in whatever way
            case["fails"] = type(error).__name__
        cases.append(case)
    text = json.dumps({"now": NOW, "messages": MESSAGES, "extra": EXTRA, "cases": cases}, ensure_ascii=False, indent=1)
    (HERE / "cases.json").write_text(text + "\n", encoding="utf-8")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
