"""A model with a slash in its name and with aliases: everywhere that its name goes."""

import json
import pathlib
import subprocess
import tempfile

from cluster import BIN, Cluster, DemoTest, main, moestro

NAME = "Qwen/Qwen3-30B-A3B"


class Names(DemoTest):
    def test_a_name_with_a_slash_and_aliases_work_everywhere(self):
        trace = pathlib.Path(self.dir.name) / "routes.jsonl"
        with Cluster(self.pack, "--name", NAME, "--alias", "gpt-4o", "--alias", "org/chat:latest", "--trace",
                     trace) as c:
            entries = {entry["id"]: entry for entry in c.request("GET", "/v1/models")[1]["data"]}
            self.assertEqual(list(entries), [NAME, "gpt-4o", "org/chat:latest"])
            for path in (NAME, NAME.replace("/", "%2F"), NAME.replace("/", "%2f")):
                self.assertEqual(c.request("GET", "/v1/models/" + path), (200, entries[NAME]))
            self.assertEqual(c.request("GET", "/v1/models/org%2Fchat:latest"), (200, entries["org/chat:latest"]))
            texts = set()
            for name in entries:
                answer = c.complete("Once upon a time", model=name, max_tokens=8, temperature=0)
                self.assertEqual(answer["model"], name)
                texts.add(answer["choices"][0]["text"])
            self.assertEqual(len(texts), 1)
            self.assertEqual(c.request("POST", "/v1/completions", {"prompt": "a", "model": "Qwen"})[0], 404)
            done = moestro("complete", "Once upon a time", "--url", c.url, "--model", "org/chat:latest",
                           "--max-tokens", 4)
            self.assertTrue(done.stdout.strip())

            metrics = c.request("GET", "/metrics")[1]
            self.assertIn(f'model="{NAME}"', metrics)
            self.assertNotIn("gpt-4o", metrics)
            self.assertEqual(c.request("GET", "/v1/moestro/status")[1]["model"], NAME)
            models = json.loads(moestro("store", "list", "--run-dir", c.run_dir, "--json").stdout)["models"]
            self.assertEqual([m["name"] for m in models], [NAME])
            moestro("store", "add", f"{NAME}-2={self.pack}", "--run-dir", c.run_dir)
            moestro("store", "remove", f"{NAME}-2", "--run-dir", c.run_dir)
            self.batch(c, ["gpt-4o", NAME, "other"])
        self.assertEqual(c.exit_code, 0, c.log_text)
        self.assertEqual(json.loads(trace.read_text().splitlines()[0])["model"], NAME)

    def batch(self, cluster, names):
        """A batch whose lines name the model in several ways; the last name is not served."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
            for i, name in enumerate(names):
                lines.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                                        "body": {"model": name, "prompt": "a", "max_tokens": 2}}) + "\n")
            lines.flush()
            out = lines.name + ".out"
            subprocess.run([BIN / "moestro", "batch", "run", lines.name, "-o", out, "--url", cluster.url],
                           capture_output=True, timeout=60)
            results = {r["custom_id"]: r for r in map(json.loads, pathlib.Path(out).read_text().splitlines())}
            pathlib.Path(out).unlink()
        for i, name in enumerate(names[:-1]):
            self.assertEqual(results[str(i)]["response"]["body"]["model"], name)
        self.assertIn("model_not_found", json.dumps(results[str(len(names) - 1)]))

    def test_a_directory_of_its_own_and_a_list_in_the_file(self):
        """Without --run-dir, the name says where the run directory and the state are."""
        with tempfile.TemporaryDirectory(dir="/tmp") as home:
            config = pathlib.Path(home) / "box.yaml"
            config.write_text(f"model: {{name: {NAME}, aliases: [one, two/three]}}\n"
                              "orchestrator: {http: '127.0.0.1:0'}\n")
            env = {"XDG_RUNTIME_DIR": home, "XDG_STATE_HOME": home + "/state", "PATH": "/usr/bin:/bin", "HOME": home}
            up = subprocess.Popen([BIN / "moestro", "up", "-c", config, "--model", self.pack, "--arena-dir",
                                   home + "/arena"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                self.assertIn("ready http://", up.stdout.readline())
                leaf = pathlib.Path("moestro", "Qwen--Qwen3-30B-A3B")
                place = home / leaf
                self.assertTrue((place / "store.sock").exists())
                self.assertTrue((home / pathlib.Path("state") / leaf / "batches.db").exists())
                url = "http://127.0.0.1:" + (place / "http.port").read_text().strip()
                self.assertTrue(moestro("complete", "a", "--url", url, "--model", "two/three").stdout.strip())
                for command in (("store", "list"), ("top", "--once", "--interval", "100ms")):
                    done = subprocess.run([BIN / "moestro", *command, "--name", NAME], env=env, capture_output=True,
                                          text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(NAME, done.stdout)
            finally:
                up.terminate()
                _, said = up.communicate(timeout=60)
            self.assertEqual(up.returncode, 0, said)

    def test_names_that_cannot_work_are_refused(self):
        for option, name in [("--name", "a b"), ("--name", "../x"), ("--name", "a//b"), ("--name", "a" * 129),
                             ("--name", "\x07"), ("--alias", "a b"), ("--alias", "a,,b"), ("--alias", "-x"),
                             ("--alias", "twice,twice")]:
            with self.subTest(option=option, name=name[:20]):
                done = moestro("up", "--model", self.pack, f"{option}={name}", check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                self.assertIn("name", done.stderr)


if __name__ == "__main__":
    main()
