#!/usr/bin/env python3
"""Makes orchestrator/tokenizer/unicode_data_*.cc, the properties of code points that tokenizers go by, and
tests/fixtures/tokenizers/unicode.json, what each regex class and each part of a tokenizer.json does with every code
point. All of it is what Hugging Face's tokenizers says when asked, which takes an hour of one core.

  python3 -m venv build/venv-unicode
  build/venv-unicode/bin/pip install -r scripts/python/requirements-unicode.txt
  build/venv-unicode/bin/python scripts/make_unicode.py [tables] [cases]

Sets are alternating run lengths, of what is outside and inside, from U+0000 on; partitions are pairs of a value and a
run length. Numbers are written in digits of five bits, the lowest first, as the characters 0-9 A-Z a-z + -; all but a
number's last digit have 32 added.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))

import tokenizers
import unicode_cases
import unicode_probe as probe
import unicodedata2
from fontTools.unicodedata import Scripts
from tokenizers import normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "orchestrator" / "tokenizer"
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-"

CATEGORIES = ("Cc Control|Cf Format|Cn Unassigned|Co Private_Use|Cs Surrogate|Ll Lowercase_Letter|"
              "Lm Modifier_Letter|Lo Other_Letter|Lt Titlecase_Letter|Lu Uppercase_Letter|Mc Spacing_Mark|"
              "Me Enclosing_Mark|Mn Nonspacing_Mark|Nd Decimal_Number|Nl Letter_Number|No Other_Number|"
              "Pc Connector_Punctuation|Pd Dash_Punctuation|Pe Close_Punctuation|Pf Final_Punctuation|"
              "Pi Initial_Punctuation|Po Other_Punctuation|Ps Open_Punctuation|Sc Currency_Symbol|"
              "Sk Modifier_Symbol|Sm Math_Symbol|So Other_Symbol|Zl Line_Separator|Zp Paragraph_Separator|"
              "Zs Space_Separator")
# Sets of their own; the first name is the one asked for. Word is \w outside of brackets.
BINARY = ("Alphabetic Alpha|Uppercase Upper|Lowercase Lower|White_Space WSpace Space|Cased|Case_Ignorable CI|"
          "Emoji|Emoji_Presentation EPres|Emoji_Modifier EMod|Emoji_Modifier_Base EBase|Emoji_Component EComp|"
          "Extended_Pictographic ExtPict|ASCII_Hex_Digit AHex XDigit|Hex_Digit Hex|Bidi_Control Bidi_C|Dash|"
          "Default_Ignorable_Code_Point DI|Deprecated Dep|Diacritic Dia|Extender Ext|Grapheme_Base Gr_Base|"
          "Grapheme_Extend Gr_Ext|ID_Start IDS|ID_Continue IDC|XID_Start XIDS|XID_Continue XIDC|Ideographic Ideo|"
          "IDS_Binary_Operator IDSB|IDS_Trinary_Operator IDST|Join_Control Join_C|Logical_Order_Exception LOE|"
          "Math|Noncharacter_Code_Point NChar|Pattern_Syntax Pat_Syn|Pattern_White_Space Pat_WS|"
          "Quotation_Mark QMark|Radical|Regional_Indicator RI|Sentence_Terminal STerm|Soft_Dotted SD|"
          "Terminal_Punctuation Term|Unified_Ideograph UIdeo|Variation_Selector VS|"
          "Prepended_Concatenation_Mark PCM|Changes_When_Casefolded CWCF|Changes_When_Casemapped CWCM|"
          "Changes_When_Lowercased CWL|Changes_When_Titlecased CWT|Changes_When_Uppercased CWU|Blank|Graph|Print|"
          "Word")


def number(n):
    text = ""
    while n >= 32:
        text += DIGITS[32 + n % 32]
        n //= 32
    return text + DIGITS[n]


def set_runs(points):
    text, at = "", 0
    for first, last in unicode_cases.ranges(points):
        text += number(first - at) + number(last + 1 - first)
        at = last + 1
    return text


def partition_runs(value_of):
    text, begin = "", 0
    for c in range(1, 0x110001):
        if c == 0x110000 or value_of(c) != value_of(begin):
            text += number(value_of(begin)) + number(c - begin)
            begin = c
    return text


def fold_key(name):
    return "".join(c for c in name.lower() if c not in " -_")


def names_of(*aliases):
    """The spellings that the wheel knows, folded as it folds them, with bars between."""
    known = [fold_key(name) for name in aliases if probe.is_regex(rf"\p{{{name}}}")]
    return "|".join(dict.fromkeys(known))


def partition(groups):
    """Of (names, code points) the list of names and the runs; what none of them holds has the value 0."""
    value_of = {}
    for value, (_, points) in enumerate(groups, 1):
        for c in points:
            assert c not in value_of, "the groups of a partition overlap"
            value_of[c] = value
    return [names for names, _ in groups], partition_runs(lambda c: value_of.get(c, 0))


def categories():
    lists = [entry.split() for entry in CATEGORIES.split("|")]
    points = probe.with_each([names[0] for names in lists])
    assert sum(map(len, points.values())) == len(probe.CODE_POINTS)
    return partition([(names_of(*names), points[names[0]]) for names in lists])


def scripts():
    lists = [(name, short, dict(Copt="Qaac", Zinh="Qaai").get(short, name))
             for short, name in sorted(Scripts.NAMES.items(), key=lambda item: item[1])
             if name in unicode_cases.script_names()]
    points = probe.with_each([names[0] for names in lists])
    return partition([(names_of(*names), points[names[0]]) for names in lists])


def blocks():
    names = unicode_cases.block_names()
    points = probe.with_each(names)
    return partition([(names_of(name), points[name]) for name in names])


def binary():
    lists = [entry.split() for entry in BINARY.split("|")]
    return [(names_of(*names), set_runs(probe.with_property(names[0]))) for names in lists]


def literal(text):
    """A string literal over lines of at most 120 columns."""
    width = 112
    return "\n".join(f'    "{text[i:i + width]}"' for i in range(0, len(text), width)) or '    ""'


def case_folds():
    text, previous = "", 0
    for group in probe.fold_groups():
        text += number(len(group)) + number(group[0] - previous)
        text += "".join(number(b - a) for a, b in zip(group, group[1:]))
        previous = group[0]
    return text


def long_folds():
    return "".join(number(c) + number(len(fold)) + "".join(map(number, fold)) for c, fold in probe.long_folds())


def lower_cases():
    """Runs: how far from the last one's begin, length, step to the lower-case form (2n up, 2n-1 down)."""
    text, previous = "", 0
    lower = probe.mapped(normalizers.Lowercase())
    changed = [(c, ord(to[0]) - c) for c, to in lower.items() if to != chr(c)]
    assert [c for c, to in lower.items() if len(to) != 1] == [0x130] and lower[0x130] == "i\u0307"
    runs = []
    for c, step in changed:
        if runs and runs[-1][0] + runs[-1][1] == c and runs[-1][2] == step:
            runs[-1][1] += 1
        else:
            runs.append([c, 1, step])
    for c, length, step in runs:
        text += number(c - previous) + number(length) + number(2 * step if step >= 0 else -2 * step - 1)
        previous = c
    return text


def bert(**on):
    every = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**every, **on})


def write(path, what, body):
    text = f"""// {what}
// Made by scripts/make_unicode.py, which says how, from tokenizers {tokenizers.__version__}. Not to be edited.
#include "orchestrator/tokenizer/unicode_data.h"

namespace moestro::tok {{
{body}
}}  // namespace moestro::tok
"""
    path.write_text(text)
    print(f"{path.relative_to(ROOT)}: {len(text):,} bytes")


def write_partition(name, what, table):
    names, runs = table
    listed = ",".join(names)
    body = f"\nconst PartitionData k{name} = {{\n{literal(listed)},\n{literal(runs)}}};\n"
    write(OUT / f"unicode_data_{name.lower()}.cc", what, body)


def tables():
    where = "the regexes of tokenizer.json (Oniguruma)"
    write_partition("Categories", f"The general categories that {where} go by.", categories())
    write_partition("Scripts", f"The scripts that {where} go by.", scripts())
    write_partition("Blocks", f"The blocks that {where} go by.", blocks())
    body = "\nconst NamedSetData kBinarySets[] = {\n"
    body += "".join(f'    {{"{names}",\n{literal(runs)}}},\n' for names, runs in binary())
    body += "};\nconst size_t kBinarySetCount = std::size(kBinarySets);\n"
    body += f"\nconst char* const kCaseFolds =\n{literal(case_folds())};\n"
    body += f"\nconst char* const kLongFolds =\n{literal(long_folds())};\n"
    write(OUT / "unicode_data_binary.cc", f"The binary properties and case folds that {where} go by.", body)
    groups, graphemes = probe.script_groups(), probe.grapheme_classes()
    texts = dict(NumericSet=set_runs(probe.alone(pre_tokenizers.Digits(individual_digits=True))),
                 PunctuationSet=set_runs(probe.alone(pre_tokenizers.Punctuation("isolated"))),
                 WhitespaceWordSet=set_runs(probe.whitespace_words()),
                 ControlSet=set_runs(probe.removed(bert(clean_text=True))),
                 NonspacingMarkSet=set_runs(probe.removed(bert(strip_accents=True))),
                 AccentSet=set_runs(probe.removed(normalizers.StripAccents())),
                 NotNormalizedSet=set_runs(probe.unknown_to_normalization(unicodedata2)),
                 LowerCases=lower_cases(),
                 ScriptGroups=partition_runs(lambda c: groups.get(c, 0)),
                 GraphemeClasses=partition_runs(lambda c: graphemes.get(c, 0)))
    body = "".join(f"\nconst char* const k{name} =\n{literal(runs)};\n" for name, runs in texts.items())
    write(OUT / "unicode_data_parts.cc", "What the parts of a tokenizer.json other than regexes know of code points.",
          body)


def main():
    wanted = sys.argv[1:] or ["tables", "cases"]
    if set(wanted) - {"tables", "cases"}:
        sys.exit(__doc__)
    if "tables" in wanted:
        tables()
    if "cases" in wanted:
        unicode_cases.write(ROOT / "tests" / "fixtures" / "tokenizers" / "unicode.json", CATEGORIES, BINARY)


if __name__ == "__main__":
    main()
