"""A pack that is damaged, and repaired as docs/operations.md says: requests fail by name, and after the repair nothing
that watches the cluster speaks of it any more."""

import pathlib

from cluster import Cluster, DemoTest, main, moestro


class RepairedPack(DemoTest):
    PACK_OPTIONS = ("--experts", "bf16")

    @staticmethod
    def figure(cluster, name):
        """Of the store, as /metrics has it; the orchestrator asks the store once a second."""
        text = cluster.request("GET", "/metrics")[1]
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"moestro_store_{name} "))

    @staticmethod
    def reads(cluster):
        """What `moestro top` says of them."""
        page = moestro("top", "--once", "--interval", "100ms", "--run-dir", cluster.run_dir).stdout.splitlines()
        return next(line for line in page if line.startswith("reads "))

    def test_the_repair_ends_the_alarm(self):
        (file,) = pathlib.Path(self.pack).glob("experts-*.bin")
        good = file.read_bytes()
        file.write_bytes(bytes(byte ^ 1 for byte in good))
        with Cluster(self.pack) as cluster:
            status, body = cluster.request("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 4})
            self.assertEqual(status, 500, body)
            self.assertRegex(body["error"]["message"], "layer 0, expert .*does not match its checksum")
            cluster.wait_until(lambda: self.figure(cluster, "unreadable_blobs") > 0, what="blobs that cannot be read")
            status, health = cluster.request("GET", "/health")
            self.assertEqual((status, health["status"]), (200, "degraded"))
            self.assertIn("cannot be read", health["problems"][0])
            self.assertRegex(self.reads(cluster), r", [1-9]\d* bad$")

            file.write_bytes(good)
            moestro("store", "replace", f"pack={self.pack}", "--run-dir", cluster.run_dir)
            cluster.complete("Once upon a time", max_tokens=4)
            cluster.wait_until(lambda: self.figure(cluster, "unreadable_blobs") == 0, what="no blob that is bad")
            self.assertEqual(cluster.request("GET", "/health"), (200, {"status": "ok"}))
            self.assertEqual(cluster.request("GET", "/v1/moestro/status")[1]["problems"], [])
            self.assertRegex(self.reads(cluster), ", 0 bad$")
            self.assertGreater(self.figure(cluster, "bad_blobs_total"), 0, "a counter never goes down")


if __name__ == "__main__":
    main()
