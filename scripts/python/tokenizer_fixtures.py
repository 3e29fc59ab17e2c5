"""Makes the tokenizer cases under tests/fixtures/tokenizers: small tokenizers of the kinds that the served families
use, trained here on a few texts, with the ids and texts that Hugging Face tokenizers gives for hard inputs.

NAME.json: a tokenizer.json. NAME.cases.json: {"tokenizers": version, "cases": [{"text", "ids": without special tokens,
"special_ids": with them, "decoded": of special_ids with special tokens, "plain": of special_ids without them}]}.
"""

import json
import pathlib
import random
import unicodedata

from charsmap import charsmap

GPT2 = None  # the pattern that ByteLevel brings
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
    r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = [
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?" + _UPPER + "*" + _LOWER + "+" + _SHORT + r"|[^\r\n\p{L}\p{N}]?" + _UPPER + "+" +
    _LOWER + "*" + _SHORT + r"|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
]
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB_SIZE = 640
SEED = 5

HARD = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n \t\n",
    "a",
    " a",
    "a ",
    "Hello world",
    " Hello  world ",
    "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～",
    "I'll don't WE'RE it's THEY'VE o'clock 'tis",
    "123456789 3.14159 1,000,000 ½ Ⅷ ٣",
    "x=1;\n\tif (x) {\n\t\treturn  x+1;\n    }\n",
    "é è ê\u0301 e\u0301 \u1e9b\u0323 ﬁ Å Å",
    "नमस्ते 你好，世界。 こんにちは 안녕하세요 שלום عالم",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽",
    "\u200b\u00a0\u3000\u2028\ufeff",
    "ＡＢＣ ①② ℌ",
    "▁under ▁▁line _a__b",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "a<|im_start|>b <|im_end|> c",
    "<s>text</s> <s> </s><unk>",
    "<0x41><0x0A>",
    "Ünïcödé naïve façade Straße ŒUVRE",
    "!!!???...---***___~~~```",
    "    four\n  two\n        eight spaces",
    "\x00\x01\x7f",
    "tab\tsep\x0bvt\x0cff\x85nel",
    "https://example.org/a?b=c&d=%20#e",
    "The quick brown fox jumps over the lazy dog. " * 3,
    "the the the thethe Thethe",
    "\U0001f9e0\U00020000\U0010ffff",
]

# Short clusters of characters, which Precompiled replaces as their beginning is.
CLUSTERS = [
    "e\u0301a\u0308 n\u0303o\u0302\u0301 \u0301e", "\u00e9\u0301 \u00c5\u030a\u0323 \u1e9b\u0323 x\u0301",
    "\r\n\r \n\r\n", "a\u200db \u00a9\u200d\u00ae\u0301 \u00a9\u0301", "\u0600a \u0600\u0301 \u0600\r\n",
    "\u0915\u094d\u0924\u0301 \u0915\u0301", "\u1100\u1161\u0301 \u1161\u0301 \uac00\u11a8\u0301",
    "\ufb01\u0301 \uff21\u0301 \uff76\uff9e \u2460\u20e3", "\U0001f1e9\U0001f1ea\u0301 \U0001f468\u200d\U0001f469",
    "\u0e33a\u0e33 \u0e01\u0e33", "\u0085\u0301 \x01\u0301 \u200b\u0301", "\x01start", "\u00c5\u00df\u017f\u212b\u2126"
]

# What versions of Unicode and dialects of regexes differ about; not trained on.
ODD = [
    " \U0001fae8", "\u1c89\u1c8a \ua7cb \U000105c0", "\U00010d50\u0897 \U0001e5ee", "x² ³½ ¼y 1¾", "、々〇漢字ー・｡",
    "\u1abf\u0bcd\u0301\u0323 e\u0897", "I'ſ DON'T ﬆ ß ẞ ŉ", "\u0378 \ufffd \u200b \u00ad \ufeffa",
    "unaffable, UNAFFABLE! don't do not ' s n't", "ΑΣ İı ǅ ŒÉ", "x" * 120, "0123456789" * 3,
    "カタカナ ひらがな 漢字 hangul 한글 mixed текст", "\u01c5\u0345 ﷺ \u0f77", "\u05bf\u05c7 שָׁלוֹם", "<sp> <sp>a <gap><gap>"
]


def corpus(demo):
    text = [(demo / "heldout" / f"{name}.txt").read_text(encoding="utf-8")[:30_000]
            for name in ("novels", "recipes", "shakespeare")]
    return text + HARD * 20


def inputs(kind):
    """The hard texts, and mixtures of them cut at random characters."""
    rng = random.Random(SEED)
    alphabet = "".join(HARD) + " \n'" * 40
    mixed = ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))) for _ in range(40)]
    glued = ["".join(rng.choice(HARD) for _ in range(3)) for _ in range(10)]
    pieces = [c for text in CLUSTERS for c in text] + [" ", "a", "\u0301"] * 20
    clusters = ["".join(rng.choice(pieces) for _ in range(rng.randint(2, 30))) for _ in range(60)]
    return HARD + mixed + glued + ODD + (CLUSTERS + clusters if kind in ("t5", "xlm_r", "nllb") else [])


def byte_level(pattern, specials, texts, normalizer=None, prefix_space=False, post=None, ignore_merges=False):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tok.normalizer = normalizer
    if pattern is None:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    else:
        patterns = [pattern] if isinstance(pattern, str) else pattern
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(p), "isolated")
             for p in patterns] + [pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE,
                                  special_tokens=specials,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tok.train_from_iterator(texts, trainer)
    if post:
        tok.post_processor = post(tok)
    return tok


def gpt2(texts):
    return byte_level(GPT2, ["<|endoftext|>"], texts)


def qwen2(texts):
    from tokenizers import normalizers

    return byte_level(QWEN2, CHATML, texts, normalizer=normalizers.NFC())


def llama3(texts):
    from tokenizers import processors

    def post(tok):
        begin = "<|begin_of_text|>"
        template = processors.TemplateProcessing(single=f"{begin} $A",
                                                 pair=f"{begin} $A {begin}:1 $B:1",
                                                 special_tokens=[(begin, tok.token_to_id(begin))])
        return processors.Sequence([processors.ByteLevel(trim_offsets=False), template])

    return byte_level(LLAMA3, ["<|begin_of_text|>", "<|eot_id|>"], texts, post=post, ignore_merges=True)


def olmo(texts):
    """GPT-NeoX's way: NFC, runs of spaces as added tokens that are not special, and tokens that take the spaces beside
    them."""
    from tokenizers import AddedToken, normalizers

    tok = byte_level(GPT2, ["<|endoftext|>", "<|padding|>"], texts, normalizer=normalizers.NFC())
    tok.add_tokens([AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)])
    tok.add_tokens([
        AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("fox", single_word=True, normalized=False)
    ])
    return tok


def byte_fallback(texts, dress, post=True):
    """A BPE with byte fallback as Llama 2 and Mixtral have it: <unk>, <s>, </s>, the 256 bytes, then pieces of ▁-marked
    words."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    raw.train_from_iterator([t for t in texts if t.isascii()],
                            trainers.BpeTrainer(vocab_size=VOCAB_SIZE - 259,
                                                special_tokens=["<unk>"],
                                                show_progress=False))
    learned = json.loads(raw.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    names += [t for t, _ in sorted(learned["vocab"].items(), key=lambda item: item[1]) if t not in names]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    tok = Tokenizer(
        models.BPE(vocab={
            t: i
            for i, t in enumerate(names)
        },
                   merges=merges,
                   unk_token="<unk>",
                   fuse_unk=True,
                   byte_fallback=True))
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    dress(tok)
    tok.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "),
         decoders.ByteFallback(),
         decoders.Fuse(),
         decoders.Strip(" ", 1, 0)])
    if post:
        tok.post_processor = processors.TemplateProcessing(single="<s> $A",
                                                           pair="<s> $A <s> $B",
                                                           special_tokens=[("<s>", 1)])
    return tok


def llama2(texts):
    from tokenizers import normalizers

    def dress(tok):
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])

    return byte_fallback(texts, dress)


def mixtral(texts):
    """The later spelling of the same: no normalizer, Metaspace that marks only the first piece."""
    from tokenizers import pre_tokenizers

    def dress(tok):
        tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)

    return byte_fallback(texts, dress)


def deepseek(texts):
    return byte_level(DEEPSEEK, ["<|begin|>", "<|end|>"], texts)


def kimi(texts):
    return byte_level(KIMI, ["[BOS]", "[EOS]"], texts)


def bert(texts):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tok.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=VOCAB_SIZE, special_tokens=specials, show_progress=False))
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tok.decoder = decoders.WordPiece()
    return tok


def unigram(texts, byte_fallback=False):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    raw = Tokenizer(models.Unigram())
    raw.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(),
         normalizers.Replace(Regex(" {2,}"), " ")])
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace()])
    raw.train_from_iterator(
        texts,
        trainers.UnigramTrainer(vocab_size=VOCAB_SIZE,
                                special_tokens=["<unk>", "<s>"],
                                unk_token="<unk>",
                                show_progress=False))
    learned = json.loads(raw.to_str())["model"]
    vocab = [(token, score) for token, score in learned["vocab"]]
    if byte_fallback:  # few enough of other scripts' characters that bytes are needed
        vocab = [(token, score)
                 for token, score in vocab if token.replace("▁", "").isascii()] + [(f"<0x{b:02X}>", -20.0)
                                                                                   for b in range(256)]
    tok = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=byte_fallback))
    tok.normalizer, tok.pre_tokenizer = raw.normalizer, raw.pre_tokenizer
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>")])
    if byte_fallback:
        tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    else:
        tok.decoder = decoders.Metaspace()
    return tok


def unigram_bytes(texts):
    return unigram(texts, byte_fallback=True)


def replacements():
    """A part of what SentencePiece's nmt_nfkc has: compatibility forms, compositions of Latin letters, odd spaces, and
    controls that go."""
    ranges = [(0x80, 0x250), (0x1E00, 0x1F00), (0x2000, 0x2070), (0x2100, 0x2190), (0x2460, 0x24D0), (0x3000, 0x3100),
              (0xFB00, 0xFB07), (0xFF00, 0xFFF0)]
    points = [chr(c) for first, end in ranges for c in range(first, end)]
    found = {c: unicodedata.normalize("NFKC", c) for c in points}
    for c in points:
        apart = unicodedata.normalize("NFD", c)
        found[apart] = unicodedata.normalize("NFKC", c)
    found.update(dict.fromkeys("\t\n\f\r\u0085\u1680\u200b\u200e\u200f\u2028\u2029\ufeff\ufffd", " "))
    found.update(dict.fromkeys("\x01\x02\x08\x0b\x0e\x1f\x7f", ""))
    return {key: text for key, text in found.items() if key != text}


def precompiled_unigram(texts, specials, squeeze=False):
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    raw = Tokenizer(models.Unigram())
    raw.normalizer = normalizers.Precompiled(charsmap(replacements()))
    if squeeze:
        raw.normalizer = normalizers.Sequence([raw.normalizer, normalizers.Replace(Regex(" {2,}"), " ")])
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=VOCAB_SIZE, special_tokens=specials,
                                                           unk_token="<unk>", show_progress=False))
    learned = json.loads(raw.to_str())["model"]["vocab"]
    vocab = [(token, 0.0) for token in specials] + [(t, s) for t, s in learned if t not in specials]
    tok = Tokenizer(models.Unigram(vocab, unk_id=specials.index("<unk>")))
    tok.normalizer = raw.normalizer
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in specials])
    return tok


def t5(texts):
    """T5's: Unigram after SentencePiece's own normalizer, and the end of the text."""
    from tokenizers import decoders, pre_tokenizers, processors

    tok = precompiled_unigram(texts, ["<pad>", "</s>", "<unk>"])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                       special_tokens=[("</s>", 1)])
    tok.decoder = decoders.Metaspace()
    return tok


def xlm_r(texts):
    """XLM-R's: the same with a begin, and runs of spaces as one."""
    from tokenizers import decoders, pre_tokenizers, processors

    tok = precompiled_unigram(texts, ["<s>", "<pad>", "</s>", "<unk>"], squeeze=True)
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                       special_tokens=[("<s>", 0), ("</s>", 2)])
    tok.decoder = decoders.Metaspace()
    return tok


def nllb(texts):
    """NLLB's: BPE after SentencePiece's normalizer, with runs of unknown characters as one token, and the language
    before the text."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers import trainers

    specials, languages = ["<s>", "<pad>", "</s>", "<unk>"], ["eng_Latn", "fra_Latn", "<mask>"]
    normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap(replacements())), normalizers.Replace(Regex(" {2,}"), " ")])
    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.normalizer = normalizer
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=specials,
                                                       show_progress=False))
    learned = json.loads(raw.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    tok = Tokenizer(models.BPE(vocab=learned["vocab"], merges=merges, unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in specials + languages])
    english = tok.token_to_id("eng_Latn")
    tok.post_processor = processors.TemplateProcessing(single="eng_Latn $A </s>", pair="eng_Latn $A $B </s>",
                                                       special_tokens=[("eng_Latn", english), ("</s>", 2)])
    tok.decoder = decoders.Metaspace()
    return tok


def word_level(texts):
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

    tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(),
        pre_tokenizers.Digits(),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.FixedLength(length=6)
    ])
    tok.train_from_iterator(
        texts, trainers.WordLevelTrainer(vocab_size=VOCAB_SIZE, special_tokens=["[UNK]"], show_progress=False))
    tok.add_tokens([AddedToken("<sp>", lstrip=True, single_word=True), AddedToken("<gap>", special=True)])
    return tok


def as_old_file(spec):
    """As files from before 2020 are, and with ids that leave gaps, which the library closes."""
    del spec["model"]["type"]
    for n, token in enumerate(spec["added_tokens"]):
        token["id"] += 100 * n
    return spec


KINDS = dict(gpt2=gpt2,
             qwen2=qwen2,
             llama3=llama3,
             olmo=olmo,
             llama2=llama2,
             mixtral=mixtral,
             deepseek=deepseek,
             kimi=kimi,
             bert=bert,
             unigram=unigram,
             unigram_bytes=unigram_bytes,
             t5=t5,
             xlm_r=xlm_r,
             nllb=nllb,
             word_level=word_level)
EDITS = dict(word_level=as_old_file)


def make(kind, out, demo):
    import tokenizers

    spec = json.loads(KINDS[kind](corpus(pathlib.Path(demo))).to_str())
    text = json.dumps(EDITS.get(kind, lambda spec: spec)(spec), ensure_ascii=False, separators=(",", ":"))
    tok = tokenizers.Tokenizer.from_str(text)
    cases = []
    for case in inputs(kind):
        ids, special = (tok.encode(case, add_special_tokens=s).ids for s in (False, True))
        cases.append(
            dict(text=case,
                 ids=ids,
                 special_ids=special,
                 decoded=tok.decode(special, skip_special_tokens=False),
                 plain=tok.decode(special, skip_special_tokens=True)))
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{kind}.json").write_text(text)
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases)
    (out / f"{kind}.cases.json").write_text(f'{{"tokenizers": "{tokenizers.__version__}", "cases": [\n{lines}\n]}}\n')
    print(f"{kind}: {tok.get_vocab_size()} tokens, {len(cases)} cases")
