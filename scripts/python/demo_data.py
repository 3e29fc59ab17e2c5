"""Text for the demo model: reading, splitting, tokenizing.

A domain is a list of documents. Documents are split into training and held-out ones before the tokenizer is trained, so
that held-out text is seen by nothing. Works of prose are held out whole; short documents are held out by a hash of
their first line, so that questions which occur several times fall on one side only.
"""

import hashlib
import pathlib
import re
import sysconfig

EOT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# Qwen2's pre-tokenizer: contractions, words with one leading character, single digits, punctuation runs, line breaks,
# white space.
SPLIT_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Share of a training batch, where the text comes from, under which licence, and whether held-out text of it may be
# committed.
DOMAINS = {
    "novels": dict(share=0.20, file="novels_en.txt", licence="public domain", commit=True,
                   holdout=["Silver Blaze", "The Canterville Ghost"]),
    "philosophy": dict(share=0.13, file="philosophy_econ_en.txt", licence="public domain", commit=True,
                       holdout=["Apology of Socrates", "Poetics"]),
    "shakespeare": dict(share=0.14, file="shakespeare/input.txt", licence="public domain", commit=True),
    "recipes": dict(share=0.08, file="recipes_en.txt", licence="Unlicense (public domain)", commit=True),
    "maths": dict(share=0.12, file="math_word_problems.txt", licence="MIT", commit=False),
    "dialogue": dict(share=0.05, file="dialogue_chatterbot.txt", licence="BSD-3-Clause", commit=False),
    "wikipedia": dict(share=0.14, file="wikitext-2", licence="CC BY-SA 3.0", commit=False),
    "python": dict(share=0.14, file=None, licence="PSF-2.0", commit=False),
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bucket(key: str) -> float:
    """A number in [0, 1) that depends on the key alone."""
    return int(sha256(key.encode())[:8], 16) / 2**32


def as_chat(question: str, answer: str) -> str:
    return f"{IM_START}user\n{question.strip()}{IM_END}\n{IM_START}assistant\n{answer.strip()}{IM_END}\n"


def stdlib_files():
    """Python's standard library without its tests and without generated or data-like modules."""
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    skip = {
        "site-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data", "__pycache__", "encodings", "turtledemo"
    }
    for path in sorted(root.rglob("*.py")):
        rel = path.relative_to(root)
        if not skip & set(rel.parts) and path.stat().st_size < 150_000:
            yield str(rel), path


class Domain:
    """Documents of one domain: `train` and `held` are lists of text; `chat` holds ChatML renderings of training
    documents."""

    def __init__(self, name: str, text_dir: pathlib.Path):
        self.name, self.train, self.held, self.chat, self.sources = name, [], [], [], []
        spec = DOMAINS[name]
        if name == "python":
            self._load_python()
        else:
            path = text_dir / spec["file"]
            files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
            if not files or not all(f.is_file() for f in files):
                raise SystemExit(f"error: {path}: no such text; --text must name a folder with {spec['file']}")
            texts = []
            for f in files:
                raw = f.read_bytes()
                self.sources.append(dict(file=str(f.relative_to(text_dir)), bytes=len(raw), sha256=sha256(raw)))
                texts.append(raw.decode("utf-8").replace("\r\n", "\n"))
            getattr(self, "_split_" + name)("\n\n".join(texts), spec)

    def _load_python(self):
        digest, total = hashlib.sha256(), 0
        for rel, path in stdlib_files():
            raw = path.read_bytes()
            digest.update(raw)
            total += len(raw)
            text = raw.decode("utf-8", errors="replace")
            (self.held if bucket("py:" + rel) < 0.02 else self.train).append(text)
        self.sources.append(
            dict(file="Python standard library (*.py, sorted by path, concatenated)", bytes=total,
                 sha256=digest.hexdigest()))

    def _split_works(self, text, spec):
        for work in re.split(r"(?m)^(?=# Title: )", text):
            if work.strip():
                title = work.split("\n", 1)[0].removeprefix("# Title:").strip()
                (self.held if title in spec["holdout"] else self.train).append(work)

    _split_novels = _split_philosophy = _split_works

    def _split_shakespeare(self, text, spec):
        # The last 8 % (the end of The Tempest onwards is not marked in the file); cut at a speech.
        cut = text.index("\n\n", int(len(text) * 0.92)) + 2
        self.train.append(text[:cut])
        self.held.append(text[cut:])

    def _split_recipes(self, text, spec):
        for doc in re.split(r"(?m)^(?=---\ntitle:)", text):
            if doc.strip():
                title = doc.split("\n", 2)[1]
                (self.held if bucket("recipe:" + title) < 0.06 else self.train).append(doc.rstrip() + "\n")

    def _qa(self, text, question, answer, held_share, chat_share):
        seen = set()
        for doc in re.split(r"\n\s*\n(?=" + question + ")", text):
            doc = doc.strip() + "\n"
            if not doc.startswith(question) or doc in seen:
                continue
            seen.add(doc)
            q, _, a = doc.partition("\n" + answer)
            if bucket("qa:" + q) < held_share:
                self.held.append(doc)
                continue
            self.train.append(doc)
            if a and bucket("chat:" + q) < chat_share:
                self.chat.append(as_chat(q.removeprefix(question), a))

    def _split_maths(self, text, spec):
        self._qa(text, "Question: ", "Answer: ", held_share=0.015, chat_share=0.3)

    def _split_dialogue(self, text, spec):
        self._qa(text, "Q: ", "A: ", held_share=0.08, chat_share=1.0)

    def _split_wikipedia(self, text, spec):
        for doc in re.split(r"(?m)^(?= = [^=\n]+ = \n)", text):
            if doc.strip():
                (self.held if bucket("wiki:" + doc[:60]) < 0.05 else self.train).append(doc.strip() + "\n")

    def held_text(self, limit: int = 200_000) -> str:
        """Held-out text, cut at a line so that it is at most `limit` bytes."""
        raw = "\n".join(self.held).encode()
        if len(raw) > limit:
            raw = raw[: raw.rindex(b"\n", 0, limit) + 1]
        return raw.decode()


def train_tokenizer(domains, vocab_size: int):
    """A byte-level BPE. Every domain gets about the same say in the merges, as far as its size allows."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True, normalized=False) for t in (EOT, IM_START, IM_END)]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)

    def pieces():
        for domain in domains:
            budget = 1_500_000
            docs = sorted(domain.train, key=lambda d: sha256(d.encode()))
            for doc in docs:
                for at in range(0, len(doc), 20_000):
                    if budget > 0 and bucket(f"{doc[:40]}:{at}") < max(0.15, 20_000 / (len(doc) + 1)):
                        yield doc[at : at + 20_000]
                        budget -= 20_000 if at + 20_000 < len(doc) else len(doc) - at

    tok.train_from_iterator(pieces(), trainer)
    return tok


def tokenizer_config(context: int) -> dict:
    added = {
        str(i): dict(content=t, lstrip=False, normalized=False, rstrip=False, single_word=False, special=True)
        for i, t in enumerate((EOT, IM_START, IM_END))
    }
    return dict(
        add_bos_token=False,
        add_prefix_space=False,
        added_tokens_decoder=added,
        additional_special_tokens=[IM_START, IM_END],
        bos_token=None,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        eos_token=EOT,
        errors="replace",
        model_max_length=context,
        pad_token=EOT,
        split_special_tokens=False,
        tokenizer_class="PreTrainedTokenizerFast",
        unk_token=None,
    )
