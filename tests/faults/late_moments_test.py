"""kill -9 of a store that adopts while the reads of the one before it are still under way, on a throttled drive.

A test of its own, so that ctest counts and names it where no drive can be throttled."""

import unittest

import moments_test
from box import Box
from suite import FaultTest
from throttled_drive import ThrottledDrive


class LateMoments(FaultTest):
    die_at, die_somewhere = moments_test.Moments.die_at, moments_test.Moments.die_somewhere
    in_rounds, until_reached = moments_test.Moments.in_rounds, moments_test.Moments.until_reached
    store_dies_in_adoption = moments_test.Moments.store_dies_in_adoption

    def test_during_adoption(self):
        drive = ThrottledDrive(self.pack)
        self.addCleanup(drive.close)
        if drive.why_not:
            self.skipTest(f"the drive is not throttled: {drive.why_not}")
        with Box(self.pack, self.dram, wrap=drive.wrap()) as box:
            self.store_dies_in_adoption(box, drive.limit)
            self.assertIn("or the last reads of a killed one, hold it", box.store.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
