#!/usr/bin/env python3
"""Checks the tree against the house rules. Prints one line a breach; exits 1 if there is one.   check_tree.py ROOT"""

import pathlib
import re
import sys

from neighbours import check_neighbours

LINES_MAX = 500
README_LINES_MAX = 15
COLUMNS_MAX = 120
PAGE_LINES_MAX = 100  # of a page in docs/ without a table of contents: two screens
CODE = {".h", ".cc", ".cu", ".cuh"}
TEXT = {".inc", ".py", ".md", ".cmake", ".fbs", ".yaml", ".yml"}
TOP_FOLDERS = ["common", "store", "kernels", "orchestrator", "services", "tests", "configs"]

# Which folders of the tree a file in each top folder may include. The engine, a library under services/, uses store and
# kernels.
MAY_INCLUDE = {
    "common": {"common"},
    "store": {"common", "store"},
    "kernels": {"common", "kernels"},
    "orchestrator": {"common", "orchestrator"},
    "services": {"common", "store", "kernels", "orchestrator", "services"},
}

# A third-party header, as a pattern, and the places that may include it. Elsewhere its users go through what wraps it.
ONE_PLACE = {
    r"zmq(_addon)?\.h(pp)?": ["common/net/"],
    r"liburing(/.*)?\.h": ["store/reader/"],
    r"yaml-cpp/.*": ["common/config/yaml_file.cc"],
    r"boost/(asio|beast)(/.*|\.hpp)": [
        "common/tls/", "orchestrator/http/", "services/cli/common/http_client.cc",
        "services/cli/bench/serve/load_client.cc"
    ],
    r"spdlog/.*": ["common/log.cc", "common/log_format.cc", "common/log_formatter.h"],
    r"sqlite3\.h": ["orchestrator/state/"],
    r"hiredis/.*": ["orchestrator/state/"],
    r"pcre2\.h": ["orchestrator/tokenizer/"],
    r"utf8proc\.h": ["orchestrator/tokenizer/", "orchestrator/chat/", "services/cli/top/"],
    r"(dnnl|oneapi/dnnl).*": ["kernels/cpu/"],
    r"immintrin\.h": ["kernels/", "services/cli/bench/"],
    r"(cuda|cublas|nccl).*\.h": ["kernels/cuda/"],
    r"CLI/.*": ["services/command_line/"],
}

# Headers with values of nlohmann's JSON as members. Others only name its types: they include json_fwd.hpp, which takes
# a second less to compile, and their .cc files include json.hpp.
JSON_VALUES = {
    "orchestrator/api/chat_deltas.h", "orchestrator/api/completion_line.h", "orchestrator/api/completion_request.h",
    "orchestrator/api/status_history.h", "orchestrator/api/tokenize_request.h", "orchestrator/dialects/dialect_text.h",
    "orchestrator/dialects/responses_items.h"
}

# Lines of these are records, not text for people.
DATA_FOLDERS = ("tests/fixtures/", "tests/fuzz/corpus/", "tests/chat/models/", "tests/chat/expected/")

# The call's result is gone before the loop begins, unless it is a reference: for (x : report()["samples"]).
LOOP_OVER_ELEMENT = re.compile(r"for \([^;:]* : (?:[^();]|\([^()]*\))*\w\([^()]*\)\[")
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


# Who runs a step gets its tasks from a schedule; a loop over layers that computes is a second schedule.
RUNS_STEPS = ("services/worker/engine/cpu_pass", "services/worker/engine/forward", "services/worker/cuda/cuda_pass",
              "common/tier/replay.")
LOOP_OVER_LAYERS = re.compile(r"\bfor \(.*\blayers\w*")
COMPUTES = re.compile(r"\b(attention|router|shared_expert|dense_mlp|expert_ffn|experts|combine\w*|front\w*)\(")


def layer_loops(text):
    """Numbers of lines that begin a loop over layers in whose body something computes."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not LOOP_OVER_LAYERS.search(line):
            continue
        indent = len(line) - len(line.lstrip())
        for inner in lines[number + 1:]:
            if inner.strip() and len(inner) - len(inner.lstrip()) <= indent:
                break
            if COMPUTES.search(inner):
                yield number + 1
                break


def files_of(root):
    """Source and text files under root, without build folders and hidden ones."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if not path.is_file() or path.is_symlink() or parts[0] in ("build", "packs", "models"):
            continue
        if any(part.startswith(".") or part == "__pycache__" for part in parts):
            continue
        if path.suffix in CODE | TEXT or path.name == "CMakeLists.txt" or parts[0] == "scripts" or is_script(path):
            yield path


def is_script(path):
    if path.suffix not in ("", ".sh"):
        return False
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def has_lines_for_people(path, text):
    """C++, CUDA, Python, CMake, schemas, Markdown and scripts; not YAML and HTML, whose long lines are often one
    word."""
    return (path.suffix in CODE | {".inc", ".py", ".md", ".cmake", ".fbs"} or path.name == "CMakeLists.txt" or
            text.startswith("#!"))


def is_data(name):
    return name.startswith(DATA_FOLDERS) and not name.endswith((".md", ".py"))


def check_includes(name, text):
    top = name.split("/")[0]
    for bracket, header in INCLUDE.findall(text):
        first = header.split("/")[0]
        allowed = MAY_INCLUDE.get(top)
        if allowed is not None and first in set(TOP_FOLDERS) | set(
                MAY_INCLUDE) and "/" in header and first not in allowed:
            yield f"{name}: includes {header}; {top}/ may include {', '.join(sorted(allowed))} only"
        if bracket == '"' and header.startswith(("../", "./")):
            yield f"{name}: includes {header}; includes start at the root of the tree"
        if top == "tests":
            continue
        if header == "nlohmann/json.hpp" and name.endswith(".h") and name not in JSON_VALUES:
            yield f"{name}: includes {header}; a header without values of it as members includes nlohmann/json_fwd.hpp"
        for pattern, places in ONE_PLACE.items():
            if re.fullmatch(pattern, header) and not any(name.startswith(place) for place in places):
                yield f"{name}: includes {header}, which belongs to {', '.join(places)} alone"


def check_code(name, text):
    lines = text.count("\n")
    if lines > LINES_MAX:
        yield f"{name}: {lines} lines; at most {LINES_MAX}"
    if name.endswith(".h") and "#pragma once" not in text:
        yield f"{name}: a header without #pragma once"
    yield from check_includes(name, text)
    if re.search(r"\bgetenv\b", text) and not name.startswith("tests/") and name not in GETENV:
        yield f"{name}: getenv; settings come from common/config"
    if name.startswith(RUNS_STEPS):
        for number in layer_loops(text):
            yield f"{name}:{number}: loops over layers; a step's tasks come from a schedule (common/lanes)"
    for number, line in enumerate(text.splitlines(), 1):
        if LOOP_OVER_ELEMENT.search(line):
            yield f"{name}:{number}: loops over an element of what a call returns; give the result a name first"


# HOME-like places and terminals, which programs are told about by the environment alone; secrets, which command lines
# show to everybody; and who looks after a program.
GETENV = {
    "common/machine/supervisor.cc",
    "kernels/cuda/cuda_ops_delta.cc", "kernels/devices/device_registry.cc", "services/box/places.cc",
    "services/cli/common/run_dir.cc", "services/cli/up/process.cc", "services/cli/doctor/doctor_command.cc",
    "services/cli/common/server_options.cc", "services/cli/top/terminal.cc"
}


RAW_STRING = re.compile(r'R"([^(\s]*)\(.*?\)\1"', re.DOTALL)


def check_columns(name, text):
    """Lines end at 120 columns. Not counted: what C++ has in raw strings; tables, and lines with URLs, of Markdown."""
    if name.endswith((".cc", ".h", ".cu", ".cuh", ".inc")):
        text = RAW_STRING.sub(lambda raw: "\n" * raw[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) <= COLUMNS_MAX or "://" in line or (name.endswith(".md") and line.lstrip().startswith("|")):
            continue
        yield f"{name}:{number}: {len(line)} columns; at most {COLUMNS_MAX}"


def anchor_of(heading):
    """As on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_contents(name, text):
    """A long page of docs/ links to all of its sections before the first one."""
    if not name.startswith("docs/") or text.count("\n") <= PAGE_LINES_MAX:
        return
    top, *sections = re.split(r"^## ", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    links = re.findall(r"\]\(#([^)]*)\)", top)
    for section in sections:
        heading = section.partition("\n")[0]
        if anchor_of(heading) not in links:
            yield f"{name}: has more than {PAGE_LINES_MAX} lines, and no link to '{heading}' before its first section"


def check_links(root, path, name, text):
    for target in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        if not (path.parent / target.split("#")[0]).exists():
            yield f"{name}: links to {target}, which is not there"


def check_readmes(root):
    for folder in TOP_FOLDERS:
        if (root / folder).is_dir() and not (root / folder / "README.md").is_file():
            yield f"{folder}/: no README.md"
    for folder in MAY_INCLUDE:
        for path in sorted((root / folder).rglob("CMakeLists.txt")):
            name = path.parent.relative_to(root).as_posix()
            if name == folder:
                continue  # checked above
            if not (path.parent / "README.md").is_file() and any(f.suffix in CODE for f in path.parent.iterdir()):
                yield f"{name}/: no README.md"
    for folder in MAY_INCLUDE:
        for path in sorted((root / folder).rglob("README.md")):
            lines = len(path.read_text().splitlines())
            if lines > README_LINES_MAX:
                name = path.relative_to(root).as_posix()
                yield f"{name}: {lines} lines; a folder's README has at most {README_LINES_MAX}"


def folder_includes(root):
    """The folders that each folder includes from, and one include of each: {folder: {other: (file, header)}}."""
    graph = {}
    for top in MAY_INCLUDE:
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in CODE:
                continue
            folder = path.parent.relative_to(root).as_posix()
            for _, header in INCLUDE.findall(path.read_text()):
                other = header.rpartition("/")[0]
                if other != folder and (root / other).is_dir() and other.split("/")[0] in MAY_INCLUDE:
                    graph.setdefault(folder, {}).setdefault(other, (path.relative_to(root).as_posix(), header))
    return graph


def check_cycles(root):
    """Folders form layers: none includes from another that, however indirectly, includes from it."""
    graph, done = folder_includes(root), set()

    def visit(folder, way):
        if folder in way:
            circle = way[way.index(folder):] + [folder]
            includes = [" includes ".join(graph[a][b]) for a, b in zip(circle, circle[1:])]
            yield f"{folder}: folders include each other in a circle: " + "; ".join(includes)
            return
        if folder in done:
            return
        for other in graph.get(folder, {}):
            yield from visit(other, way + [folder])
        done.add(folder)

    for folder in graph:
        yield from visit(folder, [])


def check_tree(root):
    yield from check_readmes(root)
    yield from check_cycles(root)
    yield from check_neighbours(root, MAY_INCLUDE)
    for path in files_of(root):
        name = path.relative_to(root).as_posix()
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            yield f"{name}: not UTF-8"
            continue
        if path.suffix in CODE:
            yield from check_code(name, text)
        if path.suffix == ".md":
            yield from check_links(root, path, name, text)
            yield from check_contents(name, text)
        if has_lines_for_people(path, text) and not is_data(name):
            yield from check_columns(name, text)
        if not name.startswith("tests/house/"):
            for number, line in enumerate(text.splitlines(), 1):
                if LEFTOVERS.search(line):
                    yield f"{name}:{number}: a leftover: {line.strip()[:80]}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    breaches = list(check_tree(root))
    for breach in breaches:
        print(breach)
    print(f"house rules: {len(breaches)} breaches in {sum(1 for _ in files_of(root))} files")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
