"""Many clients at once: idle connections and streams under way. MOESTRO_STREAMS=IDLE,ACTIVE (2000,500 is what the
server is made for)."""

import asyncio
import json
import os
import pathlib
import resource
import socket
import tempfile
import threading
import time
import unittest

from cluster import DEMO, Cluster, main, pack

# All of it where so many files may be open, else a tenth.
ENOUGH = resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 4096
IDLE, ACTIVE = (int(n) for n in os.environ.get("MOESTRO_STREAMS", "2000,500" if ENOUGH else "200,50").split(","))
RSS_BYTES_MAX = 300 << 20
TOKENS = 8


async def head_of(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split()[1])
    length = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return status, length[0] if length else None


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, IDLE + 2 * ACTIVE + 512), hard))
        cls.dir = tempfile.TemporaryDirectory()
        cls.cluster = Cluster(pack(DEMO, cls.dir.name + "/pack"), "--deterministic", "--queue-max",
                              str(max(4 * ACTIVE, 64))).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()
        cls.dir.cleanup()

    def rss_peak(self):
        (pid,) = self.cluster.children("moestro-orchestrator")
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")

    async def ask_health(self, reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        status, length = await head_of(reader)
        await reader.readexactly(length)
        return status

    async def idle(self):
        reader, writer = await asyncio.open_connection(self.cluster.host, self.cluster.port)
        self.assertEqual(await self.ask_health(reader, writer), 200)
        return reader, writer

    async def stream(self, i):
        """The text of one stream, read to its end."""
        body = json.dumps({
            "prompt": f"Once upon a time {i % 7}", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
            "stream": True
        }).encode()
        reader, writer = await asyncio.open_connection(self.cluster.host, self.cluster.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" %
                     len(body) + body)
        status, _ = await head_of(reader)
        rest = await reader.read()
        writer.close()
        self.assertEqual(status, 200, rest)
        self.assertIn(b"data: [DONE]", rest)
        events = [json.loads(line[6:]) for line in rest.decode().splitlines() if line.startswith("data: {")]
        self.assertFalse([e for e in events if "error" in e])
        return "".join(c["text"] for e in events for c in e["choices"])

    async def everything(self):
        begin = time.monotonic()
        idle = await asyncio.gather(*(self.idle() for _ in range(IDLE)))
        opened = time.monotonic()
        texts = await asyncio.gather(*(self.stream(i) for i in range(ACTIVE)))
        done = time.monotonic()
        for i, text in enumerate(texts):
            self.assertEqual(text, texts[i % 7], "equal prompts, equal answers, whatever else runs")
        if done - begin < 25:  # the server closes connections that are idle for 30 s
            self.assertEqual({await self.ask_health(*c) for c in idle}, {200}, "idle connections are still there")
        for _, writer in idle:
            writer.close()
        print(
            f"{IDLE} idle connections in {opened - begin:.1f} s, {ACTIVE} streams of {TOKENS} tokens in "
            f"{done - opened:.1f} s, "
            f"orchestrator's peak {self.rss_peak() >> 20} MiB", flush=True)

    def test_many_at_once(self):
        asyncio.run(self.everything())
        self.assertLess(self.rss_peak(), RSS_BYTES_MAX)
        self.cluster.wait_until(
            lambda: self.cluster.request("GET", "/v1/moestro/status")[1]["requests"]["running"] == 0, 10,
            "the end of all requests")

    def test_a_reader_that_stops_holds_nobody_up(self):
        async def run():
            body = json.dumps({"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True,
                               "logprobs": 20}).encode()
            slow = []
            for _ in range(4):
                reader, writer = await asyncio.open_connection(self.cluster.host, self.cluster.port, limit=1024)
                writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) +
                             body)
                slow.append((reader, writer))  # and reads nothing
            for _ in range(5):
                self.assertTrue(await asyncio.wait_for(self.stream(1), 60))
            for _, writer in slow:
                writer.transport.abort()
        asyncio.run(run())
        self.cluster.wait_until(
            lambda: self.cluster.request("GET", "/v1/moestro/status")[1]["sequences"]["running"] == 0, 10,
            "what nobody reads to end")


    def test_a_reader_at_a_byte_a_second_gets_it_all(self):
        """Its sequences do not wait for it, nobody else does, and it is not cut off: what it is behind with comes in
        fewer chunks."""
        body = {
            "prompt": "Once", "max_tokens": 400, "n": 8, "ignore_eos": True, "temperature": 0, "stream": True,
            "logprobs": 5
        }
        normal = self.read_stream(body, 1 << 20, pauses=0)
        slow = {}
        thread = threading.Thread(target=lambda: slow.update(self.read_stream(body, 2048, pauses=5)))
        begin = time.monotonic()
        thread.start()
        others = [
            self.cluster.complete("Once upon a time", max_tokens=8, temperature=0)["choices"][0]["text"]
            for _ in range(5)
        ]
        self.assertEqual(len(set(others)), 1)
        self.cluster.wait_until(
            lambda: self.cluster.request("GET", "/v1/moestro/status")[1]["sequences"]["running"] == 0, 60,
            "the end of its sequences")
        thread.join(120)
        self.assertFalse(thread.is_alive())
        self.assertGreater(time.monotonic() - begin, 5, "it read a byte a second at first")
        self.assertEqual(slow["texts"], normal["texts"])
        self.assertEqual(slow["tokens"], normal["tokens"])
        self.assertEqual(slow["ends"], ["length"] * 8)
        self.assertLess(slow["events"], normal["events"], "it was behind")

    def read_stream(self, body, receive_buffer, pauses):
        """What a stream says to a client that reads a byte a second for `pauses` seconds, and then all of it."""
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            s.settimeout(60)
            s.connect((self.cluster.host, self.cluster.port))
            text = json.dumps(body).encode()
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" %
                      len(text) + text)
            heard = b""
            for _ in range(pauses):
                heard += s.recv(1)
                time.sleep(1)
            while piece := s.recv(65536):
                heard += piece
        self.assertTrue(heard.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), heard[-200:])
        events = [json.loads(line[6:]) for line in heard.decode().splitlines() if line.startswith("data: {")]
        told = {"texts": [""] * body["n"], "tokens": [0] * body["n"], "ends": [None] * body["n"], "events": len(events)}
        for choice in (c for e in events for c in e["choices"]):
            told["texts"][choice["index"]] += choice["text"]
            told["tokens"][choice["index"]] += len(choice["logprobs"]["tokens"]) if choice["logprobs"] else 0
            told["ends"][choice["index"]] = choice["finish_reason"] or told["ends"][choice["index"]]
        return told


if __name__ == "__main__":
    main()
