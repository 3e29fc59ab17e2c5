"""An orchestrator that is told to stop while clients still send to it, or it still reads what they sent: it ends by
itself, with 0."""

import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import time

from cluster import BIN, DemoTest, main

READY_SECONDS_MAX, STOP_SECONDS_MAX = 60, 60
BODIES, BODY_BYTES = 48, 1 << 20  # together they take longer to read than answers are waited for


class Stopping(DemoTest):
    @contextlib.contextmanager
    def stopped(self, name):
        """Yields a function that makes connections; behind the block the orchestrator is told to stop."""
        run_dir = pathlib.Path(self.dir.name) / name
        process = subprocess.Popen([BIN / "moestro-orchestrator", "--model", f"demo={self.pack}", "--run-dir", run_dir,
                                    "--http", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        port = run_dir / "http.port"
        with contextlib.ExitStack() as connections:
            try:
                end = time.monotonic() + READY_SECONDS_MAX
                while not port.exists() and process.poll() is None and time.monotonic() < end:
                    time.sleep(0.02)
                yield lambda: connections.enter_context(
                    socket.create_connection(("127.0.0.1", int(port.read_text()))))
                process.send_signal(signal.SIGTERM)
                _, log = process.communicate(timeout=STOP_SECONDS_MAX)
            finally:
                process.kill()
        self.assertEqual(process.returncode, 0, log)
        self.assertIn("stopped", log.splitlines()[-1])
        self.assertFalse(port.exists())

    def test_amid_an_upload(self):
        part = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' + b"x" * 600000
        with self.stopped("upload") as connect:
            client = connect()
            client.sendall(b"POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=XX\r\n"
                           b"Content-Length: 1000000\r\n\r\n" + part)
            files = pathlib.Path(self.dir.name) / "upload/state/batches.db.files"
            end = time.monotonic() + READY_SECONDS_MAX
            while not list(files.glob("*.part")) and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual(len(list(files.glob("*.part"))), 1)
        self.assertEqual(list(files.glob("*")), [], "what was broken off is not kept")

    def test_amid_bodies_that_are_read(self):
        body = json.dumps({"content": ("word " * BODY_BYTES)[:BODY_BYTES - 64]}).encode()
        head = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
        with self.stopped("bodies") as connect:
            clients = [connect() for _ in range(BODIES)]
            for client in clients:
                client.sendall(head + body)
            self.assertTrue(clients[0].recv(1), "the first is read, and the others wait for that")


if __name__ == "__main__":
    main()
