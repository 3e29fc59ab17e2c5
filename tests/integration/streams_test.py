"""Many clients at once: idle connections and streams under way. MOESTRO_STREAMS=IDLE,ACTIVE (2000,500 is what the server is made for)."""

import asyncio
import json
import os
import pathlib
import resource
import tempfile
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
        cls.cluster = Cluster(pack(DEMO, cls.dir.name + "/pack"), "--deterministic", "--queue-max", str(max(4 * ACTIVE, 64))).__enter__()

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
        body = json.dumps({"prompt": f"Once upon a time {i % 7}", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}).encode()
        reader, writer = await asyncio.open_connection(self.cluster.host, self.cluster.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
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
        print(f"{IDLE} idle connections in {opened - begin:.1f} s, {ACTIVE} streams of {TOKENS} tokens in {done - opened:.1f} s, "
              f"orchestrator's peak {self.rss_peak() >> 20} MiB", flush=True)

    def test_many_at_once(self):
        asyncio.run(self.everything())
        self.assertLess(self.rss_peak(), RSS_BYTES_MAX)
        self.cluster.wait_until(lambda: self.cluster.request("GET", "/v1/moestro/status")[1]["requests"]["running"] == 0, 10, "the end of all requests")

    def test_a_reader_that_stops_holds_nobody_up(self):
        async def run():
            body = json.dumps({"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True, "logprobs": 20}).encode()
            slow = []
            for _ in range(4):
                reader, writer = await asyncio.open_connection(self.cluster.host, self.cluster.port, limit=1024)
                writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                slow.append((reader, writer))  # and reads nothing
            for _ in range(5):
                self.assertTrue(await asyncio.wait_for(self.stream(1), 60))
            for _, writer in slow:
                writer.transport.abort()
        asyncio.run(run())
        self.cluster.wait_until(lambda: self.cluster.request("GET", "/v1/moestro/status")[1]["sequences"]["running"] == 0, 10, "what nobody reads to end")


if __name__ == "__main__":
    main()
