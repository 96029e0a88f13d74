# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/e2e/vmm-boot/run: a guest that does too much of something, and one beside it that must not notice. Full
size on a real KVM; in an emulated host, which is some hundred times slower, a part of it."""
import os
import socket
import threading
import time

from guest import Guest, ask, read_exactly, rss_mib, source
from pauses import end_of

EMULATED = os.environ.get("CROFT_KVM_HOST") == "emulated"


class Witness:
    """Another VM: asked again and again, and how long the slowest answer took."""

    def __init__(self, env):
        self.guest, self.over, self.times = Guest(env, "witness", "serve"), threading.Event(), []
        self.guest.wait_probe("serve")
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def ask(self):
        while not self.over.wait(0.5):
            began = time.monotonic()
            s = self.guest.vmm.vsock(7, timeout=120)
            s.sendall(b"still there")
            assert read_exactly(s, 11) == b"still there"
            s.close()
            self.times.append(time.monotonic() - began)

    def end(self):
        self.over.set()
        self.thread.join(180)
        assert not self.thread.is_alive() and self.times
        end_of(self.guest)
        return max(self.times)


def case_long_connects(env):
    """a guest that makes a million connections: 1024 are held, the rest refused; the VMM does not grow, its neighbour goes on"""
    n = 20000 if EMULATED else 1000000
    witness = Witness(env)
    guest = Guest(env, "long-connects", "serve")
    guest.wait_probe("serve")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = os.path.join(guest.run, "vsock.sock_5")
    listener.bind(path)
    os.chmod(path, 0o777)
    listener.listen(4096)  # never accepted: the kernel holds them
    before = rss_mib(guest.vmm.process.pid)
    s = guest.vmm.vsock(17, timeout=7200)
    s.sendall(b"%d\n" % n)
    highest = 0
    while True:
        s.settimeout(2)
        try:
            line = s.recv(64)
            break
        except TimeoutError:
            highest = max(highest, guest.vmm.stats()["vsock_connections"])
    accepted, refused = map(int, line.split())
    after = rss_mib(guest.vmm.process.pid)
    env.note("%d connects: %d accepted, %d refused, at most %d at once; RSS %d MiB, then %d; the neighbour's slowest answer %.2f s"
             % (n, accepted, refused, highest, before, after, witness.end()))
    assert accepted + refused == n and refused >= n - 1024, (accepted, refused)
    assert 0 < highest <= 1024, highest
    assert after - before < 64, (before, after)  # guest pages it touched for the first time are in it
    end_of(guest)


def case_long_stream(env):
    """10 GB out of a guest into a reader that is slow: every byte, no reset"""
    size = (100 << 20) if EMULATED else (10 << 30)
    guest = Guest(env, "long-stream", "serve", vcpus=2)
    guest.wait_probe("serve")
    began = time.monotonic()
    assert source(guest, size, pause=0.0005) == (0, size)
    env.note("%d MiB in %.0f s" % (size >> 20, time.monotonic() - began))
    end_of(guest)


def case_long_console(env):
    """1 GB on the console, of which nobody reads a byte: the guest goes on, what is lost is counted"""
    mib = 2 if EMULATED else 1024
    fifo = os.path.join(env.directory, "console-fifo")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    guest = Guest(env, "long-console", "serve", console=fifo)
    until = time.monotonic() + 120
    while guest.vmm.vsock(7) is None:
        assert time.monotonic() < until, "it does not serve"
        time.sleep(0.5)
    before = rss_mib(guest.vmm.process.pid)
    s = guest.vmm.vsock(18, timeout=7200)
    s.sendall(b"%d\n" % mib)
    assert read_exactly(s, 5) == b"done\n"
    stats = guest.vmm.stats()
    assert stats["console_bytes"] >= mib << 20 and stats["console_dropped"] >= stats["console_bytes"] - (1 << 20) - (1 << 18), stats
    assert rss_mib(guest.vmm.process.pid) - before < 32
    assert ask(guest, 14, b"\n")
    env.note("%d bytes, %d dropped" % (stats["console_bytes"], stats["console_dropped"]))
    end_of(guest)
    os.close(reader)
