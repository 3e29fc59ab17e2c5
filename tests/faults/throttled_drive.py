"""A cgroup whose processes read slowly from the drive of one directory, so that reads are under way when a test wants
them.

Of version 1 (blkio) or 2 (io), whichever the machine has at `cgroups`."""

import os
import pathlib
import time

CGROUPS = pathlib.Path("/sys/fs/cgroup")
V1 = "blkio.throttle.read_bps_device"


class ThrottledDrive:
    def __init__(self, on_drive, cgroups=CGROUPS):
        self.group, self.why_not = None, None
        try:
            device = os.stat(on_drive).st_dev
            disk = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve(strict=True)
            disk = disk.parent if (disk / "partition").exists() else disk  # limits are set on disks
            self.disk = (disk / "dev").read_text().strip()
            self.v1 = (cgroups / "blkio" / V1).exists()
            group = (cgroups / "blkio" if self.v1 else with_io(cgroups)) / f"moestro-faults-{os.getpid()}"
            group.mkdir()
            self.group = group
        except OSError as e:
            self.why_not = str(e)

    def limit(self, bytes_per_s):
        """0: as fast as it goes."""
        if self.group and self.v1:
            (self.group / V1).write_text(f"{self.disk} {bytes_per_s}")
        elif self.group:
            (self.group / "io.max").write_text(f"{self.disk} rbps={bytes_per_s or 'max'}")

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


def with_io(cgroups):
    """Groups below it can limit I/O."""
    controllers = cgroups / "cgroup.controllers"
    if not controllers.exists() or "io" not in controllers.read_text().split():
        raise OSError(f"no blkio cgroup (v1) and no io controller (v2) at {cgroups}")
    below = cgroups / "cgroup.subtree_control"
    if "io" not in below.read_text().split():
        below.write_text("+io")
    return cgroups
