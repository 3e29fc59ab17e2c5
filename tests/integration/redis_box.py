"""A redis-server of a test's own, which can be killed and started again."""

import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
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


class LossyWay:
    """A way to a Redis on which an answer can be lost."""

    def __init__(self, redis):
        self.redis = redis
        self.words = None
        self.door = socket.create_server(("127.0.0.1", 0))

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.door.getsockname()[1]}/0"

    def lose_answer_to(self, words):
        """Of the next command with these words; and the connection with it."""
        self.words = words

    def __enter__(self):
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.door.close()

    def serve(self):
        while True:
            try:
                client = self.door.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.redis.port))
            loses = threading.Event()
            threading.Thread(target=self.carry, args=(client, server, loses, True), daemon=True).start()
            threading.Thread(target=self.carry, args=(server, client, loses, False), daemon=True).start()

    def carry(self, source, target, loses, asks):
        try:
            while data := source.recv(1 << 20):
                if asks and self.words is not None and self.words in data:
                    self.words = None
                    loses.set()
                elif not asks and loses.is_set():
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()
