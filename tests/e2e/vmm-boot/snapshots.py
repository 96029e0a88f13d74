# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/e2e/vmm-boot/run: snapshots, and VMs that are made of them."""
import errno
import glob
import hashlib
import os
import random
import shutil
import socket
import struct
import subprocess
import time
import zlib

from guest import Guest, ask, source
from pauses import end_of
from tap import Namespace
from vmmclient import Vmm, field

HEADER = struct.Struct("<8sIIII")
MAC = bytes([2, 0, 0, 0, 9, 2])


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def counter(guest):
    return int(ask(guest, 16, b"\n"))


def clocks(guest):
    monotonic, real, boot_id = ask(guest, 14, b"\n").split()
    return int(monotonic) / 1e9, int(real) / 1e9, boot_id


class Snapshot:
    """The files of a paused VM, in a folder of their own, with its second disk as it was."""

    def __init__(self, env, guest, name, differential=False):
        self.folder = os.path.join(env.directory, name)
        os.makedirs(self.folder)
        self.state, self.memory, self.upper = (os.path.join(self.folder, x) for x in ("state", "memory", "upper"))
        began = time.monotonic()
        number = guest.vmm.snapshot_begin(self.state, self.memory, differential)
        assert guest.vmm.state() == "paused", "the control socket does not answer while it is written"
        assert guest.vmm.resume()["code"] == "VMM_CONTROL_INVALID", "went on in the middle of its snapshot"
        assert guest.vmm.snapshot_end(number) is None
        self.seconds = time.monotonic() - began
        shutil.copyfile(guest.upper, self.upper)

    @property
    def files(self):
        return self.state, self.memory

    def restore(self, env, name, **more):
        return Guest(env, name, "", vcpus=2, restore=self.files, upper=self.upper, **more)


class Difference(Snapshot):
    """One over the files that the guest was restored from."""

    def __init__(self, env, guest, name, base):
        super().__init__(env, guest, name, True)
        self.below = base.files

    @property
    def files(self):
        return (self.state, *self.below[1:], self.memory)


def has_stable_tsc():
    with open("/sys/devices/system/clocksource/clocksource0/current_clocksource") as f:
        return f.read().strip() == "tsc"


def tsc_offsets(guest):
    """What KVM adds to the host's TSC, by vCPU: as the kernel says it, in debugfs."""
    found = glob.glob("/sys/kernel/debug/kvm/%d-*/vcpu*/tsc-offset" % guest.vmm.pid)
    assert len(found) == 2, "debugfs shows %d vCPUs of process %d" % (len(found), guest.vmm.pid)
    values = []
    for path in sorted(found):
        with open(path) as f:
            values.append(int(f.read()))
    return values


def check_alive(guest, before, boot_id):
    """The same boot, its processes where they were and running, its disk and vsock at work."""
    at = counter(guest)
    assert before <= at, "the process did not go on: %d, then %d" % (before, at)
    until = time.monotonic() + 30  # it counts a hundred times a second, where its host lets it
    while counter(guest) <= at:
        assert time.monotonic() < until, "the process stands still"
        time.sleep(0.5)
    assert clocks(guest)[2] == boot_id
    assert ask(guest, 13, b"1\n") == "0\n"
    assert source(guest, 1 << 20) == (0, 1 << 20)
    stats = guest.vmm.stats()
    assert stats["bad_gpa"] == 0 and stats["resets_needed"] == 0, stats


def case_snapshot(env):
    """kept while it is at work; it runs on, two others begin where it was, and one of them is kept again"""
    first = Guest(env, "snapshot", "serve", vcpus=2)
    first.wait_probe("serve")
    counter(first)
    assert ask(first, 13, b"1\n") == "0\n"
    held = first.vmm.vsock_begin(7)
    port = first.vmm.vsock_end(held)
    assert port > 0
    before, monotonic, boot_id = counter(first), clocks(first)[0], clocks(first)[2]
    assert first.vmm.snapshot("/dev/shm/croft-none-1", "/dev/shm/croft-none-2")["code"] == "VMM_CONTROL_INVALID"
    assert first.vmm.pause() is None
    paused = time.monotonic()
    kept = Snapshot(env, first, "kept")
    size, used = os.stat(kept.memory).st_size, os.stat(kept.memory).st_blocks * 512
    assert size == (256 << 20) + 4096 and used < size, (size, used)
    env.note("written in %.1f s: %d KiB of state, %d of %d MiB of memory" % (
        kept.seconds, os.stat(kept.state).st_size >> 10, used >> 20, size >> 20))
    sums = digest(kept.state), digest(kept.memory)
    assert first.vmm.resume() is None
    held.sendall(b"held")
    assert held.recv(4) == b"held", "the first VM lost its connection"
    check_alive(first, before, boot_id)

    time.sleep(3)
    began = time.monotonic()
    others = [kept.restore(env, "snapshot-%d" % n) for n in (1, 2)]
    for other in others:
        check_alive(other, before, boot_id)
        # R113: what is still under way for a connection of before the snapshot meets no new one
        fresh = other.vmm.vsock_begin(7)
        assert other.vmm.vsock_end(fresh) > port, "a port is used again"
        fresh.close()
        # its monotonic clock went on from the snapshot, not from the time that has passed since
        assert clocks(other)[0] - monotonic < time.monotonic() - paused - 3, "its clock did not stand still"
        offsets, here = tsc_offsets(first), tsc_offsets(other)
        if has_stable_tsc():
            assert here[0] - here[1] == offsets[0] - offsets[1], "two TSCs lie apart: %s, here %s" % (offsets, here)
    if not has_stable_tsc():
        env.note("the host's TSC is unstable: KVM keeps the guests' by itself, their offsets were not compared")
    env.note("two of them answer after %.1f s" % (time.monotonic() - began))
    assert counter(first) > 0 and len({g.vmm.pid for g in [first] + others}) == 3

    again = others[0]
    at = counter(again)
    assert again.vmm.pause() is None
    twice = Snapshot(env, again, "twice")
    assert again.vmm.resume() is None
    third = twice.restore(env, "snapshot-3")
    check_alive(third, at, boot_id)
    assert (digest(kept.state), digest(kept.memory)) == sums, "a snapshot's files changed under its VMs"
    for guest in [first] + others + [third]:
        end_of(guest)


def case_snapshot_net(env):
    """a VM with a TAP and a balloon: both work in the VM that is made of its snapshot"""
    host = Namespace("10.9.0.1")
    first = Guest(env, "snapshot-net", "serve", vcpus=2, tap=host.fd, mac=MAC, balloon=True,
                  cmdline="probe.ip=10.9.0.2 probe.host=10.9.0.1")
    first.wait_probe("serve")
    counter(first)
    assert first.vmm.set_balloon(64) is None
    until = time.monotonic() + 120
    while first.vmm.stats()["balloon"]["pages"] != 64 * 256:
        assert time.monotonic() < until, first.vmm.stats()["balloon"]
        time.sleep(0.5)
    assert first.vmm.pause() is None
    kept = Snapshot(env, first, "kept-net")
    first.vmm.stop()
    assert first.vmm.wait()[0] == 16
    second = kept.restore(env, "snapshot-net-2", tap=host.fd, mac=MAC, balloon=True)
    assert second.vmm.stats()["balloon"]["pages"] == 64 * 256
    s = host.connect("10.9.0.2", 10)
    s.sendall(b"\0" * 100)
    s.shutdown(socket.SHUT_WR)
    assert s.recv(64).startswith(b"100 "), "no network"
    s.close()
    assert second.vmm.set_balloon(0) is None
    until = time.monotonic() + 120
    while second.vmm.stats()["balloon"]["pages"] != 0:
        assert time.monotonic() < until, second.vmm.stats()["balloon"]
        time.sleep(0.5)
    assert ask(second, 11, b"96\n") == "96\n"
    end_of(second)


def refused(env, kept, code, state=None, memory=None, vcpus=2, mib=256, disks=None, tap=None, files=None):
    """A start from these files ends with the code, before a vCPU runs."""
    refused.number += 1
    run = os.path.join(env.directory, "refused-%d" % refused.number)
    vmm = Vmm(env.vmm, run)
    base = os.path.join(run, "base")
    with open(base, "wb") as f:
        f.truncate(1 << 20)
    if disks is None:
        disks = [(base, True, "base"), (kept.upper, False, "upper")]
    got = vmm.start(None, None, disks, vcpus, mib, cid=3, tap=tap, mac=MAC if tap is not None else b"",
                    restore=files or (state or kept.state, memory or kept.memory))
    assert got and got["code"] == code, "%s: %s" % (code, got)
    status, record = vmm.wait(30)
    assert status == 18 and record["failure"]["code"] == code, (status, record)
    assert "started" not in [e[0] for e in vmm.events]
    shutil.rmtree(run)
    return got


refused.number = 0


def change(kept, name, edit, sums=True):
    """A copy of the state file with its message changed; `sums`: and its header made to fit."""
    path = os.path.join(kept.folder, name)
    with open(kept.state, "rb") as f:
        data = bytearray(f.read())
    edit(data)
    if sums:
        message = bytes(data[HEADER.size:])
        magic, version, _, _, zero = HEADER.unpack_from(data)
        HEADER.pack_into(data, 0, magic, version, len(message), zlib.crc32(message), zero)
    with open(path, "wb") as f:
        f.write(data)
    return path


def case_snapshot_refused(env):
    """damaged files, another format, another CPU, another machine: each by its name and before a vCPU runs"""
    guest = Guest(env, "refused", "serve", vcpus=2)
    guest.wait_probe("serve")
    assert guest.vmm.pause() is None
    kept = Snapshot(env, guest, "kept-refused")
    guest.vmm.stop()
    assert guest.vmm.wait()[0] == 16
    size = os.stat(kept.state).st_size
    seed = random.randrange(1 << 32)
    env.note("seed %d" % seed)
    dice = random.Random(seed)
    for n in [0, 10, HEADER.size - 1, HEADER.size, size // 2, size - 1]:
        refused(env, kept, "SNAPSHOT_INVALID", change(kept, "short", lambda data: data.__delitem__(slice(n, None)), False))
    for _ in range(8):
        at = dice.randrange(12, size)  # behind what says which format it is

        def flip(data):
            data[at] ^= 1 << dice.randrange(8)
        refused(env, kept, "SNAPSHOT_INVALID", change(kept, "flipped", flip, False))
    refused(env, kept, "SNAPSHOT_INVALID", change(kept, "long", lambda data: data.append(0), False))
    refused(env, kept, "SNAPSHOT_INVALID", change(kept, "nonsense", lambda data: data.extend(b"\xff" * 8)))
    got = refused(env, kept, "SNAPSHOT_VERSION", change(kept, "format", lambda data: data.__setitem__(8, 99), False))
    assert got["fields"]["have"] == "99", got
    have = bytes(open(kept.state, "rb").read())
    assert have.startswith(b"croftvm\0")
    vendor = have.index(b"Auth") if b"Auth" in have else have.index(b"Genu")
    got = refused(env, kept, "SNAPSHOT_CPU_MISMATCH", change(kept, "cpu", lambda data: data.__setitem__(vendor, ord("X"))))
    assert got["fields"]["leaf"] == "0x0", got
    short = os.path.join(kept.folder, "short-memory")
    subprocess.run(["cp", "--sparse=always", kept.memory, short], check=True)
    os.truncate(short, (256 << 20) - 4096)
    refused(env, kept, "SNAPSHOT_INVALID", memory=short)
    assert refused(env, kept, "SNAPSHOT_MISMATCH", vcpus=1)["fields"]["what"] == "number of vCPUs"
    refused(env, kept, "SNAPSHOT_INVALID", mib=512)  # the memory file is another's
    refused(env, kept, "SNAPSHOT_MISMATCH", disks=[])
    small = os.path.join(kept.folder, "small")
    with open(small, "wb") as f:
        f.truncate(1 << 20)
    got = refused(env, kept, "SNAPSHOT_MISMATCH", disks=[(small, True, "base"), (small, False, "upper")])
    assert got["fields"]["what"] == "number of a disk's sectors", got


def case_snapshot_broken_off(env):
    """a snapshot that is not written to its end is none: told to stop meanwhile, killed meanwhile"""
    for how in ("stop", "kill"):
        guest = Guest(env, "broken-off-" + how, "serve")
        guest.wait_probe("serve")
        vmm = guest.vmm
        assert vmm.pause() is None
        folder = os.path.join(env.directory, "broken-" + how)
        os.mkdir(folder)
        state, memory = os.path.join(folder, "state"), os.path.join(folder, "memory")
        number = vmm.snapshot_begin(state, memory)
        if how == "stop":
            vmm.send(field(3, field(2, 60000)))
            failure = vmm.snapshot_end(number)
            assert failure and (failure["code"], failure["errno"]) == ("SNAPSHOT_FAILED", errno.ECANCELED), failure
        else:
            vmm.process.kill()
        vmm.stop() if how == "stop" else vmm.process.wait(60)
        assert os.stat(state).st_size == 0, "the state was there before all of memory was"


def case_snapshot_host(env):
    """no room for the files: the VM is as it was; a memory file that is cut under a VM: it ends, and says why"""
    guest = Guest(env, "snapshot-host", "serve", vcpus=2)
    guest.wait_probe("serve")
    small = os.path.join(env.directory, "small")
    os.makedirs(small)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "small", small], check=True)
    try:
        assert guest.vmm.pause() is None
        failed = guest.vmm.snapshot(os.path.join(small, "state"), os.path.join(small, "memory"))
        assert failed["code"] == "SNAPSHOT_FAILED" and "memory" in failed["message"], failed
        assert guest.vmm.state() == "paused"
    finally:
        subprocess.run(["umount", small], check=True)
    kept = Snapshot(env, guest, "kept-host")
    assert guest.vmm.resume() is None
    assert ask(guest, 13, b"1\n") == "0\n"
    end_of(guest)
    second = kept.restore(env, "snapshot-host-2")
    os.truncate(kept.memory, 0)
    try:
        s = second.vmm.vsock(11)  # may find nobody any more, or be cut off
        if s:
            s.sendall(b"64\n")
            s.recv(1)
    except OSError:
        pass
    status, record = second.vmm.wait(60)
    assert status == record["reason"] and record["failure"]["code"] == "HOST_MEMORY_FAULT", (status, record)
