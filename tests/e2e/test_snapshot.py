# SPDX-License-Identifier: Apache-2.0
"""Snapshots and forks, from the command line to the VMM: a moment of a sandbox that goes on, sandboxes that begin as it and
share nothing that must be one's own, and an agent that is killed in the middle."""
import json
import threading
import time
import unittest

from stack import PATIENCE, Stack, wait_for
from test_first_light import USER, kvm_groups
from test_pause import COUNT

ROOM = 1500  # MiB: for a sandbox of 192 MiB, three that begin as it, and what forks froze
# what no two sandboxes may have in common, one line each
OWN = ("cat /proc/sys/kernel/random/boot_id; cat /proc/sys/kernel/random/uuid; hostname; cat /etc/machine-id 2>/dev/null || echo none-$$;"
       "od -An -N32 -tx1 -w32 /dev/urandom")
SAME = "sha256sum </dev/shm/ram; cat /root/kept"


class Snapshot(unittest.TestCase):
    def one_node(self):
        self.stack = self.enterContext(Stack(user=USER))
        self.stack.template()
        self.node = self.stack.node(groups=kvm_groups(), options={"limits-memory-mib": ROOM})
        return self.stack

    def sh(self, sandbox, script):
        return self.stack.cli_ok("sandbox", "exec", sandbox, "--", "sh", "-c", script)

    def count(self, sandbox):
        return int(self.sh(sandbox, "cat /dev/shm/count"))

    def at_work(self):
        one = self.stack.create("tiny", "--disk", "256M")
        self.sh(one, "mkdir -p /root; echo kept >/root/kept; dd if=/dev/urandom of=/dev/shm/ram bs=1M count=8 2>/dev/null; sync")
        self.sh(one, f"setsid sh -c '{COUNT}' </dev/null >/dev/null 2>&1 &")
        wait_for("it counts", 30 * PATIENCE, lambda: self.sh(one, "test -s /dev/shm/count && cat /dev/shm/count || true"))
        return one

    def goes_on(self, sandbox, least):
        first = self.count(sandbox)
        self.assertGreaterEqual(first, least)
        wait_for("it counts on", 20 * PATIENCE, lambda: self.count(sandbox) > first)

    def kept(self):
        folder = self.node.state / "snapshots"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def differ(self, sandboxes):
        """Line by line, pairwise."""
        lines = [self.sh(one, OWN).splitlines() for one in sandboxes]
        for column in zip(*lines):
            self.assertEqual(len(set(column)), len(sandboxes), column)
        self.assertEqual({len(each) for each in lines}, {5}, lines)

    def clock_is_right(self, sandbox):
        before = int(time.time())
        guest = int(self.sh(sandbox, "date +%s"))
        self.assertGreaterEqual(guest, before - 1)
        self.assertLessEqual(guest, time.time() + 1)

    def test_a_moment_and_two_that_begin_as_it(self):
        stack = self.one_node()
        one = self.at_work()
        same, vmm, least = self.sh(one, SAME), stack.vmm_pids(), self.count(one)
        snapshot = stack.cli_ok("sandbox", "snapshot", one, "--name", "kept").strip()
        self.assertEqual(stack.vmm_pids(), vmm)
        began = time.monotonic()  # R211
        self.assertEqual(self.sh(one, "echo here"), "here\n")
        self.assertLess(time.monotonic() - began, 3 * PATIENCE)
        self.goes_on(one, least)
        self.clock_is_right(one)
        self.assertEqual(self.kept(), [snapshot])
        listed = stack.cli_json("snapshot", "list")
        self.assertEqual([(s["snapshotID"], s["sandboxID"], s["state"]) for s in listed], [(snapshot, one, "ready")])

        two = stack.cli_ok("sandbox", "create", "--snapshot", snapshot, "--quiet").strip()
        self.node.agent.kill9()
        self.node.start_agent()
        self.node.wait_ready()
        three = stack.cli_ok("sandbox", "create", "--snapshot", "kept", "--quiet").strip()
        for clone in (two, three):
            self.assertEqual(self.sh(clone, SAME), same)
            self.goes_on(clone, least)
            self.clock_is_right(clone)
        self.differ([one, two, three])
        self.sh(two, "echo mine >/root/kept")
        self.assertEqual(self.sh(three, "cat /root/kept"), "kept\n")

        stack.cli_ok("sandbox", "kill", one)
        stack.cli_ok("snapshot", "delete", snapshot)
        wait_for("its files are gone", 30 * PATIENCE, lambda: self.kept() == [])
        self.goes_on(three, least)
        self.assertEqual(self.sh(three, "sync; cat /root/kept"), "kept\n")
        refused = stack.api("POST", "/sandboxes", {"templateID": snapshot, "timeout": 60}, check=False)
        self.assertEqual(refused["code"], 404, refused)
        for clone in (two, three):
            stack.cli_ok("sandbox", "kill", clone)
        stack.assert_clean(self.node)

    def test_forks(self):
        """Live: nobody writes the guest's memory to a file, and children outlive their parent."""
        stack = self.one_node()
        one = self.at_work()
        same, least = self.sh(one, SAME), self.count(one)
        files, stop = set(), threading.Event()

        def look():
            while not stop.is_set():
                files.update(path.name for path in (self.node.state / "snapshots").glob("*/*"))
                time.sleep(0.002)

        looks = threading.Thread(target=look)
        looks.start()
        forks = stack.cli_ok("sandbox", "fork", one, "-n", "3").split()
        stop.set()
        looks.join()
        self.assertEqual(files, {"disk"})
        self.assertEqual(len(set(forks)), 3)
        self.assertEqual(self.sh(one, "echo here"), "here\n")
        for fork in forks:
            self.assertEqual(self.sh(fork, SAME), same)
            self.goes_on(fork, least)
        self.differ([one, *forks])
        wait_for("the fork's own snapshot is dropped", 60 * PATIENCE, lambda: self.kept() == [])
        stack.cli_ok("sandbox", "kill", forks.pop())
        of_fork = stack.cli_ok("sandbox", "fork", forks[0]).strip()  # a fork of a fork
        self.assertEqual(self.sh(of_fork, SAME), same)
        stack.cli_ok("sandbox", "kill", one)
        for fork in (*forks, of_fork):
            self.goes_on(fork, least)
        self.node.agent.kill9()
        self.node.start_agent()
        self.node.wait_ready()
        for fork in (*forks, of_fork):
            self.goes_on(fork, least)
            stack.cli_ok("sandbox", "kill", fork)
        stack.assert_clean(self.node)

    def test_the_agent_is_killed_in_the_middle(self):
        stack = self.one_node()
        one = self.at_work()
        least = self.count(one)
        for _ in range(3):
            answers = []
            asks = threading.Thread(target=lambda: answers.append(stack.cli("sandbox", "snapshot", one, "-o", "json")))
            asks.start()
            wait_for("it is being written", 30 * PATIENCE, lambda: self.kept() or not asks.is_alive(), every=0.005)
            self.node.agent.kill9()
            self.node.start_agent()
            self.node.wait_ready()
            asks.join(200 * PATIENCE)
            self.assertFalse(asks.is_alive(), "nobody was answered")
            self.goes_on(one, least)
            answer = answers[0]
            if answer.returncode == 0:  # it was whole already
                whole = json.loads(answer.stdout)["snapshotID"]
                self.assertEqual(self.kept(), [whole])
                stack.cli_ok("snapshot", "delete", whole)
            wait_for("nothing of it is left", 60 * PATIENCE, lambda: self.kept() == [])
        self.clock_is_right(one)

    def test_a_command_during_a_snapshot_is_never_lost(self):
        """R212: it runs once, or it is said that it did not and may be sent again."""
        stack = self.one_node()
        one = self.at_work()
        stop = threading.Event()
        done = []

        def snapshots():
            while not stop.is_set():
                answer = stack.cli("sandbox", "snapshot", one)
                done.append(answer.returncode)
                if answer.returncode == 0:
                    stack.cli_ok("snapshot", "delete", answer.stdout.decode().strip())

        thread = threading.Thread(target=snapshots)
        thread.start()
        ran = 0
        try:
            for number in range(24):
                answer = stack.cli("sandbox", "exec", one, "--", "sh", "-c", f"echo {number} >>/root/ran")
                if answer.returncode == 0:
                    ran += 1
                else:
                    self.assertIn(b"SANDBOX_NOT_READY", answer.stderr)
        finally:
            stop.set()
            thread.join(400)
        self.assertGreaterEqual(done.count(0), 2)
        self.assertGreater(ran, 5)
        self.assertEqual(len(set(self.sh(one, "cat /root/ran").split())), ran)
        self.assertEqual(len(self.sh(one, "cat /root/ran").split()), ran)
