"""How much memory clients without a key can take, while the server goes on answering. Prints the figures. Loopback
alone; most of a minute."""

import contextlib
import hashlib
import multiprocessing
import os
import resource
import selectors
import socket
import time

from cluster import Cluster, DemoTest, main

CONNECTIONS, ATTACK_SECONDS, RECOVERY_SECONDS_MAX = 4096, 8, 60
RESIDENT_MB_MAX, RECOVERED_RATIO_MAX = 300, 1.2


def resident_mb(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024 / 1e6


KINDS = [  # what is said at first, and then without an end
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n", b" " * 16384),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 16384),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Long: ", b"y" * 16384),
]


def flood(host, port, seconds, connections):
    """So many connections that send what their kinds say; those that the server closes are made anew."""
    os.nice(10)  # elsewhere it would not take the server's processor, nor that of the client that asks for /health
    end = time.monotonic() + seconds
    with selectors.EpollSelector() as sockets:
        def connect(kind):
            s = socket.socket()
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                s.connect((host, port))
            sockets.register(s, selectors.EVENT_WRITE, [kind, KINDS[kind][0]])

        def lose(s, kind):
            sockets.unregister(s)
            s.close()
            connect(kind)

        for i in range(connections):
            connect(i % len(KINDS))
        while time.monotonic() < end:
            for key, _ in sockets.select(0.1):
                kind, text = key.data
                try:
                    sent = key.fileobj.send(text)
                    key.data[1] = text[sent:] or KINDS[kind][1]
                except BlockingIOError:
                    pass
                except OSError:
                    lose(key.fileobj, kind)
        for key in sockets.get_map().values():
            key.fileobj.close()


class HttpMemory(DemoTest):
    def test_memory_under_clients_without_a_key(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 2 * CONNECTIONS + 512:
            self.skipTest(f"it needs {2 * CONNECTIONS + 512} open files; {hard} are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CONNECTIONS + 512), hard))
        keys = f"{self.dir.name}/keys"
        with open(keys, "w") as file:
            file.write("sha256:" + hashlib.sha256(b"k").hexdigest() + " ann\n")
        os.chmod(keys, 0o600)
        print(f"\n{'resident MB of the orchestrator':34} {'before':>7} {'most':>7} {'after':>7} {'s':>4}")
        for name, options in [("keys are wanted", ["--api-keys", keys]), ("everybody is let in", [])]:
            with self.subTest(name), Cluster(self.pack, *options) as cluster:
                self.attack(cluster, name)

    def attack(self, cluster, name):
        (pid,) = cluster.children("moestro-orchestrator")
        self.assertEqual(self.served(cluster), 200)
        time.sleep(1)
        before = most = resident_mb(pid)
        flooding = multiprocessing.Process(target=flood, args=(cluster.host, cluster.port, ATTACK_SECONDS, CONNECTIONS))
        flooding.start()
        healthy = 0
        while flooding.is_alive():
            most = max(most, resident_mb(pid))
            healthy += cluster.request("GET", "/health")[0] == 200
            time.sleep(0.05)
        flooding.join()
        self.assertGreater(healthy, 10)
        begin = time.monotonic()
        while (after := resident_mb(pid)) > RECOVERED_RATIO_MAX * before:
            if time.monotonic() - begin > RECOVERY_SECONDS_MAX:
                break
            most = max(most, after)
            time.sleep(0.5)
        print(f"{name:34} {before:7.0f} {most:7.0f} {after:7.0f} {time.monotonic() - begin:4.0f}", flush=True)
        self.assertLessEqual(most, RESIDENT_MB_MAX)
        self.assertLessEqual(after, RECOVERED_RATIO_MAX * before)
        self.assertEqual(self.served(cluster), 200)

    @staticmethod
    def served(cluster):
        return cluster.request("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 2},
                               {"Authorization": "Bearer k"})[0]


if __name__ == "__main__":
    main()
