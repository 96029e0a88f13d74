# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/e2e/vmm-boot/run: a VM that is paused and goes on."""
import ctypes
import os
import pathlib
import socket
import threading
import time

from guest import Guest, ask, pattern, read_exactly, source


class Traffic:
    """Streams in both directions, a disk at work and connections that come and go, each in a thread; what went wrong."""

    def __init__(self, guest):
        self.guest, self.over, self.wrong, self.rounds = guest, threading.Event(), [], {}
        self.threads = [threading.Thread(target=self.loop, args=(f,), daemon=True)
                        for f in (self.from_guest, self.to_guest, self.disk, self.connect)]
        for thread in self.threads:
            thread.start()

    def loop(self, f):
        while not self.over.is_set():
            try:
                f()
                self.rounds[f.__name__] = self.rounds.get(f.__name__, 0) + 1
            except Exception as error:  # all of them end up in `wrong`
                self.wrong.append("%s: %r" % (f.__name__, error))
                return

    def from_guest(self):
        got = source(self.guest, 1 << 20)
        assert got == (0, 1 << 20), got

    def to_guest(self):
        s = self.guest.vmm.vsock(10, timeout=300)
        for at in range(0, 1 << 20, 1 << 16):
            s.sendall(pattern(at, 1 << 16))
        s.shutdown(socket.SHUT_WR)
        answer = s.recv(64)
        assert answer == b"%d 0\n" % (1 << 20), answer
        s.close()

    def disk(self):
        answer = ask(self.guest, 13, b"1\n")
        assert answer == "0\n", answer

    def connect(self):
        s = self.guest.vmm.vsock(7, timeout=300)
        s.sendall(b"new")
        assert read_exactly(s, 3) == b"new"
        s.close()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(600)
            assert not thread.is_alive(), "a stream does not come to its end"
        assert not self.wrong, self.wrong


def at_rest(vmm):
    """Paused, and no vCPU is entered. Its thread may still be on its way into its wait when the answer comes, which costs
    it a moment of CPU time; one that ran the guest would use some in each of these samples."""
    assert vmm.state() == "paused"
    first = before = vmm.stats()
    for _ in range(20):
        time.sleep(0.05)
        after = vmm.stats()
        for name in ("kvm_runs", "io_exits", "mmio_exits", "disks"):
            assert first[name] == after[name], (name, first[name], after[name])
        if before["vcpu_usec"] == after["vcpu_usec"]:
            return
        before = after
    raise AssertionError("the vCPUs' threads do not come to rest: %d, then %d us" % (first["vcpu_usec"], after["vcpu_usec"]))


def pause_often(env, name, times):
    guest = Guest(env, name, "serve", vcpus=2)
    guest.wait_probe("serve")
    vmm, worst = guest.vmm, 0.0
    held = vmm.vsock(7, timeout=300)  # a connection that lives through all of it
    traffic = Traffic(guest)
    time.sleep(1)
    for n in range(times):
        began = time.monotonic()
        assert vmm.pause() is None
        worst = max(worst, time.monotonic() - began)
        if n % 10 == 0:
            at_rest(vmm)
        assert vmm.resume() is None
        time.sleep(0.02)
        if n % 10 == 0:
            held.sendall(b"%5d" % n)
            assert read_exactly(held, 5) == b"%5d" % n
    assert vmm.state() == "running"
    traffic.end()
    held.close()
    env.note("%d pauses, the slowest %.0f ms; %s" % (times, worst * 1000, traffic.rounds))
    assert all(traffic.rounds.get(kind) for kind in ("from_guest", "to_guest", "disk", "connect")), traffic.rounds
    stats = vmm.stats()
    assert stats["bad_gpa"] == 0 and stats["resets_needed"] == 0, stats
    return guest


def end_of(guest):
    guest.vmm.vsock(9)
    status, record = guest.vmm.wait(60)
    assert status == 10 and record["reason"] == 10, (status, record)


def monotonic(guest):
    return int(ask(guest, 14, b"\n").split()[0]) / 1e9


def case_pause(env):
    """paused under streams both ways, a disk at work and new connections; clocks and timers of the guest"""
    guest = pause_often(env, "pause", 40)
    vmm = guest.vmm
    assert vmm.resume() is None, "running already"
    # twelve seconds asleep from the guest's view, with a pause of as many in the middle
    out = []
    sleeper = threading.Thread(target=lambda: out.append(int(ask(guest, 15, b"12000\n")) / 1e9))
    before, began = monotonic(guest), time.monotonic()
    sleeper.start()
    time.sleep(2)
    assert vmm.pause() is None and vmm.pause() is None
    assert not out, "the sleep ended before it was paused: this machine is too slow for the test"
    time.sleep(12)
    at_rest(vmm)
    assert not out
    # what connects now waits
    waiting = vmm.vsock_begin(7)
    assert vmm.resume() is None
    assert vmm.vsock_end(waiting)
    waiting.sendall(b"waited")
    assert read_exactly(waiting, 6) == b"waited"
    waiting.close()
    sleeper.join(120)
    after, ended = monotonic(guest), time.monotonic()
    assert out and 12 <= out[0], "a timer ended early, or never: %s" % out
    assert ended - began >= 24, "the sleep took %.1f s in all" % (ended - began)
    assert after - before <= ended - began - 11, "the guest's clock went on: %.1f of %.1f s" % (after - before, ended - began)
    # ended while it is paused: at once, whatever its vCPUs wait for
    assert vmm.pause() is None
    vmm.stop()
    assert vmm.wait(30)[0] == 16


class Held:
    """A thread of the VMM that does nothing, as one does that waits for a slow disk: stopped by ptrace, it alone."""
    SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, pid, name):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long] * 4
        self.tid = next(int(task.name) for task in pathlib.Path("/proc/%d/task" % pid).iterdir()
                        if (task / "comm").read_text().strip().startswith(name))
        self.call(self.SEIZE)
        self.call(self.INTERRUPT)
        os.waitpid(self.tid, self.WALL)

    def call(self, request):
        if self.libc.ptrace(request, self.tid, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "ptrace %#x" % request)

    def release(self):
        self.call(self.DETACH)


def case_pause_given_up(env):
    """a vCPU that does not come to rest: PAUSE_FAILED, and the guest runs on"""
    guest = Guest(env, "pause-given-up", "serve")
    guest.wait_probe("serve")
    vmm = guest.vmm
    held = Held(vmm.pid, "vcpu")
    try:
        failure = vmm.pause()
    finally:
        held.release()
    assert failure and failure["code"] == "PAUSE_FAILED", failure
    assert vmm.state() == "running"
    held = vmm.vsock(7, timeout=60)
    held.sendall(b"goes on")
    assert read_exactly(held, 7) == b"goes on"
    held.close()
    before = vmm.stats()
    time.sleep(2)
    after = vmm.stats()
    # an idle guest; a vCPU that is thrown out of KVM_RUN at once makes some hundred thousand of these
    assert after["kvm_runs"] - before["kvm_runs"] < 20000, (before, after)
    assert vmm.pause() is None and vmm.resume() is None
    end_of(guest)


def case_long_pauses(env):
    """a thousand pauses under traffic (R106)"""
    end_of(pause_often(env, "long-pauses", 1000))
