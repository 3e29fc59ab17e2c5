"""Directories for arenas in memory: on a disk, the pages that a store writes cost far more.

Their test holds a lock on each. One whose lock is free was left by a test that was killed, by ctest's timeout say: the
next test removes it. tests/store/memory_directory.h does the same with directories of the same name."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

SHM = "/dev/shm"
PREFIX = "moestro-test-arena-"


def remove_left_ones():
    for directory in pathlib.Path(SHM).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)


class MemoryDirectory:
    """`path` is in memory where that has `least` bytes free, which containers' often has not; else on a disk."""

    def __init__(self, least):
        self.lock, where = None, "/tmp"
        with contextlib.suppress(OSError):
            remove_left_ones()
            if os.access(SHM, os.W_OK) and shutil.disk_usage(SHM).free >= least:
                where = SHM
        while self.lock is None:
            self.path = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=where))
            self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            if not self.path.exists():  # it was taken for a left one before it was locked
                os.close(self.lock)
                self.lock = None

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)
