"""scripts/get_cuda_12 where the compiler cannot be had: one line that says why, and nothing left behind."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "get_cuda_12"
KEYS = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class WithoutACompiler(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()

    def run_with(self, apt_get, *arguments):
        apt = self.folder / "bin" / "apt-get"
        apt.write_text(f"#!/bin/sh\n{apt_get}\n")
        apt.chmod(0o755)
        return subprocess.run([SCRIPT, *(arguments or [self.folder / "cuda-12.4"])], text=True, capture_output=True,
                              env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})

    def assert_skipped(self, ran, why):
        self.assertEqual(ran.returncode, 77, ran.stderr)
        self.assertIn(why, ran.stderr.splitlines()[-1])
        self.assertEqual([f.name for f in self.folder.iterdir()], ["bin"])

    @unittest.skipUnless(KEYS.exists(), f"there is no {KEYS}")
    def test_an_archive_that_is_not_there_or_has_no_compiler_is_said(self):
        self.assert_skipped(self.run_with("exit 0"), "apt knows no archive of Debian")
        answers = 'case "$*" in *indextargets*) echo "Debian http://nowhere.invalid/debian" ;;'
        self.assert_skipped(self.run_with(f"{answers} *) echo 'E: cannot resolve' >&2; exit 100 ;; esac"),
                            "the archive of Debian does not give nvidia-cuda-toolkit=12.4.131~12.4.1-2: E: cannot")

    def test_what_is_there_is_not_downloaded_again(self):
        nvcc = self.folder / "cuda-12.4" / "bin" / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text("#!/bin/sh\n")
        nvcc.chmod(0o755)
        self.assertEqual(self.run_with("exit 1").returncode, 0)

    def test_a_folder_with_something_else_is_left_alone(self):
        (self.folder / "mine").write_text("")
        ran = self.run_with("exit 1", self.folder)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("is not an empty folder; name another one", ran.stderr)
        self.assertTrue((self.folder / "mine").exists())

    def test_an_option_that_is_unknown_is_refused(self):
        ran = self.run_with("exit 1", "--folder")
        self.assertEqual((ran.returncode, "unknown option '--folder'" in ran.stderr), (2, True))


if __name__ == "__main__":
    unittest.main()
