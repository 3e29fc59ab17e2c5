"""docker-compose.yml has a worker for each GPU, and what the docs say to do with its volumes deletes nothing that is
kept."""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv[1])
COMPOSE = (SOURCE / "docker-compose.yml").read_text()
DOCS = [SOURCE / "README.md", SOURCE / "docker-compose.yml", *(SOURCE / "docs").glob("*.md")]


def gpu_workers():
    """Of each: its host's name, its profiles, its GPUs."""
    return re.findall(r"""^  gpu-worker-\d+:
    <<: \*gpu-worker
    hostname: (\S+)
    profiles: \[(.*)\]
    deploy: .*device_ids: \["(.*?)"\]""", COMPOSE, re.M)


class Workers(unittest.TestCase):
    def test_one_gpu_is_enough_and_each_further_one_has_a_profile(self):
        self.assertEqual(gpu_workers(), [(f"gpu-worker-{gpu}", f"gpu{gpu or ''}", str(gpu)) for gpu in range(8)])

    def test_a_program_that_loads_for_long_is_not_unhealthy(self):
        checks = COMPOSE.count("healthcheck:")
        self.assertGreaterEqual(checks, 3)
        self.assertEqual(COMPOSE.count("    healthcheck:\n      <<: *slow-start\n") +
                         COMPOSE.count("  healthcheck:\n    <<: *slow-start\n"), checks)
        self.assertIn("start_period: 10m", COMPOSE)
        self.assertIn("start_period: 1h # a large arena is backed", COMPOSE)


def volumes():
    """The options of each volume; None: on disk, and kept."""
    of_each = re.findall(r"^  ([\w-]+):(?: #.*)?\n(?:    driver_opts: \{(.*)\}\n)?",
                         COMPOSE.split("\nvolumes:\n")[1], re.M)
    return {name: options or None for name, options in of_each}


class Volumes(unittest.TestCase):
    def test_a_changed_setting_removes_the_volume_that_has_it_and_no_other(self):
        with_settings = {name for name, options in volumes().items() if options and "${MOESTRO_" in options}
        self.assertEqual(with_settings, {"payload"})
        advice = (SOURCE / "docs/operations.md").read_text() + COMPOSE
        self.assertEqual(set(re.findall(r"docker volume rm PROJECT_(\w+)", advice)), with_settings)

    def test_no_command_removes_all_of_them(self):
        self.assertIn("state", [name for name, options in volumes().items() if options is None])
        for page in DOCS:
            for line in page.read_text().splitlines():
                self.assertNotRegex(line, r"docker[ -]compose\b[^#]*\bdown[^#]* -v\b", page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
