# SPDX-License-Identifier: Apache-2.0
"""What create and destroy leave behind, counted in the kernel in eight kinds: processes, TAPs, namespaces, rules, control
groups, mounts, sockets and loop devices, files. The VMM is the stub (tests/lib/stub-vmm.c), so that rounds are many; the
agent, the helper with its network and control groups, the gateway and the scheduler are the real ones.

CROFT_ROUNDS is the number of rounds (50); a tenth of them fail, each at another point of the start."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

import stack as st
from stack import PATIENCE, Helper, Stack, wait_for
from test_first_light import USER, kvm_groups

ROUNDS = int(os.environ.get("CROFT_ROUNDS", "50"))
WORKERS = 4
# What a stub does (its image says so), and the code of the start that fails by it.
FAULTS = {"panic": "GUEST_PANIC", "refuse": "KERNEL_INVALID", "crash": "VMM_CRASHED|VMM_KILLED",
          "rootfs-unreadable": "ROOTFS_UNREADABLE", "well": "SETUP_FAILED"}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


class Leaks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("croft-node-helper needs root")
        cls.stack = Stack(user=USER).__enter__()
        try:
            directory = cls.stack.dir
            cls.helper = Helper(cls.stack, USER, "stub-vmm", "198.18.44.0/24", 2, 71000, 64)
            cls.run_dir, cls.groups = cls.helper.run_dir, cls.helper.groups
            cls.helper.listen()
            for mode in FAULTS:
                image = directory / f"{mode}.img"
                image.write_bytes(f"hsqsstub:{mode}\n".encode().ljust(4096, b"\0"))
                cls.stack.template(mode, image)
            cls.node = cls.stack.node(groups=kvm_groups(), options={
                "helper-socket": cls.helper.socket, "vmm-path": st.BIN / "stub-vmm", "guest-stop-grace-ms": 500})
            # what stays for good is made by the first: spares, templates of disks, the gateway's routes
            cls.destroy(cls.create("well"))
            cls.before = wait_for("rest", 30 * PATIENCE, cls.resting)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        failed = sys.exc_info()[0]
        if failed and hasattr(cls, "helper"):
            print(cls.helper.tail(), flush=True)
        cls.stack.__exit__(failed, None, None)
        if hasattr(cls, "helper"):
            cls.helper.clear()

    @classmethod
    def create(cls, mode, *more):
        done = cls.stack.cli("sandbox", "create", "--template", mode, "--memory", "192M", "--disk", "64M",
                             "--timeout", "2h", *more, "-o", "json")
        if done.returncode == 0:
            return json.loads(done.stdout)["sandboxID"]
        return done.stdout + done.stderr

    @classmethod
    def destroy(cls, sandbox):
        cls.stack.cli_ok("sandbox", "kill", sandbox)

    @classmethod
    def census(cls):
        """Eight kinds, each a sorted list: what is too much has a name."""
        spaces = set()
        for entry in pathlib.Path("/proc").glob("[0-9]*/ns/*"):
            try:
                if entry.name in ("net", "mnt", "ipc", "uts", "cgroup", "user", "pid"):
                    spaces.add(os.readlink(entry))
            except OSError:
                pass
        mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
        return {
            "processes": cls.stack.vmm_pids(),
            "taps": len(output("ip", "-o", "link").splitlines()),
            "namespaces": (len(list((cls.run_dir / "netns").iterdir())), len(spaces)),
            "rules": len(re.sub(r"counter packets \d+ bytes \d+", "", output("nft", "list", "ruleset")).splitlines()),
            "groups": sorted(p.name for p in cls.groups.iterdir() if p.is_dir()),
            "mounts": len(mounts),
            "sockets": sorted(line.split()[-1] for line in open("/proc/net/unix") if f"{cls.node.run}/" in line
                              and len(pathlib.Path(line.split()[-1]).parent.name) == 8) + output("losetup", "-a").splitlines(),
            "files": sorted(str(p) for pattern in ("????????", "????????/*") for p in cls.node.run.glob(pattern) if len(p.name) == 8 or p.parent != cls.node.run)
            + sorted(str(p) for p in cls.node.state.glob("sandboxes/*")) + sorted(str(p) for p in (cls.run_dir / "slots").iterdir()),
        }

    @classmethod
    def resting(cls):
        """The same twice, and no sandbox in it."""
        first = cls.census()
        time.sleep(1)
        return first if first == cls.census() and not any(first[k] for k in ("processes", "groups", "sockets", "files")) else None

    def assert_as_before(self):
        def look():
            self.last = self.census()
            return self.last == self.before
        try:
            wait_for("as before", 20 * PATIENCE, look, every=0.5)
        except AssertionError:
            self.fail("left behind: " + str({k: (self.before[k], self.last[k]) for k in self.before if self.last[k] != self.before[k]}))

    def test_rounds_leave_nothing(self):
        numbers, lock, wrong = iter(range(ROUNDS)), threading.Lock(), []
        modes, seen = list(FAULTS), set()

        def work():
            while True:
                with lock:
                    n = next(numbers, None)
                if n is None:
                    return
                mode = modes[n // 10 % len(modes)] if n % 10 == 9 else None
                more = ("--setup", "exit 3") if mode == "well" else ()
                got = self.create(mode or "well", *more)
                if mode is None and isinstance(got, str):
                    self.destroy(got)
                elif mode is None or isinstance(got, str) or (mode not in seen and not re.search(FAULTS[mode].encode(), got)):
                    wrong.append((n, mode, got))
                seen.add(mode)  # later ones may be refused before they start: the scheduler learns

        threads = [threading.Thread(target=work) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong[:3], [])
        self.assert_as_before()

    def kill_at(self, text, act):
        """SIGKILL to the agent at the moment that it logs `text`; then another one is started."""
        size = self.node.agent.log.stat().st_size
        end = time.monotonic() + 60 * PATIENCE
        done = threading.Thread(target=act)
        done.start()
        with open(self.node.agent.log, "rb") as log:
            log.seek(size)
            seen = b""
            while text not in seen and time.monotonic() < end:
                seen += log.read()
        self.node.agent.popen.send_signal(signal.SIGKILL)
        self.node.agent.popen.wait(30)
        self.assertIn(text, seen)
        self.node.start_agent()
        done.join()

    def test_kill9_at_every_stage(self):
        """What was promised is there once, and what was destroyed is gone."""
        points = [b"stage=" + stage for stage in (b"accept", b"image", b"disk", b"network", b"jail", b"vmm", b"kernel", b"guest", b"ready")]
        for point in points:
            got = []
            self.kill_at(point, lambda: got.append(self.create("well")))
            if isinstance(got[0], str):  # taken up again, or started anew
                self.assertEqual(len(self.stack.vmm_pids()), 1, point)
                wait_for("it answers", 30 * PATIENCE,
                         lambda: self.stack.cli("sandbox", "exec", got[0], "--", "true").returncode == 0)
                self.destroy(got[0])
            else:
                self.assertIn(b"AGENT_RESTARTED", got[0], point)
            self.assert_as_before()
        for point in (b"the VMM ended", b"stage=stop"):
            sandbox = self.create("well")
            self.assertIsInstance(sandbox, str, sandbox)
            self.kill_at(point, lambda: self.destroy(sandbox))
            self.assert_as_before()
