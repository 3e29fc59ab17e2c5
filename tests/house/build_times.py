#!/usr/bin/env python3
"""No source may take more than 3 % of a whole build: whoever waits for one waits for all.   build_times.py BUILD_DIR

Reads ninja's log. A build out of a compiler's cache says nothing about that: it is not judged (exit 77)."""

import pathlib
import sys

SHARE_MAX = 0.03
COLD_SECONDS = 600  # of all sources together; a warm cache needs a fraction


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
            yield f"{name}: {taken:.0f} s of {total:.0f} s, {taken / total:.1%}; at most {SHARE_MAX:.0%}: split it"


def main():
    path = pathlib.Path(sys.argv[1]) / ".ninja_log"
    if not path.is_file():
        print(f"{path}: not there; built without ninja: not judged")
        return 77
    seconds = compile_seconds(path.read_text())
    total = sum(seconds.values())
    if total < COLD_SECONDS:
        print(f"{total:.0f} s for {len(seconds)} objects: out of a compiler's cache, not judged")
        return 77
    found = list(breaches(seconds))
    print("\n".join(found) or f"{len(seconds)} objects, {total:.0f} s; the slowest took "
                              f"{max(seconds.values()) / total:.1%}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
