"""A tmpfs that is too small for the arena, and one that is filled while the store serves. Skipped where none may be
mounted."""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from box import Box
from suite import FaultTest


class SharedMemory(FaultTest):
    @contextlib.contextmanager
    def small_tmpfs(self, size):
        where = tempfile.mkdtemp(prefix="moestro-faults-shm-")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", where],
                          capture_output=True).returncode != 0:
            pathlib.Path(where).rmdir()
            self.skipTest("a tmpfs may not be mounted here")
        try:
            yield pathlib.Path(where)
        finally:
            subprocess.run(["umount", "-l", where], check=True)
            pathlib.Path(where).rmdir()

    def test_a_full_shm_refuses_to_start(self):
        with self.small_tmpfs(self.dram // 2) as shm:
            box = Box(self.pack, self.dram, arena=shm)
            box.store.start()
            box.wait_until(lambda: not box.store.alive, what="the end of a store without room")
            self.assertGreater(box.store.process.returncode, 0, "an error, no SIGBUS")
            self.assertRegex(box.store.says().splitlines()[-1], "--dram|No space left|free")
            box.__exit__()

    def test_a_shm_that_is_filled_while_serving(self):
        with self.small_tmpfs(self.dram + (2 << 20)) as shm, Box(self.pack, self.dram, arena=shm) as box:
            filler = shm / "filler"
            with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            self.assertEqual(shutil.disk_usage(shm).free, 0)
            self.serve(box, "a full tmpfs")
            box.store.kill()  # its successor needs no more than is there
            box.until_serving()
            self.serve(box, "adopted on a full tmpfs")
            self.assertIn("adopted the arena", box.store.says())
            box.workers[0].kill()  # a new one needs files of its own
            box.workers[0].start()
            with self.round(box, "a worker short of room"):
                box.wait_until(lambda: not box.workers[0].alive or "attached" in box.store.says().split("is gone")[-1],
                               30, "the refused worker")
                filler.unlink()


if __name__ == "__main__":
    unittest.main(verbosity=2)
