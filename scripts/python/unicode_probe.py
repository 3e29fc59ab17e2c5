"""What the `tokenizers` wheel knows of each code point, found by asking it: nothing here is taken from another library.

The wheel has several Unicode tables of different versions: Oniguruma's for regexes, the Rust library's and the regex
crate's for digits, spaces and words, older ones for punctuation and normalization. So each part is asked by itself.
"""

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
