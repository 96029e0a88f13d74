# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/e2e/vmm-boot/run: VMs that are forked while they run, and what is made of them."""
import os
import shutil
import socket
import time

from guest import Guest, ask
from pauses import Traffic, end_of
from snapshots import MAC, Difference, Snapshot, check_alive, clocks, counter, refused
from tap import Namespace


class Fork:
    """Descriptors of a running VM, and its second disk as it was then."""

    number = 0

    def __init__(self, env, guest, pause=True):
        Fork.number += 1
        self.env, self.name = env, "fork-%d" % Fork.number
        self.upper = os.path.join(env.directory, self.name + "-upper")
        if pause:
            assert guest.vmm.pause() is None
        began = time.monotonic()
        failed, self.fds = guest.vmm.fork()
        assert failed is None, failed
        self.ms = (time.monotonic() - began) * 1000
        self.copied = guest.vmm.copied_pages
        shutil.copyfile(guest.upper, self.upper)
        assert guest.vmm.resume() is None

    def start(self, **more):
        Fork.number += 1
        return Guest(self.env, "forked-%d" % Fork.number, "", vcpus=2, forked=self.fds, upper=self.upper, **more)

    def close(self):
        for fd in self.fds:
            os.close(fd)


def held(guest, pages=0):
    """Writes that many pages of 16 MiB anew; without, how many are not as they were written."""
    return int(ask(guest, 19, b"%d\n" % pages))


def forks(env, name, generations):
    vm = Guest(env, name, "serve", vcpus=2)
    vm.wait_probe("serve")
    counter(vm)
    boot_id = clocks(vm)[2]
    assert held(vm, 6000) == 0
    fast = vm.vmm.vsock_begin(7)
    assert vm.vmm.vsock_end(fast)
    for generation in range(generations):
        traffic = Traffic(vm)
        time.sleep(2)
        before = counter(vm)
        first = Fork(env, vm)
        time.sleep(1)
        second = Fork(env, vm)  # and again, a second later
        traffic.end()
        env.note("generation %d: %d pages copied in %.0f ms, then %d in %.0f ms; %d layers" % (
            generation, first.copied, first.ms, second.copied, second.ms, len(second.fds) - 2))
        assert (first.copied == 0) == (generation == 0), first.copied
        assert 0 < second.copied < 20000, "not what was written in a second: %d pages" % second.copied
        if generation == 0:
            fast.sendall(b"held")
            assert fast.recv(4) == b"held", "the first VM lost its connection"
        children = [first.start(), second.start()]
        assert held(vm, 300) == 0
        for child in children:
            assert held(child) == 0
            check_alive(child, before, boot_id)
            assert held(child, 300) == 0
        for one in [vm] + children:
            assert held(one) == 0
        check_alive(vm, before, boot_id)
        end_of(vm)
        end_of(children[0])
        first.close()
        second.close()
        vm = children[1]  # its parent is gone, and so are the descriptors
        assert held(vm) == 0
    check_alive(vm, before, boot_id)
    end_of(vm)


def case_fork(env):
    """forked twice with disk and vsock in use; the parent goes on, and then ends; no page is another's"""
    forks(env, "fork", 1)


def case_long_forks(env):
    """the same over six generations: children are forked again, layers are put together"""
    forks(env, "long-forks", 6)


def case_long_fork_net(env):
    """with a TAP and a balloon: both work on in the parent and in the child"""
    host = Namespace("10.9.0.1")
    vm = Guest(env, "long-fork-net", "serve", vcpus=2, tap=host.fd, mac=MAC, balloon=True,
               cmdline="probe.ip=10.9.0.2 probe.host=10.9.0.1")
    vm.wait_probe("serve")
    counter(vm)
    assert vm.vmm.set_balloon(64) is None

    def pages(guest, wanted):
        until = time.monotonic() + 120
        while guest.vmm.stats()["balloon"]["pages"] != wanted:
            assert time.monotonic() < until, guest.vmm.stats()["balloon"]
            time.sleep(0.5)

    def sends(count):
        s = host.connect("10.9.0.2", 10)
        s.sendall(b"\0" * count)
        s.shutdown(socket.SHUT_WR)
        assert s.recv(64).startswith(b"%d " % count), "no network"
        s.close()

    pages(vm, 64 * 256)
    stream = host.connect("10.9.0.2", 10)
    stream.sendall(b"\0" * 50)
    fork = Fork(env, vm)
    stream.sendall(b"\0" * 50)
    stream.shutdown(socket.SHUT_WR)
    assert stream.recv(64).startswith(b"100 "), "the parent lost its connection"
    sends(1000)
    assert vm.vmm.set_balloon(0) is None
    pages(vm, 0)
    assert ask(vm, 11, b"96\n") == "96\n"
    end_of(vm)
    child = fork.start(tap=host.fd, mac=MAC, balloon=True)
    assert child.vmm.stats()["balloon"]["pages"] == 64 * 256
    sends(1000)
    assert child.vmm.set_balloon(0) is None
    pages(child, 0)
    assert ask(child, 11, b"96\n") == "96\n"
    assert held(child) == 0
    end_of(child)


def case_long_fork_of_a_snapshot(env):
    """a restored VM whose snapshot was deleted is forked, and kept as a snapshot again, as is its child"""
    vm = Guest(env, "fork-snapshot", "serve", vcpus=2)
    vm.wait_probe("serve")
    before, boot_id = counter(vm), clocks(vm)[2]
    assert held(vm, 6000) == 0
    assert vm.vmm.pause() is None
    kept = Snapshot(env, vm, "fork-kept")
    vm.vmm.stop()
    assert vm.vmm.wait()[0] == 16
    restored = kept.restore(env, "fork-restored")
    shutil.rmtree(kept.folder)
    assert held(restored, 100) == 0
    fork = Fork(env, restored)
    assert 0 < fork.copied < 20000, fork.copied
    child = fork.start()
    for one in (restored, child):
        assert held(one, 100) == 0
        check_alive(one, before, boot_id)
        assert one.vmm.pause() is None
        again = Snapshot(env, one, "fork-again-%d" % one.vmm.pid)
        one.vmm.stop()
        assert one.vmm.wait()[0] == 16
        used = os.stat(again.memory).st_blocks * 512
        assert used < 200 << 20, "holes were written: %d MiB" % (used >> 20)
        last = again.restore(env, "fork-last-%d" % one.vmm.pid)
        assert held(last) == 0
        check_alive(last, before, boot_id)
        end_of(last)


def case_fork_refused(env):
    """before start, while it runs; descriptors that could still be changed, damaged layers: by name, and the parent runs on"""
    from vmmclient import Vmm
    empty = Vmm(env.vmm, os.path.join(env.directory, "fork-empty"))
    assert empty.fork()[0]["code"] == "VMM_CONTROL_INVALID"
    empty.stop()
    vm = Guest(env, "fork-refused", "serve", vcpus=2)
    vm.wait_probe("serve")
    before, boot_id = counter(vm), clocks(vm)[2]
    assert vm.vmm.fork()[0]["code"] == "VMM_CONTROL_INVALID"
    Fork(env, vm).close()
    assert held(vm, 100) == 0
    fork = Fork(env, vm)
    assert len(fork.fds) == 3, fork.fds
    open_memory, damaged = os.memfd_create("memory"), os.memfd_create("layer", os.MFD_ALLOW_SEALING)
    os.truncate(open_memory, 256 << 20)
    layer = bytearray(os.pread(fork.fds[2], os.fstat(fork.fds[2]).st_size, 0))
    layer[-1] ^= 0x40
    os.write(damaged, layer)
    import fcntl
    fcntl.fcntl(damaged, fcntl.F_ADD_SEALS, 15)
    state, memory, top = fork.fds
    for fds in ([state, open_memory, top], [state, memory, open_memory], [state, memory, damaged], [state, memory, state]):
        child = Vmm(env.vmm, os.path.join(env.directory, "fork-child"))
        base = os.path.join(child.run, "base")
        with open(base, "wb") as f:
            f.truncate(1 << 20)
        got = child.start(None, None, [(base, True, "base"), (fork.upper, False, "upper")], 2, 256, cid=3, forked=fds)
        assert got and got["code"] == "SNAPSHOT_INVALID", got
        assert child.wait(30)[0] == 18
        shutil.rmtree(child.run)
    for fd in (state, memory, top):  # and nobody can write to what children begin from
        for opened in (fd, os.open("/proc/self/fd/%d" % fd, os.O_RDWR)):
            try:
                os.pwrite(opened, b"x", 0)
                raise AssertionError("a frozen file was written to")
            except PermissionError:
                pass
    check_alive(vm, before, boot_id)
    end_of(vm)


def case_long_shell(env):
    """a VM made ahead becomes a clone and a restored VM; what does not fit it is refused by name; it can be stopped unused"""
    from vmmclient import Vmm
    vm = Guest(env, "shell", "serve", vcpus=2)
    vm.wait_probe("serve")
    before, boot_id = counter(vm), clocks(vm)[2]
    assert held(vm, 1000) == 0
    fork = Fork(env, vm)
    child = fork.start(shell=lambda guest: None)
    assert held(child) == 0
    check_alive(child, before, boot_id)
    second = Fork(env, child)  # a clone of a clone, with a layer
    grandchild = second.start(shell=lambda guest: None)
    assert held(grandchild) == 0
    check_alive(grandchild, before, boot_id)
    for one in (vm, child, grandchild):
        end_of(one)

    disks = [(fork.upper, True, "base"), (fork.upper, False, "upper")]

    def shell(**more):
        vmm = Vmm(env.vmm, os.path.join(env.directory, "shell-unused"))
        arguments = dict(disks=disks, vcpus=2, memory=256, cid=3)
        arguments.update(more)
        failed = vmm.start(None, None, prepare=True, **arguments)
        return vmm, failed

    def end(vmm, status):
        assert vmm.wait(60)[0] == status
        shutil.rmtree(vmm.run)

    unused, failed = shell()
    assert failed is None and unused.state() == "prepared"
    for refused in (unused.pause(), unused.fork()[0], unused.set_balloon(1)):
        assert refused["code"] == "VMM_CONTROL_INVALID", refused
    assert unused.start(env.kernel)["code"] == "VMM_CONTROL_INVALID"  # a kernel, into what is for a clone
    assert unused.state() == "prepared"
    unused.stop(force=False, grace_ms=60000)
    end(unused, 16)
    for more in (dict(vcpus=1), dict(memory=512), dict(disks=disks[:1]), dict(disks=[disks[1], disks[1]])):
        vmm, failed = shell(**more)
        assert failed is None, failed
        failed = vmm.start(None, None, disks, 2, 256, forked=fork.fds, prepared=True)
        assert failed and failed["code"] == "SNAPSHOT_MISMATCH", failed
        end(vmm, 18)
    vmm, failed = shell(vcpus=0)
    assert failed["code"] == "VCPUS_INVALID", failed
    end(vmm, 18)
    none = Vmm(env.vmm, os.path.join(env.directory, "shell-unused"))
    assert none.start(None, None, disks, 2, 256, forked=fork.fds, prepared=True)["code"] == "VMM_CONTROL_INVALID"
    none.stop()
    end(none, 16)


def memory_kib(guest):
    """What the guest has written to memory of its own, as the host's kernel counts it."""
    with open("/proc/%d/smaps" % guest.vmm.pid) as f:
        total, ours = 0, False
        for line in f:
            if line[0] in "0123456789abcdef" and "-" in line.split(" ")[0]:
                ours = "/memory" in line or "memfd:croft-" in line
            elif ours and line.startswith("Anonymous:"):
                total += int(line.split()[1])
    return total


def case_long_differential(env):
    """what changed since the restore, twice one over the other, also after a fork; what does not belong together is refused"""
    vm = Guest(env, "differential", "serve", vcpus=2)
    vm.wait_probe("serve")
    before, boot_id = counter(vm), clocks(vm)[2]
    assert held(vm, 4000) == 0
    assert vm.vmm.pause() is None
    number = vm.vmm.snapshot_begin("/dev/shm/croft-diff-1", "/dev/shm/croft-diff-2", True)
    assert vm.vmm.snapshot_end(number)["code"] == "VMM_CONTROL_INVALID", "a difference from nothing"
    full, other = Snapshot(env, vm, "diff-full"), Snapshot(env, vm, "diff-other")
    vm.vmm.stop()
    assert vm.vmm.wait()[0] == 16
    kept, chain = full, []
    for n in range(2):
        vm = kept.restore(env, "differential-%d" % n)
        assert held(vm) == 0
        check_alive(vm, before, boot_id)
        if n == 1:
            Fork(env, vm).close()
        assert held(vm, 500) == 0
        assert vm.vmm.pause() is None
        dirty = memory_kib(vm)
        kept = Difference(env, vm, "diff-%d" % n, kept)
        chain.append(kept)
        size = os.stat(kept.memory).st_size >> 10
        env.note("differential snapshot: %d KiB, of %d KiB that are the VM's own and in no layer" % (size, dirty))
        if n == 0:
            assert 500 * 4 < size <= dirty * 1.05, (size, dirty)
        vm.vmm.stop()
        assert vm.vmm.wait()[0] == 16
    last = kept.restore(env, "differential-last")
    assert held(last) == 0
    check_alive(last, before, boot_id)
    end_of(last)
    first, second = chain
    for files in ((second.state, full.memory, second.memory), (second.state, full.memory, second.memory, first.memory),
                  (first.state, other.memory, first.memory), (first.state, full.memory), (second.state, full.memory, first.memory),
                  (full.state, full.memory, first.memory), (full.state, other.memory)):
        refused(env, first, "SNAPSHOT_INVALID", files=files)
    for path in ("/dev/shm/croft-diff-1", "/dev/shm/croft-diff-2"):
        os.unlink(path)
