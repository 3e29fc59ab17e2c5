"""What another start cannot mend ends `moestro up` at once: one start of the program, and its own words in the last
line."""

import pathlib
import shutil
import socket

from cluster import Cluster, DemoTest, main


class PermanentFaults(DemoTest):
    PACK_OPTIONS = ("--experts", "bf16")

    def damaged(self, name, damage):
        """A copy of the pack, after damage(copy)."""
        copy = pathlib.Path(self.dir.name) / name
        shutil.copytree(self.pack, copy)
        damage(copy)
        return copy

    def expect_end(self, program, cause, pack_dir, *options):
        cluster = Cluster(pack_dir, *options)
        with self.assertRaises(AssertionError):
            cluster.__enter__()
        said = cluster.log_text.split("\n--- ")[0].rstrip().splitlines()
        self.assertEqual(cluster.exit_code, 1, cluster.log_text)
        self.assertRegex(said[-1],
                         rf"^moestro: {program} ended with exit 2, which another start cannot mend: .*{cause}")
        self.assertFalse([line for line in said if "starting it again" in line and f" {program} " in line], said)
        self.assertLessEqual(len(said), 5, said)

    def test_a_precision_that_the_pack_lacks(self):
        self.expect_end("worker-0", "--precision int8: the pack of .* has its experts as bf16", self.pack,
                        "--precision", "int8")

    def test_attention_sinks_without_a_window_and_more_than_the_context(self):
        self.expect_end("worker-0", "--kv-sinks 4 without --kv-window", self.pack, "--kv-sinks", "4")
        self.expect_end("worker-0", "together are more than the model's context of", self.pack, "--kv-sinks", "4",
                        "--kv-window", "1000000")

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            cluster = Cluster(self.pack, "--http", port)
            with self.assertRaises(AssertionError):
                cluster.__enter__()
            self.assertEqual(cluster.exit_code, 1)
            self.assertEqual(cluster.log_text, f"moestro: --http 127.0.0.1:{port}: the port is in use; choose another "
                             "one with --http, or 0 for a free one\n", "no program was started")

    def test_a_damaged_manifest(self):
        def flip(copy):
            manifest = bytearray((copy / "manifest").read_bytes())
            manifest[len(manifest) // 2] ^= 1
            (copy / "manifest").write_bytes(manifest)
        self.expect_end("(store|orchestrator)", "manifest", self.damaged("flipped", flip))

    def test_a_tokenizer_that_was_changed_after_packing(self):
        def change(copy):
            (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + " ")
        self.expect_end("orchestrator", "tokenizer.json.*pack the model again", self.damaged("changed", change))

    def test_a_store_that_is_told_to_be_too_small(self):
        self.expect_end("store", "raise --dram", self.pack, "--dram", "1MiB")

    def test_a_trace_that_cannot_be_written(self):
        self.expect_end("worker-0", "--trace /nowhere/routes.jsonl: No such file", self.pack, "--trace",
                        "/nowhere/routes.jsonl")


if __name__ == "__main__":
    main()
