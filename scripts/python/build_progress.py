#!/usr/bin/env python3
"""Shows how far a build is:   cmake --build ... 2>&1 | build_progress.py LOG

Reads ninja's lines "[done/all] what", writes every line to LOG, and shows the last one with an estimate of the time
left: in place on a terminal, else a line every 15 seconds."""

import re
import sys
import time

STEP = re.compile(r"\[(\d+)/(\d+)\] (.*)")
LINE_SECONDS = 15


def left_in_words(seconds):
    if seconds >= 90:
        return f"about {round(seconds / 60)} min left"
    return f"about {max(5, round(seconds / 5) * 5)} s left"


def shown(done, total, elapsed):
    """The estimate takes the steps to come for as long as those that are done; the first ones say little."""
    text = f"[{done}/{total}]"
    if done >= 10 and done < total:
        text += " " + left_in_words(elapsed / done * (total - done))
    return text


def main():
    began, last, terminal = time.monotonic(), 0.0, sys.stderr.isatty()
    step = None
    with open(sys.argv[1], "a", encoding="utf-8") as log:
        for line in sys.stdin:
            log.write(line)
            match = STEP.match(line)
            if not match or match[1] == "0":
                continue
            done, total, what = int(match[1]), int(match[2]), match[3].strip()
            now = time.monotonic()
            text = shown(done, total, now - began)
            if terminal:
                step = f"\r\033[K   {text}  {what.rsplit('/', 1)[-1][:60]}"
                print(step, end="", file=sys.stderr, flush=True)
            elif now - last >= LINE_SECONDS or done == total:
                last = now
                print(f"   {text}", file=sys.stderr, flush=True)
    if terminal and step:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
