"""Names that a source takes from a neighbour by accident. Sources of a folder are compiled together (decision 18), so
what one has in its anonymous namespace, and what it says it is `using`, the others find too. Each must compile alone:
a constant of the same name may have another value, and -DMOESTRO_UNITY=OFF shall go on working."""

import re

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
NOT_CODE = re.compile(
    r'^\s*#\s*include[^\n]*|R"([^(\s]*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL | re.MULTILINE)
# What stands at the beginning of a line, so in a namespace.
CONSTANT = re.compile(r"^(?:inline |static )*constexpr [^=\n(]*?\b(k[A-Z]\w*)\b", re.MULTILINE)
CONSTANT_NAME = re.compile(r"k[A-Z]\w*")
USING = re.compile(r"^using (?:[\w:]+::)?(\w+)(?: =[^;]*)?;", re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class|enum) (\w+)[^;\n]*\{", re.MULTILINE)
FUNCTION = re.compile(r"^[A-Za-z_][\w:<>,&*\[\] ]*[ &*](\w+)\([^;]*?\)[^;{}()]*\{", re.MULTILINE)
UNQUALIFIED = re.compile(r"(?<!\w)(?<!::)(?<!->)(?<!\.)[A-Za-z_]\w*")
NO_TYPES = {"return", "co_return", "co_await", "else", "throw", "case", "new", "delete", "not", "and", "or"}


def code_of(text):
    return NOT_CODE.sub('""', text)


def names_of(code):
    """What the sources that are compiled with this one find, too."""
    found = set()
    for kind in (CONSTANT, USING, TYPE, FUNCTION):
        found.update(kind.findall(code))
    return found


def declares(code, name):
    """Whether it says itself what `name` is, if only as a variable of a function."""
    if "using namespace" in code and not CONSTANT_NAME.fullmatch(name):  # it may be from there
        return True
    if re.search(rf"\b(?:using|namespace|struct|class|enum|typename|concept)\b[^;{{\n]*\b{name}\b", code):
        return True
    for word in re.findall(rf"(\w[\w:<>,&*\]]*) +[&*]*{name}\b\s*(?:[=({{\[;,):]|$)", code, re.MULTILINE):
        if word not in NO_TYPES:
            return True
    # A structured binding, an enumerator, a variable that is not the first of several.
    return bool(re.search(rf"auto[&* ]*\[[^\]]*\b{name}\b|enum [^{{;]*\{{[^}}]*\b{name}\b|[,*&] *{name} *=[^=]", code))


class Headers:
    """What the headers of the tree say, with those that they include."""

    def __init__(self, root):
        self.root, self.words, self.includes = root, {}, {}

    def read(self, name):
        if name not in self.words:
            path = self.root / name
            text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            self.includes[name] = INCLUDE.findall(text)
            self.words[name] = set(UNQUALIFIED.findall(code_of(text)))
        return self.words[name]

    def all_words(self, text):
        """The words of all headers that a source with this text includes."""
        words, todo, seen = set(), INCLUDE.findall(text), set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            words |= self.read(name)
            todo += self.includes[name]
        return words


def check_neighbours(root, folders):
    headers = Headers(root)
    of_headers = {}
    for top in folders:
        for path in sorted((root / top).rglob("*.h")):
            name = path.relative_to(root).as_posix()
            code = code_of(path.read_text(encoding="utf-8", errors="replace"))
            of_headers |= {constant: name for constant in CONSTANT.findall(code)}
    for top in folders:
        for folder in sorted({p.parent for p in (root / top).rglob("*.cc")}):
            texts = {p.name: p.read_text(encoding="utf-8", errors="replace") for p in sorted(folder.glob("*.cc"))}
            codes = {name: code_of(text) for name, text in texts.items()}
            defined = {name: names_of(code) for name, code in codes.items()}
            for name, code in codes.items():
                theirs = of_headers | {n: other for other in defined if other != name for n in defined[other]}
                used = set(UNQUALIFIED.findall(code)) & theirs.keys() - defined[name]
                if not used:
                    continue
                known = headers.all_words(texts[name])
                for one in sorted(used - known):
                    if not declares(code, one):
                        where = (folder / name).relative_to(root).as_posix()
                        yield f"{where}: {one} is that of {theirs[one]}; it must compile without its neighbours"
