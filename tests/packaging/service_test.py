"""The service that `cmake --install` installs finds its program and its configuration, whatever the prefix."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD = sys.argv[1:3]
UNIT = "lib/systemd/system/moestro.service"


class Service(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def install(self, prefix, root="", cwd=None):
        """Unit and configuration alone: programs take long."""
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", prefix, "--component", "service"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "DESTDIR": str(root)}, cwd=cwd)

    def expect_unit(self, unit, prefix, config):
        text = unit.read_text()
        self.assertEqual(re.findall(r"^ExecStart=(.*)$", text, re.M), [f"{prefix}/bin/moestro up -c {config}"])
        self.assertEqual(re.findall(r"^ConditionPathExists=(.*)$", text, re.M), [str(config)])
        self.assertNotIn("@", text)

    def test_below_a_prefix(self):
        prefix = self.place / "opt"
        self.install(prefix)
        self.expect_unit(prefix / UNIT, prefix, prefix / "etc/moestro/box.yaml")
        self.assertTrue((prefix / "etc/moestro/box.yaml").exists())

    def test_below_a_prefix_that_is_named_from_here(self):
        self.install("opt", cwd=self.place)
        prefix = self.place / "opt"
        self.expect_unit(prefix / UNIT, prefix, prefix / "etc/moestro/box.yaml")

    def test_in_the_package(self):
        self.install("/usr", self.place)
        self.expect_unit(self.place / "usr" / UNIT, "/usr", "/etc/moestro/box.yaml")
        self.assertTrue((self.place / "etc/moestro/box.yaml").exists())

    def test_in_a_folder_that_becomes_the_root(self):
        self.install("/usr/local", self.place)
        self.expect_unit(self.place / "usr/local" / UNIT, "/usr/local", "/usr/local/etc/moestro/box.yaml")

    def test_another_installation_keeps_the_configuration(self):
        self.install(self.place)
        config = self.place / "etc/moestro/box.yaml"
        config.write_text("# mine\n")
        self.install(self.place)
        self.assertEqual(config.read_text(), "# mine\n")

    def test_a_plugin_that_was_built_goes_where_the_programs_look_for_it(self):
        rules = (pathlib.Path(BUILD) / "packaging/cmake_install.cmake").read_text()
        with_plugin = re.search("^MOESTRO_CUDA:BOOL=ON$", (pathlib.Path(BUILD) / "CMakeCache.txt").read_text(), re.M)
        self.assertEqual(bool(re.search(r'/bin" TYPE MODULE FILES "[^"]*/libmoestro_cuda\.so"', rules)),
                         bool(with_plugin))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze here")
    def test_systemd_finds_no_fault(self):
        self.install(self.place)
        program = self.place / "bin/moestro"  # which systemd-analyze looks for
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        said = subprocess.run(["systemd-analyze", "verify", "--man=no", self.place / UNIT], capture_output=True,
                              text=True).stderr
        self.assertEqual([line for line in said.splitlines() if "moestro" in line], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
