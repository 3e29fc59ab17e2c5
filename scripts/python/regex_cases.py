"""Makes tests/fixtures/tokenizers/regex.json: regexes as tokenizer.json files hold them, texts, and the texts with "‸"
for each match as Hugging Face's tokenizers finds them; null where it refuses the regex.

  build/venv-unicode/bin/python scripts/python/regex_cases.py [COUNT [SEED [FILE]]]
"""

import json
import pathlib
import random
import sys

from tokenizers import Regex, normalizers

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "tokenizers" / "regex.json"

# Each with texts that show what is special about it.
CHOSEN = [
    (r"(?i)ss", ["ß ẞ ſs SS s"]),
    (r"(?i)ß", ["ss ß ẞ ſS s"]),
    (r"(?i)[ß]", ["ss ß ẞ ſS s"]),
    (r"(?i)[^ß]", ["ssßẞſS"]),
    (r"(?i)s+", ["ßss"]),
    (r"(?i)ss+", ["ß ßs sß sss"]),
    (r"(?i)ffi", ["ﬃ ﬀi fﬁ ffi FFI"]),
    (r"(?i)ﬀi", ["ffi ﬃ ﬀi"]),
    (r"(?i)st", ["ﬆ ﬅ ST ſt"]),
    (r"(?i)sss", ["ßs sß sss"]),
    (r"(?i)'s|'t", ["'S 'ſ ʼs 'T"]),
    (r"(?i)ŉ", ["ŉ ʼN"]),
    (r"(?i)[ßa]b", ["ssb ab ßb"]),
    (r"(?i)ΐ", ["ΐ ΐ"]),
    (r"(?i)İ", ["i̇ İ I"]),
    (r"(?i:s)s", ["ß ss"]),
    (r"(?i)[\p{Ll}]", ["ß ss ﬀ ff"]),
    (r"(?i)\p{Ll}", ["AaßSſ"]),
    (r"(?i)[[:upper:]]", ["AaB"]),
    (r"(?i)[k&&[^z]]", ["Kk\u212a"]),
    (r"a(?i)b|c", ["ab aB C c ac aC"]),
    (r"(a(?i)b)c", ["abc aBc aBC"]),
    (r"(?i)a|(?-i)b|c", ["ABC"]),
    (r"(?x: a b )c", ["abc"]),
    ("(?x)a\\ b # foo\nc", ["a bc"]),
    (r"(?m).", ["a\nb"]),
    (r"(?-m).", ["a\nb"]),
    (r"x(?m:.)y|.", ["x\ny"]),
    (r"(?#note)a", ["ba"]),
    (r"a{2}{3}", ["aaaaaaa"]),
    (r"a{2}+", ["aaaaa"]),
    (r"a{2}?", ["aaaa"]),
    (r"a{1,2}?", ["aaa"]),
    (r"a{1,2}+", ["aaaaa"]),
    (r"\p{N}{1,3}+", ["1234567"]),
    (r"a{3,1}", ["aaaaa"]),
    (r"a{3,1}a", ["aaaaa", "aaa"]),
    (r"a+?+", ["aaa"]),
    (r"a++?", ["aaa"]),
    (r"a?+", ["aaa"]),
    (r"a{,2}", ["aaa b"]),
    (r"a{,}", ["a{,}"]),
    (r"a{", ["a{"]),
    (r"a{x}", ["a{x}"]),
    (r"{a", ["{a"]),
    (r"a{ 1}", ["a{ 1}"]),
    (r"a**", ["ab"]),
    (r"(?:)+", ["ab"]),
    (r"[[a-c]&&[^b]]", ["abcd"]),
    (r"[^[a-c]&&[^b]]", ["abcd"]),
    (r"[a-c[x]]", ["abcdx"]),
    (r"[a-cx&&b-z]", ["abcdxz"]),
    (r"[a-c&&b-d&&b]", ["abcd"]),
    (r"[^a-c&&b]", ["abcd"]),
    (r"[&&a]", ["a&"]),
    (r"[a&&]", ["a&"]),
    (r"[a&&&b]", ["a&b"]),
    (r"[]a]", ["]a"]),
    (r"[]-a]", ["]^a"]),
    (r"[^]]", ["a]"]),
    (r"[]", ["a"]),
    (r"[-]", ["-"]),
    (r"[^-]", ["-a"]),
    (r"[a-]", ["-a"]),
    (r"[--a]", ["aAbB-"]),
    (r"[a-c-e]", ["abcde-"]),
    (r"[\d-x]", ["5"]),
    (r"[\w-]", ["a-"]),
    (r"[a\-z]", ["a-mz"]),
    (r"[a-\-]", ["a"]),
    (r"[z-a]", ["a"]),
    (r"[a]]", ["a]"]),
    (r"[:alpha:]", ["a:lph"]),
    (r"[[:alpha:]-z]", ["a"]),
    (r"[[.a.]]", ["a."]),
    (r"[[:alpha]", ["a"]),
    (r"[[:ALPHA:]]", ["a"]),
    (r"[[:foo:]]", ["a"]),
    (r"\b", ["ab c²d é x_y a‿b 1a", "a\u0301 \u0301"]),
    (r"\B", ["ab c²d é"]),
    (r"^", ["a\nb\n", "\n\n"]),
    (r"$", ["a\nb\n", "\n\n"]),
    (r"\Z", ["a\nb\n", "a"]),
    (r"\z", ["a\nb\n"]),
    (r"\A", ["a\nb\n"]),
    (r"\R", ["a\r\nb\x85\u2028\v\n\r"]),
    (r"\N+", ["a\nb"]),
    (r"\O", ["\n"]),
    (r"[\h]", ["ag"]),
    (r"[\R]", ["R\n"]),
    (r"[\b]", ["\b b"]),
    (r"\a\e\v\f\t", ["\a\x1b\v\f\t"]),
    (r"\x41\x{e9}\u00e9", ["Aéé"]),
    (r"\x", ["\0x"]),
    (r"\xg", ["\0gx"]),
    (r"\012", ["\n"]),
    (r"\08", ["\x008"]),
    (r"\o{101}", ["A"]),
    (r"\pL", ["pL a"]),
    (r"\p{^L}", ["a1"]),
    (r"\p{ l }", ["a1"]),
    (r"\p{foo}", ["a"]),
    (r"\p{L", ["a"]),
    (r"\u{41}", ["A"]),
    (r"\Qa\E", ["QaE a"]),
    (r"\/\'\-\é", ["/'-é"]),
    (r"]}", ["]}"]),
    (r"(?<n>a)(b)", ["ab"]),
    (r"(?'n'a)", ["a"]),
    (r"(?P<n>a)", ["a"]),
    (r"(?s).", ["a"]),
    (r"(?<=a|bc)d", ["ad bcd d"]),
    (r"(?<!a)b", ["ab b"]),
    (r"(?=a)*", ["a"]),
    (r"^*", ["a"]),
    (r"+a", ["a"]),
    (r"a|*", ["a"]),
    (r"(", ["a"]),
    (r")", ["a"]),
    (r"(?", ["a"]),
    ("\\", ["a"]),
    (r"a{100001}", ["a"]),
    (r"(?>a|ab)c", ["abc ac"]),
    (r"a|", ["ab"]),
    (r"", ["ab"]),
    (r"()*", ["ab"]),
    (r"x*", ["axb"]),
    (r"x*?", ["axb"]),
    (r"\bx*", ["axb xx"]),
    (r"\w+", ["²³ a_b"]),
    (r"[\w]+", ["²³ a_b"]),
    (r"[^\W]", ["²a"]),
    (r"\s+(?!\S)|\s+", ["a  b   "]),
    (r" ?\p{L}+", ["na \U0001fae8 \u1c89x", " \U000105c0"]),
    (r"[\p{Han}]+", ["、・々〇漢\u3005\u30fc"]),
    (r"\p{So}", ["\U0001fae8"]),
]
ATOMS = [
    "a", "b", "s", "ß", "K", "\u212a", "ﬁ", "é", "1", "²", " ", r"\n", "-", r"\.", ".", r"\s", r"\S", r"\w", r"\W",
    r"\d", r"\D", r"\p{L}", r"\P{Lu}", r"\p{N}", r"\p{Han}", r"[a-c]", r"[^a]", r"[\w]", r"[^\s\p{L}\p{N}]",
    r"[[:punct:]]", r"[a[^b]]", r"[\p{L}&&[^a-f]]", r"[ßs]", r"\b", r"\B", "^", "$", r"\R", r"\h", "st", "ff", "'s",
    "(?i)", "(?m)", r"\K"
]
REPEATS = [
    "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{,2}", "{1,}", "{2}?", "{1,2}?", "{1,2}+",
    "{2,1}"
]
LETTERS = "aabsSßKk\u212aﬁﬆé1²½ \n\n-.,_世、\u0301ǅIiſtf'"


def random_regex(rng, depth=0):
    alternatives = []
    for _ in range(rng.choice([1, 1, 2])):
        parts = []
        for _ in range(rng.randint(1, 4)):
            if depth < 3 and rng.random() < 0.25:
                part = rng.choice(["(?:", "(", "(?i:", "(?=", "(?!", "(?>", "(?m:", "(?-i:"]) + random_regex(
                    rng, depth + 1) + ")"
            else:
                part = rng.choice(ATOMS)
            if rng.random() < 0.3:
                part += rng.choice(REPEATS)
            parts.append(part)
        alternatives.append("".join(parts))
    return "|".join(alternatives)


def marked(regex, text):
    try:
        return normalizers.Replace(Regex(regex), "‸").normalize_str(text)
    except Exception:  # what the wheel raises for a regex that it refuses has no type of its own
        return None


def main():
    count, seed = (int(a) for a in (sys.argv[1:3] + ["1000", "5"][len(sys.argv[1:3]):]))
    out = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else OUT
    rng = random.Random(seed)
    cases = [(regex, text, marked(regex, text)) for regex, texts in CHOSEN for text in texts]
    for _ in range(count):
        regex, text = random_regex(rng), "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 14)))
        made = marked(regex, text)
        if made is not None:  # what is refused, and is not chosen above, is of no interest
            cases.append((regex, text, made))
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write_text(f"[\n{lines}\n]\n")
    print(f"{out.name}: {len(cases)} cases")


if __name__ == "__main__":
    main()
