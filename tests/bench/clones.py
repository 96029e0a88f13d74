#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""For tests/bench/clones, in a host with /dev/kvm: counts of what a clone of a running VM costs. Times of an
emulated host say nothing, so that G6 and G10, which have some in them, are not met here whatever the counts are (docs/performance.md)."""
import argparse
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
checkout = os.path.dirname(os.path.dirname(here))
sys.path.insert(0, os.path.join(checkout, "tests/e2e/vmm-boot"))

from forks import Fork, held  # noqa: E402
from guest import Guest, ask  # noqa: E402
from pauses import end_of  # noqa: E402

TRACE = "/sys/kernel/tracing"
KVM_RUN = 0xAE80


def say(number, measured, target, is_met, bound):
    print(json.dumps({"id": number, "measured": measured, "target": target, "result": "met" if is_met else "missed",
                      "bound": bound}), flush=True)
    return is_met


class Env:
    def __init__(self, args, directory):
        self.vmm, self.directory = args.vmm, directory
        self.kernel, self.initramfs = os.path.join(directory, "vmlinux"), os.path.join(directory, "initramfs")
        subprocess.run(["cp", args.kernel, self.kernel], check=True)
        source = os.path.join(checkout, "tests/e2e/vmm-boot")
        probe = os.path.join(directory, "probe")
        subprocess.run(["gcc", "-D_GNU_SOURCE", "-O2", "-static", "-o", probe, os.path.join(source, "probe.c")], check=True)
        subprocess.run([sys.executable, os.path.join(source, "initramfs.py"), args.kernel_dir, probe, self.initramfs], check=True)

    def note(self, text):
        print("# " + text, file=sys.stderr, flush=True)


class Trace:
    """What a process does from now on, as the kernel's tracer sees it: (seconds, event, text)."""

    def __init__(self, pid, events):
        self.events = events
        self.write("tracing_on", "0")
        self.write("trace_clock", "mono")
        self.write("trace", "")
        self.write("options/event-fork", "1")
        self.write("set_event_pid", " ".join(os.listdir("/proc/%d/task" % pid)))  # of each thread that there is
        for event in events:
            self.write("events/syscalls/%s/enable" % event, "1")
        self.write("tracing_on", "1")

    @staticmethod
    def write(name, text):
        with open(os.path.join(TRACE, name), "w") as f:
            f.write(text)

    def end(self):
        self.write("tracing_on", "0")
        for event in self.events:
            self.write("events/syscalls/%s/enable" % event, "0")
        with open(TRACE + "/trace") as f:
            found = re.findall(r"^.{16,}? ([0-9.]+): (sys_\w+)(.*)$", f.read(), re.M)
        self.write("set_event_pid", "")
        return [(float(at), name, text) for at, name, text in found]


def ioctls(trace):
    numbers = [re.search(r"cmd: (?:0x)?(\w+)", text) for _, name, text in trace if name == "sys_ioctl"]
    return collections.Counter(int(m.group(1), 16) for m in numbers if m)


def private_kib(pid):
    """Private_Dirty of a process, what of it is guest memory, and pages of its own by mapping. The first two have also pages of
    the frozen file that no other process has mapped at the moment."""
    whole = guest = 0
    name, own = "", collections.Counter()
    with open("/proc/%d/smaps" % pid) as f:
        for line in f:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                words = line.split(None, 5)
                name = words[5].strip() if len(words) > 5 else "none"
            elif line.startswith("Private_Dirty:"):
                whole += int(line.split()[1])
                guest += int(line.split()[1]) if "memfd:croft" in name else 0
            elif line.startswith("Anonymous:"):
                own[name] += int(line.split()[1])
    return whole, guest, own


def template(env, memory=256, vcpus=1):
    vm = Guest(env, "template-%d-%d" % (memory, vcpus), "serve", vcpus=vcpus, memory=memory, patience=600)
    vm.wait_probe("serve", 600)
    ask(vm, 16, b"\n")
    assert held(vm, 2000) == 0
    return vm


def written(pid):
    with open("/proc/%d/io" % pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("wchar:"))


def clone(env, name, fork, vcpus):
    """A child of a fork from a shell; what it did from then on; the bytes that it wrote."""
    begun = []

    def begin(guest):
        begun.extend((written(guest.vmm.pid), Trace(guest.vmm.pid, ("sys_enter_ioctl",))))

    child = Guest(env, name, "", vcpus=vcpus, forked=fork.fds, upper=fork.upper, shell=begin, patience=600)
    time.sleep(0.5)  # its first vCPU has run by then
    trace = begun[1].end()
    return child, trace, written(child.vmm.pid) - begun[0]


def g6(env):
    ok, seen = True, []
    for vcpus in (1, 2):
        vm = template(env, vcpus=vcpus)
        before = written(vm.vmm.pid)
        fork = Fork(env, vm)
        parent_wrote, state = written(vm.vmm.pid) - before, os.fstat(fork.fds[0]).st_size
        child, trace, child_wrote = clone(env, "g6-%d" % vcpus, fork, vcpus)
        counts = ioctls(trace)
        assert counts.pop(KVM_RUN, 0) > 0, "the tracer saw nothing"
        n = sum(counts.values())
        env.note("%d vCPU, %d ioctls: %s; the parent wrote %d bytes, %d of them its state; the child %d" % (
            vcpus, n, ", ".join("%x*%d" % x for x in sorted(counts.items())), parent_wrote, state, child_wrote))
        ok = ok and n <= 16 * vcpus + 6 and fork.copied == 0 and parent_wrote < state + 4096 and child_wrote < 4096
        seen.append("%d vCPU: %d ioctls, %d guest bytes copied" % (vcpus, n, fork.copied * 4096))
        assert held(child) == 0
        end_of(child)
        end_of(vm)
        fork.close()
    say_ok = "ok" if ok else "over"
    return say("G6", "%s; counts %s; virtual time not measured" % ("; ".join(seen), say_ok),
               "<= 16 ioctls per vCPU + 6 per VM, 0 guest bytes copied, <= 200 virtual us", False,
               "nothing counts instructions here, so that the third part is not known; an ioctl for each part of a vCPU's state")


def resident_mib(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssShmem:")) // 1024


def g10(env):
    """(resident MiB, seconds of freezing, bytes written that are not state) of VMs of two sizes and two fillings"""
    rows = {}
    for name, memory, touched in (("small", 128, 0), ("large", 1024, 0), ("full", 1024, 512)):
        vm = Guest(env, "g10-" + name, "serve", memory=memory, patience=600)
        vm.wait_probe("serve", 600)
        ask(vm, 16, b"\n")
        if touched:
            assert ask(vm, 11, b"%d\n" % touched) == "%d\n" % touched
        resident, before = resident_mib(vm.vmm.pid), written(vm.vmm.pid)
        assert vm.vmm.pause() is None
        began = time.monotonic()
        failed, fds = vm.vmm.fork()
        took = time.monotonic() - began
        assert failed is None and vm.vmm.resume() is None
        extra = written(vm.vmm.pid) - before - os.fstat(fds[0]).st_size
        rows[name] = (resident, took * 1e3, extra, vm.vmm.copied_pages)
        env.note("%s: %d MiB, %d resident: %.2f ms, %d bytes beside the state" % (name, memory, resident, took * 1e3, extra))
        ask(vm, 16, b"\n")
        end_of(vm)
        for fd in fds:
            os.close(fd)
    per_mib = (rows["full"][1] - rows["large"][1]) / max(1, rows["full"][0] - rows["large"][0])
    equal = rows["large"][1] - per_mib * (rows["large"][0] - rows["small"][0])  # at the small one's resident memory
    ratio = equal / rows["small"][1]
    base = rows["small"][1] - per_mib * rows["small"][0]
    assert all(row[2] < 4096 and row[3] == 0 for row in rows.values()), "more than state was written"
    return say("G10", "pause %.2f ms + %.4f ms per resident 2 MiB%s; 1 GiB over 128 MiB %.2fx at equal resident memory; "
               "%d guest bytes copied" % (base, per_mib * 2, " (a shared machine's clock)", ratio,
                                          sum(row[3] for row in rows.values()) * 4096),
               "state only; <= 1.2x", False,
               "the seal looks at each page of the file; mapped pages are unmapped. Diff file: unit/vmm-fork, <= 1.05x")


def first_output(guest):
    """Waits for it, and lets nothing happen any more."""
    until = time.monotonic() + 300
    while os.stat(guest.console).st_size == 0:
        assert time.monotonic() < until, "no output"
        time.sleep(0.001)
    os.kill(guest.vmm.pid, signal.SIGSTOP)


def g8(env):
    vm = template(env)
    assert ask(vm, 20, b"1\n") == "0\n"
    time.sleep(1)
    fork = Fork(env, vm)
    children, sizes = [], []
    for i in range(4):
        child = Guest(env, "g8-%d" % i, "", forked=fork.fds, upper=fork.upper, shell=lambda guest: None, patience=600)
        first_output(child)
        whole, guest, own = private_kib(child.vmm.pid)
        children.append(child)
        sizes.append((whole, guest, sum(own.values())))
        env.note("clone %d: Private_Dirty %d kB, of it guest memory %d kB; pages of its own: %s" % (
            i, whole, guest, ", ".join("%s %d" % x for x in own.most_common(9))))
    for child in children:
        os.kill(child.vmm.pid, signal.SIGCONT)
        child.vmm.stop()
    vm.vmm.stop()
    # the first reads pages of the frozen file that no other has mapped yet, which is no memory of its own
    worst = max(sizes[1:])
    return say("G8", "Private_Dirty %d kB beside other clones, of it guest memory %d kB (all pages of its own: %d kB)" % worst,
               "<= 350 kB", worst[0] <= 350, "pages that the guest writes until its first output, and the VMM's own")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vmm", required=True)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--kernel-dir", required=True)
    parser.add_argument("ids", nargs="+")
    args = parser.parse_args()
    ok = True
    if not os.path.exists(TRACE + "/events"):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACE], check=True)
    with tempfile.TemporaryDirectory(prefix="clones-") as directory:
        env = Env(args, directory)
        for number in args.ids:
            ok = {"G6": g6, "G8": g8, "G10": g10}[number](env) and ok
    return 0 if ok else 1


sys.exit(main())
