"""What a measurement under a memory limit needs: a cgroup (which may limit a drive's speed, too), caches without the
files in question, the drive's read-ahead, and cores that are awake."""

import os
import pathlib
import subprocess
import sys
import time

CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Unavailable(Exception):
    """This machine, or this user, cannot limit memory; the message says why."""


class MemoryLimit:
    """A cgroup (v1 or v2) of at most `limit_bytes`, page cache and tmpfs pages included. Huge pages of hugetlbfs are
    outside it: see hugetlb_bytes()."""

    def __init__(self, name, limit_bytes):
        self.unified, self.reads = (CGROUPS / "cgroup.controllers").exists(), None
        self.path = (CGROUPS if self.unified else CGROUPS / "memory") / name
        if self.unified and "memory" not in (CGROUPS / "cgroup.controllers").read_text().split():
            raise Unavailable("cgroup v2 without its memory controller")
        try:
            if self.unified:
                (CGROUPS / "cgroup.subtree_control").write_text("+memory")
            self.path.mkdir()
            self.write("memory.max" if self.unified else "memory.limit_in_bytes", limit_bytes)
        except OSError as e:
            if self.path.is_dir():
                self.path.rmdir()
            raise Unavailable(
                f"{self.path}: {e.strerror}; limits need root and a cgroup file system that may be written") from e
        for swap in ("memory.swap.max",) if self.unified else ("memory.swappiness",):
            try:
                self.write(swap, 0)
            except OSError:
                pass  # no swap to keep out of

    def write(self, name, value):
        (self.path / name).write_text(f"{value}\n")

    def read(self, name):
        return int((self.path / name).read_text().split()[0])

    def enter(self):
        """For preexec_fn: the calling process, and what it starts, are in the group from now on."""
        for path in filter(None, (self.path, self.reads)):
            (path / "cgroup.procs").write_text(str(os.getpid()))

    def read_at_most(self, device, bytes_per_s):
        """From the drive MAJOR:MINOR, all processes of the group together. The kernel counts over tenths of a second:
        within one they may be as fast as the drive."""
        try:
            if self.unified:
                (CGROUPS / "cgroup.subtree_control").write_text("+io")
                return self.write("io.max", f"{device} rbps={bytes_per_s}")
            self.reads = CGROUPS / "blkio" / self.path.name  # v1: a group of its own, which its processes enter as well
            self.reads.mkdir()
            (self.reads / "blkio.throttle.read_bps_device").write_text(f"{device} {bytes_per_s}\n")
        except OSError as e:
            raise Unavailable(f"{self.reads or self.path}: the speed of reads cannot be limited: {e.strerror}") from e

    def used_bytes(self):
        return self.read("memory.current" if self.unified else "memory.usage_in_bytes")

    def peak_bytes(self):
        peak = self.path / ("memory.peak" if self.unified else "memory.max_usage_in_bytes")
        return int(peak.read_text()) if peak.exists() else self.used_bytes()

    def close(self):
        """Waits for its processes to be gone, then gives back what pages are still charged to it."""
        end = time.monotonic() + 30
        while (self.path / "cgroup.procs").read_text().strip():
            if time.monotonic() > end:
                raise SystemExit(f"error: {self.path} still has processes")
            time.sleep(0.05)
        if not self.unified:
            try:
                self.write("memory.force_empty", 0)
            except OSError:
                pass
        if self.reads and self.reads.is_dir():
            self.reads.rmdir()
        self.path.rmdir()


def meminfo():
    return dict(line.split(":", 1) for line in pathlib.Path("/proc/meminfo").read_text().splitlines())


def available_bytes():
    return int(meminfo()["MemAvailable"].split()[0]) * 1024


def hugetlb_bytes():
    """In use on the whole machine: no cgroup for memory counts them."""
    fields = meminfo()
    pages = [int(fields.get(f"HugePages_{x}", "0").split()[0]) for x in ("Total", "Free")]
    return (pages[0] - pages[1]) * int(fields.get("Hugepagesize", "0 kB").split()[0]) * 1024


def files_of(path):
    path = pathlib.Path(path)
    return [f for f in sorted(path.rglob("*")) if f.is_file()] if path.is_dir() else [path]


def drop_from_cache(path):
    """No page of these files is in memory any more: what is left there by others, outside the limit, would be memory
    for nothing."""
    for f in files_of(path):
        fd = os.open(f, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


class ReadAhead:
    """The read-ahead of the drive under `path` while the context lasts. Files take it over when they are opened."""

    def __init__(self, path, kib):
        self.kib, self.before = kib, None
        device = os.stat(path).st_dev
        home = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
        self.file = next((p / "queue" / "read_ahead_kb" for p in (home, home.parent) if (p / "queue").is_dir()), None)

    def __enter__(self):
        if self.file is None:
            raise Unavailable("the drive's read-ahead cannot be found")
        self.before = self.file.read_text().strip()
        try:
            self.file.write_text(str(self.kib))
        except OSError as e:
            raise Unavailable(f"{self.file}: {e.strerror}") from e
        return self

    def __exit__(self, *_):
        if self.before is not None:
            self.file.write_text(self.before)


class AwakeCores:
    """While it lasts no core goes to sleep: on each runs a process that gives way to every other. A core that sleeps is
    late for what a drive has read, a virtual one by a trip to its host; who waits for one read after the other, as a
    page fault does, is held up the most."""

    def __init__(self):
        self.processes = []

    def __enter__(self):
        # and so does not outlive it
        program = "import os\nstarter = os.getppid()\nwhile os.getppid() == starter:\n    for _ in range(1000000): pass"
        for core in os.sched_getaffinity(0):
            self.processes.append(
                subprocess.Popen([sys.executable, "-c", program], preexec_fn=lambda core=core: self.keep_to(core)))
        return self

    @staticmethod
    def keep_to(core):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.sched_setaffinity(0, {core})

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def unmount(path):
    end = time.monotonic() + 10  # for what has it mapped to be gone
    while (done := subprocess.run(["umount", path], capture_output=True, text=True)).returncode:
        if time.monotonic() > end:
            raise Unavailable(f"{path} stays mounted: {done.stderr.strip()}")
        time.sleep(0.05)


class TmpfsWithHugePages:
    """A tmpfs of its own, as `moestro up` mounts one; /dev/shm where that is not allowed."""

    def __init__(self, path, size_bytes):
        self.path, self.mounted, self.why = pathlib.Path(path), False, ""
        self.path.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"mode=0700,size={size_bytes},huge=within_size", "moestro", self.path],
            capture_output=True, text=True)
        self.mounted = done.returncode == 0
        if not self.mounted:
            raise Unavailable(f"a tmpfs with huge pages cannot be mounted on {path}: {done.stderr.strip()}")

    def close(self):
        if not self.mounted:
            return
        unmount(self.path)
        self.path.rmdir()
