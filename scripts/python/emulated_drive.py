"""A drive of a given speed, where the machine's own is slower or another: what is measured on it holds for a drive of
that speed, not for this machine's."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import memory_limit as limits

MIB = 1 << 20


def run(*command):
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    except FileNotFoundError as e:
        raise limits.Unavailable(f"a drive in memory needs {command[0]}, which is not installed") from e
    if done.returncode:
        raise limits.Unavailable(f"a drive in memory: {command[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


class EmulatedDrive:
    """A copy of `source` (a file, or a folder of files) on an ext4 of its own, on a loop device over memory.
    `limit(group)` sets its speed for a group. Refused where it would not leave `beside_bytes` of memory to what is
    measured on it. A context manager."""

    def __init__(self, source, bytes_per_s, beside_bytes=0):
        self.source, self.bytes_per_s, self.beside_bytes, self.device, self.mounted = pathlib.Path(
            source), bytes_per_s, beside_bytes, None, []
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="moestro-drive-"))
        self.path = self.home / "drive" / self.source.name

    def __enter__(self):
        try:
            files = limits.files_of(self.source)
            size = sum(f.stat().st_size for f in files)
            size += size // 64 + 64 * MIB  # ext4's own
            free = limits.available_bytes()
            if free < size + self.beside_bytes:
                raise limits.Unavailable(
                    f"a drive in memory for {self.source} takes {size / 1e9:.1f} GB, what runs on it "
                    f"{self.beside_bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
                )
            self.mount("-t", "tmpfs", "-o", f"mode=0700,size={size + MIB},huge=within_size", "moestro",
                       self.home / "memory")
            image = self.home / "memory" / "image"
            with open(image, "wb") as f:
                f.truncate(size)
            run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-T", "largefile", image)
            self.device = run("losetup", "-f", "--show", image)
            self.mount(self.device, self.home / "drive")
            for f in files:
                to = self.path / f.relative_to(self.source) if self.source.is_dir() else self.path
                to.parent.mkdir(parents=True, exist_ok=True)
                run("dd", f"if={f}", f"of={to}", "bs=4M", "iflag=direct",
                    "oflag=direct")  # no second copy in the page cache
            run("sync", "-f", self.path)
        except BaseException:
            self.__exit__()
            raise
        return self

    def mount(self, *arguments):
        arguments[-1].mkdir()
        run("mount", *arguments)
        self.mounted.append(arguments[-1])

    def limit(self, group):
        number = os.stat(self.device).st_rdev
        group.read_at_most(f"{os.major(number)}:{os.minor(number)}", self.bytes_per_s)

    def __exit__(self, *_):
        for at in self.mounted[::-1]:
            if at.name == "memory" and self.device:
                run("losetup", "-d", self.device)
            limits.unmount(at)
        shutil.rmtree(self.home)
