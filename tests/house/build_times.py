#!/usr/bin/env python3
"""No source may take more than 3 % of a whole build: whoever waits for one waits for all.   build_times.py BUILD_DIR

Reads ninja's log. A build out of a compiler's cache says nothing about that: it is not judged (exit 77)."""

import pathlib
import sys

SHARE_MAX = 0.03
CACHED_SECONDS = 0.25  # nothing compiles that fast; an object out of a cache takes 0.01 to 0.1
CACHED_SHARE_MAX = 0.1


def compile_seconds(log):
    """{object: seconds} of the last time that each was compiled."""
    seconds = {}
    for line in log.splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) >= 5 and fields[3].endswith((".o", ".gch")):
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def breaches(seconds):
    total = sum(seconds.values())
    for name, taken in sorted(seconds.items(), key=lambda item: -item[1]):
        if taken > SHARE_MAX * total:
            yield name, (f"{name}: {taken:.0f} s of {total:.0f} s, {taken / total:.1%}; at most {SHARE_MAX:.0%}: "
                         "split it")


def measured_again(build_dir, names):
    """The command that compiles these objects once more, past the compiler's cache, and so replaces their times."""
    objects = " ".join(names)
    return (f"If the machine was suspended, or busy with other work, while they were compiled, measure again:\n"
            f"  (cd {build_dir} && rm -f {objects} && CCACHE_RECACHE=1 ninja -j1 {objects})")


def main():
    path = pathlib.Path(sys.argv[1]) / ".ninja_log"
    if not path.is_file():
        print(f"{path}: not there; built without ninja: not judged")
        return 77
    seconds = compile_seconds(path.read_text())
    total = sum(seconds.values())
    cached = sum(taken < CACHED_SECONDS for taken in seconds.values())
    if cached > CACHED_SHARE_MAX * len(seconds):
        print(f"{cached} of {len(seconds)} objects are out of a compiler's cache: not judged")
        return 77
    found = list(breaches(seconds))
    if not found:
        print(f"{len(seconds)} objects, {total:.0f} s; the slowest took {max(seconds.values()) / total:.1%}")
        return 0
    print("\n".join(what for _, what in found))
    print(measured_again(path.parent, [name for name, _ in found]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
