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


class Listener:
    """A host process that listens for connections of the guest to `port` and accepts none."""

    def __init__(self, guest, port, backlog):
        self.path = os.path.join(guest.run, "vsock.sock_%d" % port)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o777)
        self.socket.listen(backlog)

    def end(self):
        self.socket.close()
        os.unlink(self.path)


def flood(guest, n):
    """Lets the guest connect `n` times to port 5: accepted, refused, most at once, answers of the control socket meanwhile."""
    s = guest.vmm.vsock(17, timeout=7200)
    s.sendall(b"%d\n" % n)
    highest = asked = 0
    while True:
        highest = max(highest, guest.vmm.stats()["vsock_connections"])
        asked += 1
        s.settimeout(0.2)
        try:
            accepted, refused = map(int, s.recv(64).split())
            break
        except TimeoutError:
            pass
    s.close()
    assert accepted + refused == n, (accepted, refused)
    return accepted, refused, highest, asked


def connects(env, name, n):
    witness = Witness(env)
    guest = Guest(env, name, "serve")
    guest.wait_probe("serve")
    before = rss_mib(guest.vmm.pid)
    # R104: no room in the backlog: a reset for each, and nobody waits for the host's process
    listener = Listener(guest, 5, 0)
    accepted, refused, _, asked = flood(guest, 100)
    assert accepted <= 2 and refused >= 98, (accepted, refused)
    env.note("a listener without room: %d accepted, %d refused, %d answers of the control socket" % (accepted, refused, asked))
    listener.end()
    # R103: the kernel holds them all, the VMM 1024
    listener = Listener(guest, 5, 4096)
    heard = len(witness.times)
    accepted, refused, highest, asked = flood(guest, n)
    heard = len(witness.times) - heard
    after = rss_mib(guest.vmm.pid)
    env.note("%d connects: %d accepted, %d refused, at most %d at once; RSS %d MiB, then %d; meanwhile %d answers of its control "
             "socket and %d of its neighbour, the slowest %.2f s" % (n, accepted, refused, highest, before, after, asked, heard,
                                                                    witness.end()))
    assert refused >= n - 1024 and 0 < highest <= 1024, (refused, highest)
    assert heard > 0, "the neighbour was not heard meanwhile"
    assert after - before < 64, (before, after)  # guest pages it touched for the first time are in it
    listener.end()
    end_of(guest)


def case_connects(env):
    """a guest that makes more connections than it may have: each one over is refused at once, its neighbour goes on"""
    connects(env, "connects", 2000)


def case_long_connects(env):
    """a guest that makes a million connections: 1024 are held, the rest refused; the VMM does not grow, its neighbour goes on"""
    connects(env, "long-connects", 20000 if EMULATED else 1000000)


def case_long_stream(env):
    """10 GB out of a guest into a reader that is slow: every byte, no reset"""
    size = (100 << 20) if EMULATED else (10 << 30)
    guest = Guest(env, "long-stream", "serve", vcpus=2)
    guest.wait_probe("serve")
    began = time.monotonic()
    assert source(guest, size, pause=0.0005) == (0, size)
    env.note("%d MiB in %.0f s" % (size >> 20, time.monotonic() - began))
    end_of(guest)


def serves(guest):
    """Without its console nothing else says when; before its driver is up a connection is closed at once."""
    try:
        return guest.vmm.vsock(7) is not None
    except (BrokenPipeError, ConnectionResetError):
        return False


def case_long_console(env):
    """1 GB on the console, of which nobody reads a byte: the guest goes on, what is lost is counted"""
    mib = 2 if EMULATED else 1024
    fifo = os.path.join(env.directory, "console-fifo")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    guest = Guest(env, "long-console", "serve", console=fifo)
    until = time.monotonic() + 900
    while not serves(guest):
        assert time.monotonic() < until, "it does not serve"
        time.sleep(0.5)
    before = rss_mib(guest.vmm.pid)
    s = guest.vmm.vsock(18, timeout=7200)
    s.sendall(b"%d\n" % mib)
    assert read_exactly(s, 5) == b"done\n"
    stats = guest.vmm.stats()
    assert stats["console_bytes"] >= mib << 20 and stats["console_dropped"] >= stats["console_bytes"] - (1 << 20) - (1 << 18), stats
    assert rss_mib(guest.vmm.pid) - before < 32
    assert ask(guest, 14, b"\n")
    env.note("%d bytes, %d dropped" % (stats["console_bytes"], stats["console_dropped"]))
    end_of(guest)
    os.close(reader)
