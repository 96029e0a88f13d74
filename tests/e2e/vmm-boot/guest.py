# SPDX-License-Identifier: Apache-2.0
"""A VM that runs probe.c, and what its services are asked."""
import os
import shutil
import socket
import threading
import time

from vmmclient import Vmm

XOR = [bytes(x ^ high for x in range(256)) for high in range(256)]


def pattern(start, size):
    """What probe.c sends: byte i is a function of i alone."""
    first, last = start >> 8, (start + size + 255) >> 8
    blocks = b"".join(XOR[(block ^ block >> 8 ^ block >> 16) & 0xFF] for block in range(first, last))
    return blocks[start & 0xFF:(start & 0xFF) + size]


class Guest:
    """A VM that runs the probe, with two disks and vsock."""

    def __init__(self, env, name, end, vcpus=1, memory=256, cmdline="", quick=False, tap=None, mac=b"", balloon=False,
                 cid=3, patience=120, restore=None, upper=None, console=None,
                 forked=None, shell=None):
        """console: the path of one that is no file of its own. restore: (state, memory) of a snapshot; upper: the disk that goes with it;
        forked: descriptors of a fork in place of a snapshot; shell: called between prepare and start."""
        self.run = os.path.join(env.directory, name)
        os.makedirs(self.run)
        self.console = console or os.path.join(self.run, "console")
        self.base, self.upper = os.path.join(self.run, "base"), os.path.join(self.run, "upper")
        with open(self.base, "wb") as f:
            f.write(b"croft test disk\n".ljust(1 << 20, b"x"))
        if upper:
            shutil.copyfile(upper, self.upper)
        else:
            with open(self.upper, "wb") as f:
                f.truncate(8 << 20)
        self.vmm = Vmm(env.vmm, self.run)
        # what the guest connects to: CID 2, port 1
        self.hello = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.hello.bind(os.path.join(self.run, "vsock.sock_1"))
        os.chmod(os.path.join(self.run, "vsock.sock_1"), 0o777)  # the VMM may have a uid of its own
        self.hello.listen(4)
        self.heard = None
        threading.Thread(target=self.answer_hello, daemon=True).start()
        began = time.monotonic()
        disks = [(self.base, True, "base"), (self.upper, False, "upper")]
        if restore or forked:
            initramfs, cmdline = None, ""
        else:
            initramfs, cmdline = env.initramfs, "probe.end=%s%s %s" % (end, " probe.quick" if quick else "", cmdline)
        if shell:
            failed = self.vmm.start(None, None, disks, vcpus, memory, cid=cid, console=self.console, tap=tap, mac=mac,
                                    balloon=balloon, prepare=True)
            assert failed is None and self.vmm.state() == "prepared", failed
            shell(self)
            failed = self.vmm.start(None, None, disks, vcpus, memory, restore=restore, forked=forked, prepared=True)
        else:
            failed = self.vmm.start(env.kernel, initramfs, disks, vcpus, memory, cmdline, cid=cid, console=self.console,
                                    tap=tap, mac=mac, balloon=balloon, restore=restore, forked=forked)
        assert failed is None, failed
        assert self.vmm.wait_event("userspace", patience), "no user space\n" + self.text()
        self.boot_seconds = time.monotonic() - began

    def answer_hello(self):
        s, _ = self.hello.accept()
        self.heard = s.recv(64)
        s.sendall(b"hello guest\n")
        s.close()

    def text(self):
        with open(self.console, errors="replace") as f:
            return f.read()

    def probes(self):
        """{name: line} of what the probe said."""
        whole = self.text().rpartition("\n")[0]  # the last line may not be all there yet
        return {line.split()[1]: line for line in whole.splitlines() if line.startswith("probe: ")}

    def wait_probe(self, name, seconds=120):
        until = time.monotonic() + seconds
        while name not in self.probes():
            assert time.monotonic() < until, "no '%s'\n%s" % (name, self.text())
            time.sleep(0.1)

    def check_probes(self, *expected):
        said = self.probes()
        bad = [line for line in said.values() if " ok" not in line]
        missing = [name for name in expected if name not in said]
        assert not bad and not missing, "bad %s, missing %s\n%s" % (bad, missing, self.text())


ALL_PROBES = ("marker modules cpus memory devices rng blk-read blk-readonly blk-write blk-sector blk-serial "
              "vsock-out vsock-refused").split()


def read_exactly(s, size):
    out = b""
    while len(out) < size:
        more = s.recv(min(1 << 16, size - len(out)))
        if not more:
            break
        out += more
    return out


def source(guest, size, pause=0.0):
    """Bytes that differ from what the guest was asked to send, and how many came."""
    s = guest.vmm.vsock(8)
    s.sendall(b"%d\n" % size)
    at = wrong = 0
    while True:
        data = s.recv(1 << 16)
        if not data:
            break
        wrong += data != pattern(at, len(data))
        at += len(data)
        time.sleep(pause)
    s.close()
    return wrong, at


def ask(guest, port, line):
    """All that the guest's service at the port answers."""
    s = guest.vmm.vsock(port, timeout=120)
    s.sendall(line)
    data = b""
    while True:
        more = s.recv(65536)
        if not more:
            return data.decode()
        data += more


def rss_mib(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) // 1024
