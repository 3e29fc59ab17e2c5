"""https and keys, from `moestro up` to every command that speaks to it. The certificate is made by `openssl`."""

import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import unittest

from cluster import BIN, Cluster, DemoTest, main, moestro

KEY = "sk-open-sesame"


def certificate(directory, name):
    """(certificate, key): for localhost and 127.0.0.1, signed by itself."""
    files = directory / f"{name}.crt", directory / f"{name}.key"
    subprocess.run([
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", files[1], "-out",
        files[0]
    ], check=True, capture_output=True)
    return files


@unittest.skipUnless(shutil.which("openssl"), "there is no openssl to make a certificate with")
class Https(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = cls.path = pathlib.Path(cls.dir.name)
        cls.certificate, cls.key = certificate(directory, "own")
        hashed = subprocess.run(["openssl", "dgst", "-sha256"], input=KEY.encode(), capture_output=True,
                                check=True).stdout.decode().split()[-1]
        keys = directory / "keys"
        keys.write_text(f"sha256:{hashed} tests\n")
        keys.chmod(0o600)
        cls.cluster = Cluster(cls.pack, "--name", "demo", "--tls-cert", str(cls.certificate), "--tls-key", str(cls.key),
                              "--api-keys", str(keys)).__enter__()
        cls.cluster.trust = ssl.create_default_context(cafile=cls.certificate)
        cls.addClassCleanup(cls.cluster.__exit__)

    def run_command(self, *words, key=KEY, trust=True):
        """A finished command of the CLI; its key is in the environment."""
        environment = {**os.environ, "MOESTRO_API_KEY": key
                      } if key else {k: v for k, v in os.environ.items() if k != "MOESTRO_API_KEY"}
        more = ["--ca-file", str(self.certificate)] if trust else []
        done = subprocess.run([BIN / "moestro", *words, "--url", self.cluster.url, *more], capture_output=True,
                              text=True, env=environment, stdin=subprocess.DEVNULL)
        self.assertNotIn("sesame", done.stdout + done.stderr)
        return done

    def test_requests_and_streams(self):
        headers = {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"}
        self.assertEqual(self.cluster.request("GET", "/health")[0], 200)
        self.assertEqual(self.cluster.request("GET", "/v1/models")[0], 401)
        body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
        connection = self.cluster.connect()
        texts = []
        for _ in range(2):  # one connection
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            texts.append(json.loads(connection.getresponse().read())["choices"][0]["text"])
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), headers)
        events = [
            json.loads(line[6:])
            for line in connection.getresponse().read().decode().splitlines()
            if line.startswith("data: {")
        ]
        texts.append("".join(c["text"] for e in events for c in e["choices"]))
        connection.close()
        self.assertEqual(len(set(texts)), 1, texts)

    def test_every_command(self):
        said = self.run_command("complete", "Once upon a time", "--max-tokens", "4")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(self.run_command("health").returncode, 0)
        lines = self.path / "in.jsonl"
        lines.write_text("".join(
            json.dumps({
                "custom_id": str(i), "method": "POST", "url": "/v1/completions",
                "body": {"prompt": "Once", "max_tokens": 2}
            }) + "\n" for i in range(5)))
        run = self.run_command("batch", "run", str(lines), "-o", str(self.path / "out.jsonl"), "--json")
        self.assertEqual(json.loads(run.stdout)["done"], 5, run.stderr)
        batch = self.run_command("batch", "submit", str(lines), "--wait", "--json")
        self.assertEqual(batch.returncode, 0, batch.stderr)
        fetched = self.run_command("batch", "results",
                                   json.loads(batch.stdout)["id"], "-o", str(self.path / "results.jsonl"))
        self.assertEqual(fetched.returncode, 0, fetched.stderr)
        self.assertEqual(len((self.path / "results.jsonl").read_text().splitlines()), 5)

    def test_top_finds_its_own_box(self):
        command = [BIN / "moestro", "top", "--run-dir", self.cluster.dir / "run", "--json", "--interval", "100ms"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MOESTRO_API_KEY": KEY},
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["server"]["model"], "demo")

    def test_what_is_not_let_in(self):
        for options, words in (({"trust": False}, "--ca-file"), ({"key": ""}, "MOESTRO_API_KEY"), ({"key": "sk-wrong"},
                                                                                                   "not known")):
            with self.subTest(words=words):
                refused = self.run_command("complete", "x", **options)
                self.assertEqual(refused.returncode, 1)
                self.assertIn(words, refused.stderr)
                self.assertEqual(refused.stderr.count("\n"), 1)
        with socket.create_connection((self.cluster.host, self.cluster.port), 10) as s:
            s.settimeout(10)
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = s.recv(4096)
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
        self.assertIn(b"https", answer)

    def test_it_is_there_again_after_a_kill(self):
        (before,) = self.cluster.children("moestro-orchestrator")
        os.kill(before, signal.SIGKILL)
        self.cluster.wait_until(
            lambda: self.cluster.children("moestro-orchestrator") not in
            ([], [before]) and self.run_command("health").returncode == 0, 60, "its successor")

    def test_what_up_says_of_files_that_are_wrong(self):
        other = certificate(self.path, "other")
        for cert, key, words in ((self.certificate, other[1], "does not belong"),
                                 (self.path / "none", self.key, "none"), (self.key, self.key, "no certificate")):
            with self.subTest(words=words):
                done = moestro("up", "--model", self.pack, "--http", "127.0.0.1:0", "--run-dir", self.path / "r",
                               "--arena-dir", self.path / "a", "--tls-cert", cert, "--tls-key", key, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
