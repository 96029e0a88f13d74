# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/e2e/vmm-boot/run: VMs that are made of one snapshot again and again, and one that everybody calls meanwhile."""
import os
import socket
import threading
import time

from guest import Guest, ask, read_exactly
from pauses import Traffic, end_of
from snapshots import Snapshot, check_alive, clocks, counter

EMULATED = os.environ.get("CROFT_KVM_HOST") == "emulated"


class Storm:
    """Clients that connect to the socket of a VM from before it is there, again and again, each with 60 s for its answer."""

    def __init__(self, run, n):
        self.path, self.over, self.wrong = os.path.join(run, "vsock.sock"), threading.Event(), []
        self.answered = self.closed = 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.loop, daemon=True) for _ in range(n)]
        for thread in self.threads:
            thread.start()

    def call(self):
        """True: it answered; False: it was closed at once, or there is nobody yet."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(60)
            try:
                s.connect(self.path)
                s.sendall(b"CONNECT 7\n")
                line = b""
                while not line.endswith(b"\n"):
                    byte = s.recv(1)
                    if not byte:
                        return False
                    line += byte
                s.sendall(b"storm")
                return read_exactly(s, 5) == b"storm"
            except (FileNotFoundError, ConnectionError):
                return False

    def loop(self):
        while not self.over.is_set():
            try:
                good = self.call()
            except Exception as error:  # a client that waits for ever: TimeoutError
                self.wrong.append(repr(error))
                return
            with self.lock:
                self.answered, self.closed = self.answered + good, self.closed + (not good)
            if not good:
                time.sleep(0.01)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a client waits for ever"
        assert not self.wrong, self.wrong


def case_restore_storm(env):
    """a snapshot in the middle of streams and connections: they go on; who calls its VM meanwhile is answered or cut off (R208)"""
    first = Guest(env, "restore-storm", "serve", vcpus=2)
    first.wait_probe("serve")
    counter(first)
    traffic = Traffic(first)
    time.sleep(2)
    before, boot_id = counter(first), clocks(first)[2]
    assert first.vmm.pause() is None
    waiting = [first.vmm.vsock_begin(7) for _ in range(8)]
    kept = Snapshot(env, first, "kept-storm")
    assert first.vmm.resume() is None
    for s in waiting:
        assert first.vmm.vsock_end(s), "one that connected during the snapshot is refused"
        s.close()
    traffic.end()
    assert traffic.rounds.get("connect"), traffic.rounds

    storm = Storm(os.path.join(env.directory, "restore-storm-2"), 16)
    second = kept.restore(env, "restore-storm-2")
    check_alive(second, before, boot_id)
    at = storm.answered
    until = time.monotonic() + 60
    while storm.answered < at + 32:
        assert time.monotonic() < until, (storm.answered, storm.closed, storm.wrong)
        time.sleep(0.1)
    storm.end()
    env.note("%d clients: %d answered, %d cut off or too early" % (len(storm.threads), storm.answered, storm.closed))
    stats = second.vmm.stats()
    assert stats["vsock_connections"] < 16, stats  # those of before the snapshot are gone
    end_of(first)
    end_of(second)


def restores(env, name, n):
    """Each of them: a loop that sleeps goes on, and a new sleep of 100 ms ends (R209)."""
    first = Guest(env, name, "serve", vcpus=2)
    first.wait_probe("serve")
    before, boot_id = counter(first), clocks(first)[2]
    assert first.vmm.pause() is None
    kept = Snapshot(env, first, "kept-" + name)
    first.vmm.stop()
    assert first.vmm.wait()[0] == 16
    slowest = 0.0
    for i in range(n):
        began = time.monotonic()
        guest = kept.restore(env, "%s-%d" % (name, i))
        at = counter(guest)
        assert at >= before and clocks(guest)[2] == boot_id
        slept = int(ask(guest, 15, b"100\n")) / 1e9
        assert 0.1 <= slept < 10, slept
        until = time.monotonic() + 10
        while counter(guest) <= at:
            assert time.monotonic() < until, "restore %d: the loop is stuck at %d" % (i, at)
            time.sleep(0.05)
        slowest = max(slowest, time.monotonic() - began)
        end_of(guest)
    env.note("%d restores, none stuck, the slowest %.1f s" % (n, slowest))


def case_restores(env):
    """three VMs of one snapshot, one after the other: their timers go on"""
    restores(env, "restores", 3)


def case_long_restores(env):
    """a thousand (in an emulated host a hundred)"""
    restores(env, "long-restores", 100 if EMULATED else 1000)
