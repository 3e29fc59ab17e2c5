"""Makes the tokenizer cases under tests/fixtures/tokenizers: small tokenizers of the kinds that the served families use, trained here on a few
texts, with the ids and texts that Hugging Face tokenizers gives for hard inputs.

NAME.json: a tokenizer.json. NAME.cases.json: {"tokenizers": version, "cases": [{"text", "ids": without special tokens, "special_ids": with them,
"decoded": of special_ids with special tokens, "plain": of special_ids without them}]}.
"""

import json
import pathlib
import random

GPT2 = None  # the pattern that ByteLevel brings
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB_SIZE = 640
SEED = 5

HARD = [
    "", " ", "  ", "\n", "\r\n \t\n", "a", " a", "a ", "Hello world", " Hello  world ", "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～",
    "I'll don't WE'RE it's THEY'VE o'clock 'tis", "123456789 3.14159 1,000,000 ½ Ⅷ ٣", "x=1;\n\tif (x) {\n\t\treturn  x+1;\n    }\n",
    "é è ê\u0301 e\u0301 \u1e9b\u0323 ﬁ Å Å", "नमस्ते 你好，世界。 こんにちは 안녕하세요 שלום عالم", "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽", "\u200b\u00a0\u3000\u2028\ufeff", "ＡＢＣ ①② ℌ",
    "▁under ▁▁line _a__b", "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>", "a<|im_start|>b <|im_end|> c", "<s>text</s> <s> </s><unk>", "<0x41><0x0A>",
    "Ünïcödé naïve façade Straße ŒUVRE", "!!!???...---***___~~~```", "    four\n  two\n        eight spaces", "\x00\x01\x7f", "tab\tsep\x0bvt\x0cff\x85nel",
    "https://example.org/a?b=c&d=%20#e", "The quick brown fox jumps over the lazy dog. " * 3, "the the the thethe Thethe", "\U0001f9e0\U00020000\U0010ffff",
]


def corpus(demo):
    text = [(demo / "heldout" / f"{name}.txt").read_text(encoding="utf-8")[:30_000] for name in ("novels", "recipes", "shakespeare")]
    return text + HARD * 20


def inputs():
    """The hard texts, and mixtures of them cut at random characters."""
    rng = random.Random(SEED)
    alphabet = "".join(HARD) + " \n'" * 40
    mixed = ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))) for _ in range(40)]
    glued = ["".join(rng.choice(HARD) for _ in range(3)) for _ in range(10)]
    return HARD + mixed + glued


def byte_level(pattern, specials, texts, normalizer=None, prefix_space=False, post=None, ignore_merges=False):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tok.normalizer = normalizer
    if pattern is None:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    else:
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
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
        template = processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, tok.token_to_id(begin))])
        return processors.Sequence([processors.ByteLevel(trim_offsets=False), template])

    return byte_level(LLAMA3, ["<|begin_of_text|>", "<|eot_id|>"], texts, post=post, ignore_merges=True)


def olmo(texts):
    """GPT-NeoX's way: NFC, runs of spaces as added tokens that are not special, and tokens that take the spaces beside them."""
    from tokenizers import AddedToken, normalizers

    tok = byte_level(GPT2, ["<|endoftext|>", "<|padding|>"], texts, normalizer=normalizers.NFC())
    tok.add_tokens([AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)])
    tok.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("fox", single_word=True, normalized=False)])
    return tok


def byte_fallback(texts, dress, post=True):
    """A BPE with byte fallback as Llama 2 and Mixtral have it: <unk>, <s>, </s>, the 256 bytes, then pieces of ▁-marked words."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    raw.train_from_iterator([t for t in texts if t.isascii()], trainers.BpeTrainer(vocab_size=VOCAB_SIZE - 259, special_tokens=["<unk>"], show_progress=False))
    learned = json.loads(raw.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    names += [t for t, _ in sorted(learned["vocab"].items(), key=lambda item: item[1]) if t not in names]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(names)}, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    dress(tok)
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    if post:
        tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
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


KINDS = dict(gpt2=gpt2, qwen2=qwen2, llama3=llama3, olmo=olmo, llama2=llama2, mixtral=mixtral)


def make(kind, out, demo):
    import tokenizers

    tok = KINDS[kind](corpus(pathlib.Path(demo)))
    cases = []
    for text in inputs():
        ids, special = (tok.encode(text, add_special_tokens=s).ids for s in (False, True))
        cases.append(dict(text=text, ids=ids, special_ids=special, decoded=tok.decode(special, skip_special_tokens=False),
                          plain=tok.decode(special, skip_special_tokens=True)))
    out.mkdir(parents=True, exist_ok=True)
    tok.save(str(out / f"{kind}.json"), pretty=False)
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases)
    (out / f"{kind}.cases.json").write_text(f'{{"tokenizers": "{tokenizers.__version__}", "cases": [\n{lines}\n]}}\n')
    print(f"{kind}: {tok.get_vocab_size()} tokens, {len(cases)} cases")
