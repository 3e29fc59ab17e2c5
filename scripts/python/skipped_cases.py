"""What ran within the tests that passed: scripts/test calls it behind ctest, whose summary counts programs alone.

    python3 scripts/python/skipped_cases.py build/dev/Testing/Temporary/LastTest.log

Prints the instruction sets that the kernels' tests ran with and those that the processor lacks, then the cases that
programs skipped, by reason.
"""

import collections
import pathlib
import re
import sys

# GoogleTest: a case with an instruction set as its parameter; a skipped case, behind the reason that it gives.
ISA_CASE = re.compile(r"\[\s+(OK|SKIPPED) \] Isa/\w+\.\w+/(\w+?)(?:_fast|_deterministic)?\b")
GTEST_SKIP = re.compile(r": Skipped\n(.*(?:\n(?!\[).*\S.*)*)\n+\[  SKIPPED \]")
# unittest.
PYTHON_SKIP = re.compile(r"\.\.\. skipped (['\"])(.*)\1$", re.MULTILINE)


def instruction_sets(log):
    """Names of those that ran and of those that did not, each in the order of the tests."""
    ran, lacking = {}, {}
    for result, isa in ISA_CASE.findall(log):
        (ran if result == "OK" else lacking)[isa.replace("_", "-")] = True
    return list(ran), [isa for isa in lacking if isa not in ran]


def skipped(log):
    """{reason: number of cases}, the most frequent first."""
    reasons = [" ".join(reason.split()) for reason in GTEST_SKIP.findall(log)]
    reasons += [reason for _, reason in PYTHON_SKIP.findall(log)]
    return dict(collections.Counter(reasons).most_common())


def report(log):
    ran, lacking = instruction_sets(log)
    lines = []
    if ran:
        lines.append(f"instruction sets that the kernels' tests ran with: {', '.join(ran)}")
    if lacking:
        emulated = "OK ] TilesTest.EmulatedTiles" in log and any("amx" in isa for isa in lacking)
        tiles = " (AMX tiles were emulated)" if emulated else ""
        lines.append(f"not on this processor: {', '.join(lacking)}{tiles}")
    reasons = skipped(log)
    if reasons:
        lines.append(f"{sum(reasons.values())} cases skipped within tests that passed:")
        lines += [f"   {count:4}  {reason}" for reason, count in reasons.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(pathlib.Path(sys.argv[1]).read_text(errors="replace")))
