# SPDX-License-Identifier: Apache-2.0
"""Pause and resume, from the API to the VMM: what a sandbox has in memory and on disk goes on where it was, its node's room
is free meanwhile, and an agent that is killed changes nothing of that."""
import contextlib
import subprocess
import time
import unittest

from stack import PATIENCE, Stack, mostly_waits, wait_for
from test_first_light import USER, kvm_groups

ROOM = 320  # MiB: for one sandbox of 192 MiB with its VMM, not for two
COUNT = "i=0; while :; do i=$((i+1)); echo $i >/dev/shm/new; mv /dev/shm/new /dev/shm/count; echo $i >/root/count; sleep 0.1; done"


class Pause(unittest.TestCase):
    @contextlib.contextmanager
    def one_node(self):
        with Stack(user=USER) as self.stack:
            self.stack.template()
            self.node = self.stack.node(groups=kvm_groups(), options={"limits-memory-mib": ROOM})
            yield self.stack

    def sh(self, sandbox, script):
        return self.stack.cli_ok("sandbox", "exec", sandbox, "--", "sh", "-c", script)

    def state(self, sandbox):
        return self.stack.api("GET", f"/v1/sandboxes/{sandbox}")["state"]

    def reserved(self):
        return self.stack.api("GET", "/v1/nodes")[0]["capacity"]["memory_reserved_mib"]

    def count(self, sandbox):
        return int(self.sh(sandbox, "cat /dev/shm/count"))

    def start_counting(self, sandbox):
        self.sh(sandbox, f"mkdir -p /root; setsid sh -c '{COUNT}' </dev/null >/dev/null 2>&1 &")
        wait_for("it counts", 30 * PATIENCE, lambda: self.sh(sandbox, "test -s /dev/shm/count && cat /dev/shm/count || true"))

    def uptime(self, sandbox):
        return float(self.sh(sandbox, "cut -d' ' -f1 /proc/uptime"))

    def check_clock(self, sandbox):
        source = self.sh(sandbox, "cat /sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
        self.assertIn(source, ("kvm-clock", "tsc"))  # R206
        before = time.time()
        guest = float(self.sh(sandbox, "date +%s"))
        self.assertGreaterEqual(guest, int(before) - 1)
        self.assertLessEqual(guest, time.time() + 1)

    def check_goes_on(self, sandbox, before, slept_s):
        """`before`: count, uptime and the host's monotonic time, taken at one moment before it slept."""
        first = self.count(sandbox)
        most = (time.monotonic() - before[2] - slept_s) / 0.1
        self.assertGreaterEqual(first, before[0])
        self.assertLessEqual(first, before[0] + most + 10)
        self.assertGreaterEqual(self.uptime(sandbox), before[1])
        self.assertLess(self.uptime(sandbox), before[1] + time.monotonic() - before[2] - slept_s + 2)
        wait_for("it counts on", 20 * PATIENCE, lambda: self.count(sandbox) > first)
        self.assertGreaterEqual(int(self.sh(sandbox, "cat /root/count")), first)

    def now(self, sandbox):
        return self.count(sandbox), self.uptime(sandbox), time.monotonic()

    def test_sleeps_and_wakes(self):
        with self.one_node() as stack:
            one = stack.create()
            self.start_counting(one)
            self.sh(one, "echo kept >/root/kept; dd if=/dev/urandom of=/dev/shm/ram bs=1M count=8 2>/dev/null")
            facts = self.sh(one, "cat /proc/sys/kernel/random/boot_id; sha256sum </dev/shm/ram")
            before = self.now(one)

            stack.cli_ok("sandbox", "pause", one)
            asleep = time.monotonic()
            self.assertEqual(self.state(one), "paused")
            self.assertEqual(stack.vmm_pids(), [])
            self.assertEqual(self.reserved(), 0)
            self.assertEqual([s["sandboxID"] for s in stack.api("GET", "/v2/sandboxes?state=paused")], [one])
            self.assertEqual(stack.api("GET", f"/sandboxes/{one}")["state"], "paused")
            self.assertNotEqual(stack.cli("sandbox", "exec", one, "--", "true").returncode, 0)
            self.assertEqual(stack.api("POST", f"/sandboxes/{one}/pause", {}, check=False)["code"], 409)
            self.assertEqual(stack.api("POST", f"/sandboxes/{one}/pause", {"memory": False}, check=False)["code"], 501)

            two = stack.create()  # its room is another's
            refused = stack.api("POST", f"/v2/sandboxes/{one}/connect", {}, check=False)
            self.assertEqual((refused["code"], refused["failure"]["code"]), (503, "NO_CAPACITY"), refused)
            self.assertEqual(self.state(one), "paused")
            stack.cli_ok("sandbox", "kill", two)
            wait_for("its room is free", 60 * PATIENCE, lambda: self.reserved() == 0)

            self.node.agent.kill9()
            self.node.start_agent()
            self.node.wait_ready()
            stack.cli_ok("sandbox", "resume", one)
            slept = time.monotonic() - asleep
            self.assertEqual(self.state(one), "running")
            self.assertEqual(len(stack.vmm_pids()), 1)
            self.assertGreater(self.reserved(), 192)
            self.check_goes_on(one, before, slept)
            self.check_clock(one)
            self.assertEqual(self.sh(one, "cat /proc/sys/kernel/random/boot_id; sha256sum </dev/shm/ram"), facts)
            self.assertEqual(self.sh(one, "cat /root/kept"), "kept\n")
            self.assertEqual(stack.api("POST", f"/sandboxes/{one}/resume", {}, check=False)["code"], 409)

            self.two_of_one_snapshot(one)
            stack.cli_ok("sandbox", "pause", one)
            stack.cli_ok("sandbox", "kill", one)  # in its sleep
            stack.assert_clean(self.node)
            self.assertEqual(stack.api("POST", f"/sandboxes/{one}/pause", {}, check=False)["code"], 404)

    def two_of_one_snapshot(self, sandbox):
        """One moment, woken twice: the kernel's random generator gives other bytes each time."""
        place, kept = self.node.state / "sandboxes" / sandbox, self.stack.dir / "kept"
        kept.mkdir()
        drawn = []
        for again in (False, True):
            self.stack.cli_ok("sandbox", "pause", sandbox)
            for name in ("snapshot-state", "snapshot-memory", "disk"):
                paths = [kept / name, place / name] if again else [place / name, kept / name]
                subprocess.run(["cp", "--sparse=always", *paths], check=True)
            self.stack.cli_ok("sandbox", "resume", sandbox)
            drawn.append(self.sh(sandbox, "od -An -N32 -tx1 /dev/urandom"))
            self.assertFalse(list(place.glob("snapshot-*")), "a snapshot that nobody needs")
        self.assertNotEqual(*drawn)

    @mostly_waits
    def test_life_ends_in_sleep(self):
        with self.one_node() as stack:
            one = stack.create("tiny", "--auto-pause", "--auto-resume", "--timeout", "60s")
            self.assertEqual(stack.api("GET", f"/sandboxes/{one}")["lifecycle"], {"onTimeout": "pause", "autoResume": True})
            self.start_counting(one)
            before = self.now(one)
            wait_for("it is paused", 120 * PATIENCE, lambda: self.state(one) == "paused")
            asleep = time.monotonic()
            self.assertEqual(stack.vmm_pids(), [])
            stack.api("POST", f"/v2/sandboxes/{one}/connect", {"timeout": 3600})
            self.assertEqual(self.state(one), "running")
            self.assertGreaterEqual(self.count(one), before[0])
            self.check_clock(one)
            self.assertLess(self.uptime(one), before[1] + time.monotonic() - before[2] - (time.monotonic() - asleep) + 60)
            before = self.now(one)
            stack.cli_ok("sandbox", "pause", one)
            self.assertEqual(stack.vmm_pids(), [])
            self.assertGreaterEqual(self.count(one), before[0])  # a call wakes it
            self.assertEqual(self.state(one), "running")
            self.assertEqual(len(stack.vmm_pids()), 1)
