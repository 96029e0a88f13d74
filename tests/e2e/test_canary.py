# SPDX-License-Identifier: Apache-2.0
"""A node's own test VM, with the real VMM, and what its doctor finds: both decide whether anything is placed there."""
import shutil
import unittest

import stack as st
from stack import PATIENCE, Stack, mostly_waits, wait_for
from test_first_light import USER, kvm_groups

BOOT = 60 * PATIENCE  # of a VM in the emulated host, with what a node needs to notice


class Canary(unittest.TestCase):
    def begin(self, user=USER):
        self.stack = Stack(user=user).__enter__()
        self.addCleanup(self.stack.__exit__, None, None, None)
        self.stack.template()

    def node_info(self):
        return self.stack.cli_json("node", "info", self.stack.cli_json("node", "list")[0]["id"])

    def node_text(self):
        done = self.stack.cli("node", "info", self.node_info()["id"])
        return (done.stdout + done.stderr).decode()

    def why(self):
        """The code that keeps the node out; None: nothing does."""
        return (self.node_info().get("unschedulable") or {}).get("code")

    @mostly_waits
    def test_no_sandbox_where_none_boots(self):
        self.begin()
        kernel = self.stack.dir / "vmlinux"
        shutil.copy(st.CACHE / "guest-kernel/vmlinux", kernel)
        kernel.chmod(0o644)
        node = self.stack.node(groups=kvm_groups(), options={"guest-kernel": kernel, "guest-canary-period": "20s"})
        self.assertEqual(self.why(), "CANARY_PENDING")
        wait_for("the first canary", BOOT, lambda: self.stack.vmm_pids())
        wait_for("it is gone", 30 * PATIENCE, lambda: not self.stack.vmm_pids() and not (node.run / "ca4a7000").exists())

        wait_for("it may be placed on", 30 * PATIENCE, lambda: self.why() is None)
        good = kernel.read_bytes()
        kernel.write_bytes(good[:1000])  # as a package that broke half-way
        wait_for("it is noticed", 20 * PATIENCE + BOOT, lambda: self.why() == "CANARY_FAILED")
        text = self.node_text()
        self.assertIn("CANARY_FAILED", text)
        self.assertIn("KERNEL_", text)  # which mends
        self.assertIn("could not boot its own test VM", text)
        refused = self.stack.cli("sandbox", "create", "--template", "tiny", "-o", "json")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(b"CANARY_FAILED", refused.stdout + refused.stderr)

        kernel.write_bytes(good)
        wait_for("it recovers by itself", 20 * PATIENCE + BOOT, lambda: self.why() is None)
        sandbox = self.stack.create()
        self.assertEqual(self.stack.cli("sandbox", "exec", sandbox, "--", "true").returncode, 0)

        # an agent that is killed in the middle of one leaves nothing that the next does not clear away
        wait_for("another canary", 20 * PATIENCE + BOOT, lambda: len(self.stack.vmm_pids()) == 2)
        node.agent.kill9()
        node.start_agent()
        node.wait_ready()
        wait_for("one VM is left", 30 * PATIENCE, lambda: len(self.stack.vmm_pids()) == 1)
        self.assertEqual(self.stack.cli("sandbox", "exec", sandbox, "--", "true").returncode, 0)

    def test_an_error_of_the_doctor(self):
        """A host without control groups: what `croft-node doctor` calls an error keeps the node out, and the scheduler says it."""
        self.begin(user=None)  # who may mount
        node = self.stack.node()
        self.assertIsNone(self.why())
        node.agent.stop()
        argv = node.agent.args
        node.agent.args = ["unshare", "--mount", "sh", "-c", 'umount -R /sys/fs/cgroup; exec "$@"', "sh", *argv]
        node.start_agent()
        wait_for("it is told", 30 * PATIENCE, lambda: self.why() == "HOST_UNFIT")
        text = self.node_text()
        for part in ("HOST_UNFIT", "cgroup", "croft-node doctor"):
            self.assertIn(part, text)
        refused = self.stack.cli("sandbox", "create", "--template", "tiny", "-o", "json")
        self.assertIn(b"HOST_UNFIT", refused.stdout + refused.stderr)
        node.agent.stop()
        node.agent.args = argv
        node.start_agent()
        wait_for("it is fit again", 30 * PATIENCE, lambda: self.why() is None)


if __name__ == "__main__":
    unittest.main()
