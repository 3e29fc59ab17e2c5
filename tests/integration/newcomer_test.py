"""What someone types who has read little: no --url, no --run-dir, a port that is taken."""

import os
import subprocess
import tempfile

from cluster import BIN, Cluster, DemoTest, main


class Newcomer(DemoTest):
    def run_moestro(self, *args):
        env = {**os.environ, "XDG_RUNTIME_DIR": self.runtime}
        return subprocess.run([BIN / "moestro", *map(str, args)], capture_output=True, text=True, env=env)

    def setUp(self):
        runtime = tempfile.TemporaryDirectory(prefix="moestro-it-", dir="/tmp")
        self.addCleanup(runtime.cleanup)
        self.runtime = runtime.name
        alone = self.run_moestro("store", "list")
        if "no cluster of this user runs here" not in alone.stderr:
            self.skipTest("this user has another cluster: " + alone.stderr)

    def cluster(self, name, *options):
        return Cluster(self.pack, "--run-dir", f"{self.runtime}/moestro/{name}", "--name", name, *options)

    def test_the_only_cluster_is_found(self):
        with self.cluster("demo") as cluster:
            for command in (("store", "list"), ("top", "--once", "--interval", "100ms")):
                done = self.run_moestro(*command)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("demo", done.stdout)
            done = self.run_moestro("complete", "Once upon a time", "--max-tokens", "4")
            self.assertEqual(done.returncode, 0, done.stderr)
            done = self.run_moestro("up", "--model", self.pack, "--name", "second", "--http", cluster.port)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"--http 127.0.0.1:{cluster.port}: the port is in use, by the cluster 'demo'", done.stderr)
            self.assertFalse(os.path.exists(f"{self.runtime}/moestro/second"))
        done = self.run_moestro("top")
        self.assertEqual(done.returncode, 1)
        self.assertIn("start one with `moestro up --model PACK`", done.stderr)

    def test_several_clusters_are_named(self):
        with self.cluster("one") as one, self.cluster("two") as two:
            done = self.run_moestro("store", "list")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"one ({one.run_dir}), two ({two.run_dir}); choose one with --name or --run-dir", done.stderr)
            self.assertEqual(self.run_moestro("store", "list", "--name", "two").returncode, 0)
            done = self.run_moestro("complete", "a")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"one (http://127.0.0.1:{one.port}), two (http://127.0.0.1:{two.port})", done.stderr)


if __name__ == "__main__":
    main()
