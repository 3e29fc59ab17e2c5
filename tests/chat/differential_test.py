#!/usr/bin/env python3
"""Moestro's chat templates against Python's Jinja2: those of models/ and generated ones.
    differential_test.py RENDERER"""

import pathlib
import subprocess
import sys

try:
    import jinja2
except ImportError:
    print("there is no Python module jinja2 here (package python3-jinja2)")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
COMPARE = HERE.parents[1] / "scripts" / "compare_chat_templates.py"

for arguments in (["--conversations", "100", "--seed", "2", HERE / "models"], ["--programs", "1000", "--seed", "2"]):
    print(f"Jinja2 {jinja2.__version__}:", *arguments, flush=True)
    done = subprocess.run([sys.executable, COMPARE, "--renderer", sys.argv[1], *arguments], check=False)
    if done.returncode != 0:
        sys.exit(1)
