#!/usr/bin/env python3
"""What moestro_kernels_bench refuses of its command line, before it fills its memory. Nothing is measured.

    kernels_bench_test.py BUILD/bin"""

import pathlib
import subprocess
import sys
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)) / "moestro_kernels_bench")


class KernelsBench(unittest.TestCase):
    def test_what_cannot_be_measured_is_refused_by_name(self):
        for part, why in [
            (["latent"], "no part 'latent': latents, blocks, or a format of weights"),
            (["latents", "512", "512"], "latents has shapes of its own: HIDDEN and FFN go with a format of weights"),
            (["blocks", "512", "512"], "blocks has shapes of its own: HIDDEN and FFN go with a format of weights"),
            (["bf16", "512"], "HIDDEN and FFN are two whole numbers above 0"),
            (["bf16", "512", "0"], "HIDDEN and FFN are two whole numbers above 0"),
            (["bf16", "512", "512", "512"], "HIDDEN and FFN are two whole numbers above 0"),
            (["bf16", "16640", "512"], "HIDDEN is at most 16384"),
            (["q4_k", "1000", "512"], "HIDDEN and FFN of q4_k are multiples of 256"),
            (["f32", "16384", "4096"], "an expert of HIDDEN x FFN is larger than the 704 MiB that are measured"),
        ]:
            with self.subTest(part):
                ran = subprocess.run([PROGRAM, "1", "", "fast", *part], capture_output=True, text=True, timeout=60)
                self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (2, "", f"kernels_bench: {why}\n"))


if __name__ == "__main__":
    unittest.main()
