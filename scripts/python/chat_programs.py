"""Generated chat templates: every operator, filter, test, method and statement, mostly with values of a fitting type,
sometimes with any."""

import random

MESSAGES = [
    {"role": "system", "content": "You are  helpful.\n"},
    {"role": "user", "content": ' Hi <b>"there"</b> & é你好 '},
    {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {
        "name": "f", "arguments": {"a": 1, "b": [1.5, None, True], "c": "x'y\"z"}}}]},
    {"role": "tool", "content": "42"},
    {"role": "user", "content": [{"type": "text", "text": "part <1>"}, {"type": "image"}]},
    {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nok"},
]
EXTRA = {
    "bos_token": "<s>",
    "tools": [{"type": "function", "function": {"name": "f", "description": "d é", "parameters": {
        "type": "object", "properties": {"z": {"type": "number", "default": 1e-5}}, "required": []}}}],
    "d": {"b": 2, "a": 1, "C": {"x": []}, "": None},
    "n": -7,
    "f": 2.5,
    "t": True,
    "o": None,
    "s": "Hello World foo-bar it's",
    "h": "<a href=\"x\">&amp;</a>",
    "w": "  two\nlines\r\n\tand tabs ",
    "u8": "añ😀b",
    "j": '{"k": [1, 2.5, null, "x"], "e": {}}',
    "e": "",
    "l": [3, 1, 2, 1],
    "ls": ["b", "A", "c", "a", ""],
    "el": [],
    "mixed": [1, "a", None, [2], {"k": 1}, True, 0.5],
}
CONTEXT = (MESSAGES, EXTRA)
VARIABLES = {
    "str": ["s", "h", "w", "u8", "j", "e", "bos_token", "messages[0].role", "messages[1]['content']", "'lit'", "'a,b'",
            "\"it's\"", "' '", "'%s'",
            "'<i>'", "'é'", "'x\\ny'"],
    "int": ["n", "t", "0", "1", "2", "-3", "10", "l[0]", "l|length", "s|length", "messages|length"],
    "num": ["f", "2.0", "-0.5", "1e3", "3.14159", "n"],
    "list": ["l", "ls", "el", "mixed", "messages", "tools", "[1, 2]", "['x', 'y', 'x']", "[]", "(1, 2)", "range(4)",
             "messages[4].content"],
    "dict": ["d", "messages[0]", "messages[2]", "tools[0]", "{}", "{'k': 'v', 'a': 1}", "d.C"],
    "any": ["o", "none", "nothing", "d.nothing", "f", "true", "false", "namespace(a=1).a"],
}
# {0}: a string, {1}: an int, {2}: a number, {3}: a list, {4}: a dict, {5}: anything, {6}: a condition
FORMS = {
    "str": ["{0} + {0}", "{0} ~ {5}", "{0}|upper", "{0}|lower", "{0}|title", "{0}|capitalize", "{0}|trim",
            "{0}|trim({0})", "{0}|replace({0}, {0})",
            "{0}|replace({0}, {0}, {1})", "{0}|indent", "{0}|indent({1}, {6}, {6})", "{0}|string", "{0}|safe", "{0}|e",
            "{0}|forceescape", "{0}|reverse",
            "{5}|tojson", "{5}|tojson(indent={1})", "{4}|tojson(sort_keys=true)", "{5}|tojson(ensure_ascii={6})",
            "{5}|tojson(separators=(',', ':'))",
            "{3}|join", "{3}|join({0})", "{3}|join({0}, attribute='role')", "{0}.strip()", "{0}.strip({0})",
            "{0}.lstrip()", "{0}.rstrip('\\n')",
            "{0}.upper()", "{0}.lower()", "{0}.title()", "{0}.capitalize()", "{0}.replace({0}, {0})",
            "{0}.replace({0}, {0}, {1})",
            "{0}.removeprefix({0})", "{0}.removesuffix({0})", "{0}.join({3})", "{0}.join(['a', {0}])", "{0}[{1}]",
            "{0}[{1}:{1}]", "{0}[:{1}]",
            "{0}[::-1]", "{0}[{1}::{1}]", "{0} * {1}", "{0}.split({0})[0]", "{0}.split({0})[-1]", "{0}.split()|last",
            "({0} if {6} else {0})",
            "({0} if {6})", "{0} or {0}", "{0} and {0}", "{0}|default({0})", "{5}|default({0}, true)", "{5}|string",
            "'%s' % {5}", "'%s-%d' % ({5}, {1})",
            "'%5s|%-5s|%.2s' % ({0}, {0}, {0})", "'%05d %x %+d' % ({1}, 255, {1})", "'%.2f %e %g' % ({2}, {2}, {2})",
            "'%r' % ({0},)",
            "'%(a)s' % {4}", "{0} % {0}", "{0}|format({0}, {1})", "'{{}} {{}}'.format({5}, {0})",
            "'{{0}}{{1}}{{0}}'.format({0}, {0})",
            "'{{a}}-{{b!r}}'.format(a={5}, b={0})", "'{{:>6}}|{{:<6}}|{{:^7}}|{{:*^9}}'.format({0}, {0}, {0}, {0})",
            "'{{:d}} {{:,}} {{:04d}} {{:x}}'.format({1}, {1}, {1}, 255)",
            "'{{:.1f}} {{:8.3f}} {{:%}} {{:e}}'.format({2}, {2}, {2}, {2})",
            "'{{0[k]}}'.format({4})", "{0}.format({0})", "{0}|safe + {0}", "{0} + {0}|e", "({0}|safe) % {0}",
            "({0}|safe).join([{0}, {0}])",
            "({0}|safe)|upper + {0}", "({0}|safe).replace({0}, {0})", "({0}|safe).format({0})", "({0}|safe)[1:] + {0}",
            "({0}|safe ~ {0}) + {0}",
            "{0}.ljust({1})", "{0}.rjust({1}, '*')", "{0}.center({1})", "{0}.zfill({1})", "{0}|center({1})",
            "strftime_now('%d %b %Y')", "{3}|first",
            "{3}|last", "{3}|max", "{3}|min", "{4}.get({0})", "{4}.get({0}, {5})", "{4}[{0}]", "{4}.role"],
    "int": ["{1} + {1}", "{1} - {1}", "{1} * {1}", "{1} // {1}", "{1} % {1}", "-{1}", "{0}|length", "{3}|length",
            "{4}|length", "{3}|count", "{5}|int",
            "{0}|int({1})", "{1}|abs", "{0}.find({0})", "{0}.count({0})", "{3}.index({3}|first)", "{3}.count({5})",
            "{0}|wordcount",
            "{3}|sum", "loop.index", "{2}|round|int", "({1} if {6} else {1})"],
    "num": ["{2} + {1}", "{2} / {2}", "{2} * {2}", "{2} ** 2", "{2} - {2}", "{2}|round", "{2}|round({1})",
            "{2}|round(1, 'floor')", "{2}|round(0, 'ceil')",
            "{1}|round", "{5}|float", "{0}|float({2})", "{2}|abs", "{2} % {1}", "{2} // {1}", "+{2}"],
    "list": ["{3} + {3}", "{3}[{1}:{1}]", "{3}[::-1]", "{3}[{1}:]", "{3}|list", "{3}|reverse|list", "{3}|sort",
             "{3}|sort(reverse={6})",
             "{3}|sort(attribute='role')", "{3}|unique|list", "{3}|unique", "{3}|map('upper')|list",
             "{3}|map(attribute='role')|list",
             "{3}|map(attribute='content.0.text', default='k')|list", "{3}|map('default', {0})", "{3}|select|list",
             "{3}|select('string')|list",
             "{3}|select('equalto', {5})|list", "{3}|reject('none')|list",
             "{3}|selectattr('role', 'equalto', {0})|list", "{3}|selectattr('content')|list",
             "{3}|selectattr('tool_calls', 'defined')", "{3}|rejectattr('role', 'in', {3})|list", "{0}.split({0})",
             "{0}.split()", "{0}.split({0}, {1})",
             "{0}.rsplit({0}, {1})", "{0}.splitlines()", "{0}.partition({0})", "{0}.rpartition({0})", "{0}|list",
             "{4}|list", "{4}|dictsort", "{4}.items()",
             "{4}.keys()", "{4}.values()", "{4}|items", "{4}.items()|list", "{4}|dictsort(by='value')", "{3} * {1}",
             "[{5}, {5}]", "({5},)", "range({1})|list",
             "range({1}, {1})|list", "({3} if {6} else {3})", "{5}|select", "{5}|map('trim')", "{3}|default([])",
             "(j|from_json).k"],
    "dict": ["dict({4}, z={5})", "dict(a={5})", "{{'q': {5}, {0}: {1}}}", "j|from_json", "{4}.copy()",
             "({4} if {6} else {4})", "{3}[{1}]"],
    "any": ["{0}", "{1}", "{2}", "{3}", "{4}", "{6}", "{5} or {5}", "{5} and {5}", "not {5}", "{3}|first", "{3}|last",
            "{3}[{1}]", "{4}.a", "{4}['k']",
            "{5}|default({5})", "{3}|max", "{3}|min(attribute='role')", "m({0})", "m(*{3})", "m({5}, **{4})",
            "dict(*[{4}], **{4})", "messages|length"],
}
CONDITIONS = ["{5} is {T}", "{5} is not {T}", "{5} == {5}", "{5} != {5}", "{1} < {2}", "{1} >= {1}", "{0} < {0}",
              "{1} < {1} <= {1}", "{0} in {0}",
              "{0} not in {0}", "{5} in {3}", "{0} in {4}", "not {6}", "{6} and {6}", "{6} or {6}",
              "{0}.startswith({0})", "{0}.endswith({0})",
              "{0}.endswith(({0}, {0}))", "{0}.isdigit()", "{0}.isalpha()", "{0}.isalnum()", "{0}.isupper()",
              "{0}.islower()", "{0}.isspace()", "{5}",
              "{3} == {3}", "{1} is divisibleby {1}", "{1} is odd", "{1} is even", "{5} is eq {5}", "{5} is in {3}",
              "{1} is gt {1}", "{5} is sameas none"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float",
         "boolean", "true", "false", "callable",
         "lower", "upper", "escaped"]
KINDS = ["str", "int", "num", "list", "dict", "any"]


class Writer:

    def __init__(self, rng):
        self._random = rng

    def expression(self, kind, depth):
        if self._random.random() < 0.01:
            kind = self._random.choice(KINDS)
        if depth <= 0 or self._random.random() < 0.3:
            return self._random.choice(VARIABLES[kind])
        return self._filled(self._random.choice(FORMS[kind]), depth - 1)

    def condition(self, depth):
        return self._filled(self._random.choice(CONDITIONS if depth > 0 else CONDITIONS[:2]), depth - 1)

    def _filled(self, form, depth):
        out, i = "", 0
        while i < len(form):
            if form[i] == "{" and form[i + 1] in "0123456T":
                out += self._part(form[i + 1], depth)
                i += 3
            elif form[i:i + 2] in ("{{", "}}"):
                out += form[i]
                i += 2
            else:
                out += form[i]
                i += 1
        return "(" + out + ")" if self._random.random() < 0.5 else out

    def _part(self, what, depth):
        if what == "T":
            return self._random.choice(TESTS)
        text = self.condition(depth) if what == "6" else self.expression(KINDS[int(what)], depth)
        return text if text.isidentifier() or text[0] in "('\"[{" and self._random.random() < 0.5 else f"({text})"

    def body(self, depth, in_loop=False):
        return "".join(self.statement(depth, in_loop) for _ in range(self._random.randint(1, 3)))

    def _tag(self, text):
        begin, end = self._random.choice(["{%", "{%", "{%", "{%-", "{%+"]), self._random.choice(["%}", "%}", "%}",
            "-%}", "+%}"])
        return self._random.choice(["", "", "\n", "  ", "\n    "]) + f"{begin} {text} {end}" + self._random.choice(["",
            "", "\n", " x ", "\n\n "])

    def output(self, depth):
        begin, end = self._random.choice(["{{", "{{", "{{-"]), self._random.choice(["}}", "}}", "-}}"])
        kind = self._random.choice(KINDS + ["str", "str"])
        return f"{begin} {self.expression(kind, depth)} {end}" + self._random.choice(["|", "\n", " ", ""])

    def statement(self, depth, in_loop):
        if depth <= 0 or self._random.random() < 0.45:
            return self.output(3)
        choice = self._random.randrange(11 if in_loop else 10)
        inner = depth - 1
        if choice <= 1:
            text = self._tag("if " + self.condition(2)) + self.body(inner, in_loop)
            if self._random.random() < 0.3:
                text += self._tag("elif " + self.condition(2)) + self.body(inner, in_loop)
            if self._random.random() < 0.5:
                text += self._tag("else") + self.body(inner, in_loop)
            return text + self._tag("endif")
        if choice <= 3:
            head = "for x in " + self.expression("list", 2)
            if self._random.random() < 0.3:
                head = "for k, v in " + self._random.choice(["d.items()", "messages[0]|items", "{'a': x}.items()",
                    "d|dictsort"])
            if self._random.random() < 0.3:
                head += " if " + self.condition(1)
            text = self._tag(head) + self._random.choice(["", "{{ loop.index }}", "{{ x }}",
                "{{ loop.last }}{{ loop.length }}", "{{ k }}",
                                                          "{{ loop.previtem }}"])
            text += self.body(inner, True)
            return text + (self._tag("else") + "none" if self._random.random() < 0.2 else "") + self._tag("endfor")
        if choice == 4:
            return self._tag("set x = " + self.expression(self._random.choice(KINDS), 3)) + "{{ x }}"
        if choice == 5:
            return self._tag(self._random.choice(["set y", "set y | upper",
                                                  "set y | trim | replace('a', 'b')"])) + self.body(inner) + self._tag(
                "endset") + "[{{ y }}]"
        if choice == 6:
            summed = "{% set ns.i = ns.i + x %}{% set ns.s = ns.s ~ " + self.expression("str", 2) + " %}"
            return ("{% set ns = namespace(i=0, s='') %}" + self._tag("for x in l") + summed + self._tag("endfor") +
                    "{{ ns.i }}{{ ns.s }}")
        if choice == 7:
            return self._tag(self._random.choice(["filter upper", "filter trim | title",
                                                  "filter indent(2)"])) + self.body(inner) + self._tag("endfilter")
        if choice == 8:
            return self._tag("with a = " + self.expression("any",
                2)) + "{{ a }}" + self.body(inner) + self._tag("endwith")
        if choice == 9:
            return self._tag("macro m(p, q='dflt')") + self._random.choice(["{{ p }}{{ q }}",
                "{{ p }}{{ varargs }}{{ kwargs }}"]) + self._tag("endmacro")
        return self._tag("if " + self.condition(1)) + self._tag(self._random.choice(["break",
            "continue"])) + self._tag("endif")


def program(seed, number):
    """The same template for a seed and a number."""
    writer = Writer(random.Random(f"{seed}/{number}"))
    return "{% macro m(p, q=1) %}<{{ p }}{{ q }}>{% endmacro %}" + writer.body(2)
