"""What Hugging Face's tokenizers does with every code point, as one hash (XXH64) for each regex class and each part of
a tokenizer.json.

Of a class the hash is over "FIRST-LAST," in hexadecimal for each run of code points that it matches; of a normalizer
over what it makes of `normalizer_texts` (or `strip_texts`, `cluster_texts`), of a pre-tokenizer over its pieces of
`pre_tokenizer_texts`, each ended by a byte FF; of added tokens over the ids in decimal, each ended by a comma, of
`added_token_text`. tests/tokenizer/unicode_test.cc makes the same texts.
"""

import base64
import json

import tokenizers
import unicode_probe as probe
import xxhash
from charsmap import charsmap
from fontTools.unicodedata import Blocks, Scripts
from tokenizers import Tokenizer

CLASSES = [
    r"\d", r"\D", r"\s", r"\S", r"\w", r"\W", r"\h", r"\H", r"[\w]", r"[^\w]", r"[\W]", r"[^\W\d]", r"[\s\S]", ".",
    "(?m).", r"\N", r"\O", r"\R", r"[\p{L}\p{M}]", r"[^\s\p{L}\p{N}]", r"[\p{L}&&[^\p{Han}]]",
    r"[^\p{Han}\p{Hiragana}\p{Katakana}]", r"\p{^L}", r"\P{^L}", r"[a-z[^b]&&\p{Ll}]", r"(?i)k", r"(?i)[a-z]",
    r"(?i)[^a-z]", r"(?i)[\p{Lu}]", r"(?i)[^\p{Lu}]", r"(?i)\p{Lu}", r"(?i)[[:lower:]]", r"(?i)ß", r"(?i)[ß]",
    r"(?i)st", r"(?i)[\x{300}-\x{10FFFF}]", r"[^\x00-\x7F]", r"[[:^alpha:]]"
] + [
    f"[[:{name}:]]" for name in ("alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print",
                                 "punct", "space", "upper", "word", "xdigit")
]
GROUPS = ("L LC M N P S Z C Letter Mark Number Punctuation Symbol Separator Other Any Assigned ASCII Alnum Cntrl Digit "
          "Punct PosixPunct Unknown").split()

NORMALIZERS = [{"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")]
NORMALIZERS += [{
    "type": "Strip",
    "strip_left": left,
    "strip_right": right
} for left, right in ((True, True), (True, False), (False, True))]
NORMALIZERS += [
    dict(type="BertNormalizer", clean_text=n == 0, handle_chinese_chars=n == 1, strip_accents=accents, lowercase=n == 2)
    for n, accents in ((0, False), (1, False), (2, False), (3, True), (2, None), (0, None))
]
# Keys that tell where clusters of characters end: see cluster_texts.
CLUSTER_KEYS = dict.fromkeys("a\u00a9\u0915\u1161\uac00\u0600\u06dd\u08e2\u0d4e", "Z")
CLUSTER_KEYS.update({chr(c): "Y" for c in range(0xC0, 0x3000, 37)})
NORMALIZERS.append(dict(type="Precompiled",
                        precompiled_charsmap=base64.b64encode(charsmap(CLUSTER_KEYS)).decode()))
PRE_TOKENIZERS = [{
    "type": "Digits",
    "individual_digits": True
}, {
    "type": "Digits",
    "individual_digits": False
}, {
    "type": "Whitespace"
}, {
    "type": "WhitespaceSplit"
}, {
    "type": "BertPreTokenizer"
}, {
    "type": "UnicodeScripts"
}, {
    "type": "FixedLength",
    "length": 3
}, {
    "type": "FixedLength"
}, {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True
}, {
    "type": "Split",
    "pattern": {
        "Regex": r"\b"
    },
    "behavior": "Isolated",
    "invert": False
}, {
    "type": "Split",
    "pattern": {
        "Regex": r"^|$"
    },
    "behavior": "Isolated",
    "invert": False
}] + [{
    "type": "Punctuation",
    "behavior": name
} for name in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")]


def ranges(points):
    """Runs of code points as [first, last]; the surrogates, which no text holds, break none."""
    out = []
    for c in sorted(points):
        if out and (c == out[-1][1] + 1 or (out[-1][1] == 0xD7FF and c == 0xE000)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def digest(data):
    return f"{xxhash.xxh64(data).intdigest():016x}"


def class_case(pattern, points):
    runs = "".join(f"{first:X}-{last:X}," for first, last in ranges(points))
    return dict(regex=pattern, count=len(points), hash=digest(runs.encode()))


def script_names():
    names = (name for short, name in Scripts.NAMES.items() if short not in ("Hrkt", "Zzzz"))
    return [name for name in names if probe.is_regex(rf"\p{{{name}}}")]


def block_names():
    names = ("In_" + name for name in sorted(set(Blocks.VALUES)) if name != "No_Block")
    return [name for name in names if probe.is_regex(rf"\p{{{name}}}")]


def property_cases(categories, binary):
    lone = [name for entry in (categories, binary) for name in entry.replace("|", " ").split()] + GROUPS
    points = {name: probe.with_property(name) for name in dict.fromkeys(lone) if probe.is_regex(rf"\p{{{name}}}")}
    points.update(probe.with_each(script_names()))
    points.update(probe.with_each(block_names()))
    return [class_case(rf"\p{{{name}}}", where) for name, where in points.items()]


def tokenizer_with(**parts):
    empty = dict(version="1.0",
                 truncation=None,
                 padding=None,
                 added_tokens=[],
                 normalizer=None,
                 pre_tokenizer=None,
                 post_processor=None,
                 decoder=None,
                 model=dict(type="WordLevel", vocab={"?": 0}, unk_token="?"))
    return Tokenizer.from_str(json.dumps({**empty, **parts}))


def normalizer_texts():
    """Every code point between letters; those of the first three planes, which alone combine, beside marks, amid
    Hangul, and doubled before a mark."""
    every = [chr(c) for c in probe.CODE_POINTS]
    near = [c for c in every if ord(c) < 0x30000]
    return [
        "a".join(every), "".join(c + "\u0334\u0301\u0323a" for c in near), "".join("a\u0301\u0323" + c for c in near),
        "".join("\u1100" + c + "\u11a8" for c in near), "".join(c + c + "\u3099" for c in near)
    ]


def cluster_texts():
    """Every code point where it may end a cluster of characters or go on with it."""
    around = [("a", ""), ("", "a"), ("", "\u0301"), ("\u00a9\u200d", "\u0301"), ("\u00a9", "\u200d\u00a9\u0301"),
              ("\u0915\u094d", "\u0301"), ("\u0915", "\u0915\u0301"), ("\u0915\u094d", "\u0915\u0301"),
              ("\u1100", "\u1161\u0301"), ("\u0600", "\u0301")]
    return ["".join(before + chr(c) + after + "|" for c in probe.CODE_POINTS) for before, after in around]


def strip_texts():
    return [chr(c) + " x " + chr(c) for c in probe.CODE_POINTS if c < 0x3100 or 0xF000 <= c < 0x10000]


def pre_tokenizer_texts():
    every = [chr(c) for c in probe.CODE_POINTS]
    return ["".join(every), "a".join(every)]


def blob(parts):
    return b"".join(part.encode() + b"\xff" for part in parts)


def normalizer_case(spec, texts):
    normalizer = tokenizer_with(normalizer=spec).normalizer
    return dict(normalizer=spec, hash=digest(blob(map(normalizer.normalize_str, texts))))


def pre_tokenizer_case(spec, texts):
    splitter = tokenizer_with(pre_tokenizer=spec).pre_tokenizer
    pieces = (piece for text in texts for piece, _ in splitter.pre_tokenize_str(text))
    return dict(pre_tokenizer=spec, hash=digest(blob(pieces)))


def added_token_text():
    return "".join(chr(c) + "<t>" + chr(c) + "- <t> " for c in probe.CODE_POINTS)


def added_token_case(**options):
    token = dict(id=1, content="<t>", single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    ids = tokenizer_with(added_tokens=[{**token, **options}]).encode(added_token_text(), add_special_tokens=False).ids
    return dict(added_token=options, hash=digest("".join(f"{i}," for i in ids).encode()))


def write(path, categories, binary):
    cases = property_cases(categories, binary)
    cases += [class_case(pattern, probe.matches(pattern)) for pattern in CLASSES]
    for spec in NORMALIZERS:
        own = dict(Strip=strip_texts, Precompiled=cluster_texts)
        cases.append(normalizer_case(spec, own.get(spec["type"], normalizer_texts)()))
    cases += [pre_tokenizer_case(spec, pre_tokenizer_texts()) for spec in PRE_TOKENIZERS]
    cases += [added_token_case(**{option: True}) for option in ("single_word", "lstrip", "rstrip")]
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{{"tokenizers": "{tokenizers.__version__}", "cases": [\n{lines}\n]}}\n')
    print(f"{path.name}: {len(cases)} cases")
