"""A cgroup (v1, blkio) whose processes read slowly from the drive of one directory, so that reads are under way when a test wants them."""

import os
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup/blkio")


class ThrottledDrive:
    def __init__(self, on_drive):
        self.group, self.why_not = None, None
        try:
            device = os.stat(on_drive).st_dev
            disk = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve(strict=True)
            disk = disk.parent if (disk / "partition").exists() else disk  # limits are set on disks
            self.disk = (disk / "dev").read_text().strip()
            group = ROOT / f"moestro-faults-{os.getpid()}"
            if not (ROOT / "blkio.throttle.read_bps_device").exists():
                raise OSError(f"no blkio cgroup (v1) at {ROOT}")
            group.mkdir()
            self.group = group
        except OSError as e:
            self.why_not = str(e)

    def limit(self, bytes_per_s):
        """0: as fast as it goes."""
        if self.group:
            (self.group / "blkio.throttle.read_bps_device").write_text(f"{self.disk} {bytes_per_s}")

    def wrap(self):
        """What goes before a command, so that it runs in the group."""
        return ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.group] if self.group else []

    def close(self):
        for _ in range(400):  # a process that has ended leaves its group a little later than its parent is told
            try:
                if self.group:
                    self.group.rmdir()
                return
            except OSError:
                time.sleep(0.005)
