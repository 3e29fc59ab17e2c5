"""What the `tokenizers` wheel knows of each code point, found by asking it: nothing here is taken from another library.

The wheel has several Unicode tables of different versions: Oniguruma's for regexes, the Rust library's and the regex
crate's for digits, spaces and words, older ones for punctuation and normalization. So each part is asked by itself.
"""

from charsmap import charsmap
from tokenizers import Regex, normalizers, pre_tokenizers

MARK = "\u2401"  # a symbol that no normalizer changes or makes: it tells the parts of an answer apart
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERY = "".join(map(chr, CODE_POINTS))


def matches(pattern):
    """The code points that a regex of one character matches."""
    rest = set(normalizers.Replace(Regex(f"(?:{pattern})+"), "").normalize_str(EVERY))
    return {c for c in CODE_POINTS if chr(c) not in rest}


def with_each(names):
    """The code points of each of several properties of which no code point has two, found in one pass."""
    runs = pre_tokenizers.Split(Regex("|".join(rf"\p{{{name}}}+" for name in names)),
                                "isolated").pre_tokenize_str(EVERY)
    firsts = "".join(run[0] for run, _ in runs)
    points = {}
    for name in names:
        inside = set(normalizers.Replace(Regex(rf"\P{{{name}}}+"), "").normalize_str(firsts))
        points[name] = {ord(c) for run, _ in runs if run[0] in inside for c in run}
    return points


def with_property(name):
    """The code points that \\p{name} matches."""
    return set(map(ord, normalizers.Replace(Regex(rf"\P{{{name}}}+"), "").normalize_str(EVERY)))


def is_regex(pattern):
    try:
        return bool(Regex(pattern))
    except Exception:  # the wheel's only way to say no
        return False


def mapped(normalizer, before="", after=""):
    """What a normalizer makes of each code point by itself."""
    points = [c for c in CODE_POINTS if chr(c) != MARK]
    parts = normalizer.normalize_str(MARK.join(before + chr(c) + after for c in points)).split(MARK)
    assert len(parts) == len(points), "the normalizer changes the mark"
    answer = dict(zip(points, parts))
    answer[ord(MARK)] = before + MARK + after
    return answer


def alone(pre_tokenizer, between="x"):
    """The code points that a pre-tokenizer makes pieces of their own between others."""
    pieces = pre_tokenizer.pre_tokenize_str(between + between.join(map(chr, CODE_POINTS)))
    return {ord(piece) for piece, _ in pieces if len(piece) == 1} - {ord(between)}


def dropped(pre_tokenizer):
    kept = {c for piece, _ in pre_tokenizer.pre_tokenize_str(EVERY) for c in piece}
    return {c for c in CODE_POINTS if chr(c) not in kept}


def whitespace_words():
    """The word characters of the pre-tokenizer Whitespace, whose regex is not Oniguruma's."""
    pieces = pre_tokenizers.Whitespace().pre_tokenize_str("".join("-" + chr(c) for c in CODE_POINTS))
    return {ord(c) for piece, _ in pieces if "-" not in piece for c in piece}


def removed(normalizer):
    return {c for c, text in mapped(normalizer).items() if text == ""}


def boundaries(text):
    return {begin for _, (begin, _) in pre_tokenizers.UnicodeScripts().pre_tokenize_str(text)}


def script_groups():
    """Of each code point the number of its group as UnicodeScripts sees it; 0: goes with any."""
    cuts = boundaries("".join("a" + chr(c) + "あ" + chr(c) for c in CODE_POINTS))
    firm = [c for i, c in enumerate(CODE_POINTS) if 4 * i + 1 in cuts or 4 * i + 3 in cuts]
    cuts = boundaries("".join(map(chr, firm)))
    group, samples, current = {}, [], 0
    for i, c in enumerate(firm):
        if i in cuts:
            cut = boundaries("".join(sample + chr(c) for sample in samples))
            same = [n for n in range(len(samples)) if 2 * n + 1 not in cut]
            if not same:
                samples.append(chr(c))
            current = same[0] + 1 if same else len(samples)
        group[c] = current
    return group


def fold_groups():
    """Groups of code points that (?i) takes for each other."""
    names = r"\p{Cased}\p{Changes_When_Casemapped}\p{Changes_When_Casefolded}"
    cased = sorted(matches(f"[{names}]"))
    others = normalizers.Replace(Regex(f"(?i)[^{names}]"), "")
    assert others.normalize_str("".join(map(chr, cased))) == "".join(map(chr, cased)), "a fold of what has no case"
    text = MARK.join(map(chr, cased))  # apart, so that no two of them are taken for a third
    groups = set()
    for c in cased:
        parts = normalizers.Replace(Regex(rf"(?i)\x{{{c:x}}}"), "").normalize_str(text).split(MARK)
        same = tuple(d for d, part in zip(cased, parts) if part == "")
        assert c in same
        if len(same) > 1:
            groups.add(same)
    assert len({c for group in groups for c in group}) == sum(map(len, groups)), "the groups overlap"
    return sorted(groups)


def long_folds():
    """Code points that (?i) takes for two or three others, with those."""
    found = []
    for c in CODE_POINTS:
        fold = chr(c).casefold()
        if len(fold) > 1:
            match = normalizers.Replace(Regex(f"(?i){fold}"), "")
            assert match.normalize_str(chr(c)) == "" and match.normalize_str(fold) == "", hex(c)
            found.append((c, tuple(map(ord, fold))))
    return found


def unknown_to_normalization(reference):
    """The code points that `reference`, a newer unicodedata, normalizes and the wheel takes for ordinary characters."""
    whole = mapped(normalizers.NFKD())
    over, acute = mapped(normalizers.NFD(), after="\u0334"), mapped(normalizers.NFD(), before="\u0301")
    ordinary = set()
    for c in CODE_POINTS:
        char, order = chr(c), reference.combining(chr(c))
        if order > 0:
            known = acute[c][-1] == "\u0301" if order == 1 else over[c][0] == "\u0334"
        elif reference.decomposition(char):
            known = whole[c] != char
        else:
            continue
        if not known:
            ordinary.add(c)
    return ordinary


def replaced(keys, before="", after="", points=None):
    """What Precompiled with these replacements makes of each code point between two texts."""
    points = [c for c in points or CODE_POINTS if chr(c) != MARK and c != 0]
    parts = normalizers.Precompiled(charsmap(keys)).normalize_str(MARK.join(before + chr(c) + after for c in points))
    return dict(zip(points, parts.split(MARK)))


def replaced_itself(before="", after=""):
    """The code points that are replaced together with what follows; none of those that are in the texts."""
    found = set()
    for first in range(0, len(CODE_POINTS), 4096):
        points = CODE_POINTS[first:first + 4096]
        keys = {chr(c): "Z" for c in points if chr(c) not in MARK + before + after and c != 0}
        found.update(c for c, text in replaced(keys, before, after, points).items() if text == before + "Z")
    return found


def grapheme_classes():
    """Of each code point its class where Precompiled cuts text into clusters (Unicode Annex 29, as the wheel has it),
    0: none. A cluster that is shorter than 6 bytes is replaced if its beginning is, and what follows in it is lost:
    that tells clusters. Classes: 1 a cluster by itself, 2 goes with what is before it, 3 and an emoji may follow,
    with a joiner between (Extend), 4 and so may a consonant (InCB=Extend), 5 links two consonants, 6 goes with what
    follows, 7 emoji, 8 consonant."""
    ka, virama = "\u0915", "\u094d"
    classes = {}
    joins = {c for c, text in replaced({"a": "Z"}, "a").items() if text == "Z"}
    # Two emojis with a joiner are one cluster, of more than 5 bytes: its characters are replaced one by one.
    pair = "\u200d\u00a9\u0301"
    emoji = {c for c, text in replaced({"\u00a9": "Z"}, "\u00a9\u200d").items() if text.startswith("Z\u200d")} - joins
    extend = {c for c, text in replaced({"\u00a9": "Z"}, "\u00a9", pair).items() if text.endswith("Z\u0301")} & joins
    one_by_one = dict(after=ka + "\u0301")
    linker = {c for c, text in replaced({ka: "Z"}, ka, **one_by_one).items() if text.endswith("Z\u0301")} & joins
    between = {c for c, text in replaced({ka: "Z"}, ka + virama, **one_by_one).items() if text.endswith("Z\u0301")}
    alone = replaced_itself(ka + virama, "\u0301")  # ends a cluster before it: consonants do not
    together = replaced_itself("", "\u0301")
    consonants = together - alone - joins
    before = replaced_itself("", "a")
    for points, value in ((joins, 2), (extend, 3), (between & joins, 4), (linker, 5), (before, 6), (emoji, 7),
                          (consonants, 8)):
        classes.update(dict.fromkeys(points, value))
    controls = {c for c in CODE_POINTS if c not in together | joins | {ord(MARK)} and len(chr(c).encode()) < 4}
    classes.update(dict.fromkeys(controls, 1))
    return classes
