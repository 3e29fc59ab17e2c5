"""Renders chat templates with Jinja2 in the environment that transformers sets up for them
(utils/chat_template_utils.py).

`from_json` and `fromjson` are not part of it: templates that were written for other servers use them, so Moestro has
them and so has this.
"""

import datetime
import json

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1700049600  # noon in UTC, so that the day is the same in most time zones


class Generation(Extension):
    """{% generation %} marks what an assistant said; in rendering it does nothing."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


class Raised(jinja2.TemplateError):
    """raise_exception was called: the message is the template's own."""


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime.fromtimestamp(NOW).strftime(format)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = env.filters["fromjson"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


class Template:
    """A template of an environment; one that Jinja2 refuses fails at each rendering."""

    def __init__(self, env, source):
        try:
            self._template, self._failure = env.from_string(source), None
        except Exception as error:  # whatever Jinja2 refuses, in whatever way
            self._failure = {"fails": type(error).__name__, "why": str(error)}

    def render(self, messages, extra):
        """{"text"}, {"raises": the template's own words} or {"fails": kind of error, "why"}."""
        if self._failure:
            return self._failure
        # as apply_chat_template
        variables = {"tools": None, "documents": None, "add_generation_prompt": False, **extra}
        try:
            return {"text": self._template.render(messages=messages, **variables)}
        except Raised as raised:
            return {"raises": str(raised)}
        except Exception as error:
            return {"fails": type(error).__name__, "why": str(error)}
