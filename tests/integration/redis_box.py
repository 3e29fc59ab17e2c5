"""A redis-server of a test's own, which can be killed and started again."""

import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = shutil.which("redis-server")
needs_redis = unittest.skipUnless(PROGRAM, "redis-server is not installed")


class Redis:
    def __init__(self, *settings):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="moestro-redis-", dir="/tmp"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.settings = settings
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self):
        self.process = subprocess.Popen([
            PROGRAM, "--bind", "127.0.0.1", "--port",
            str(self.port), "--dir",
            str(self.dir), "--save", "", "--appendonly", "yes", "--appendfsync", "always", *self.settings
        ], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not self.answers():
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError("redis-server did not start")
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
        except OSError:
            return False
