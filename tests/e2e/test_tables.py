# SPDX-License-Identifier: Apache-2.0
"""Tables that the host's kernel shares among all sandboxes, filled for real: what their agent says of it and how soon, that the
sandbox beside it goes on, and gives back all that it had when it is ended. The limits are the whole host's, so this host is one of
its own (tests/kvm-host). The VMM is the stub."""
import os
import pathlib
import socket
import subprocess
import time
import unittest

import stack as st
from stack import PATIENCE, Stack, wait_for

TOLD_S, FREED_S = 1, 5  # what the product promises; a test waits three times as long
SYSCTL = pathlib.Path("/proc/sys/net")


def run(*command, check=True):
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=60)


def counter(file, column):
    """The sum over all CPUs, as the kernel counts it."""
    names, *rows = (line.split() for line in pathlib.Path("/proc/net/stat", file).read_text().splitlines())
    return sum(int(row[names.index(column)], 16) for row in rows)


class Tables(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("the kernel's limits are root's")
        self.stack = Stack().__enter__()
        self.addCleanup(self.stack.__exit__, None, None, None)
        image, kvm = self.stack.dir / "well.img", self.stack.dir / "kvm"
        image.write_bytes(b"hsqsstub:well\n".ljust(4096, b"\0"))
        kvm.write_text("kvm")
        self.stack.template("well", image)
        self.node = self.stack.node(options={"vmm-path": st.BIN / "stub-vmm", "vmm-kvm": kvm, "vmm-probe": "no",
                                             "guest-kernel": kvm, "guest-initramfs": ""})
        self.sandbox = self.stack.cli_json("sandbox", "create", "--template", "well")["sandboxID"]
        self.node_id = self.stack.cli_json("node", "list")[0]["id"]

    def set(self, name, value):
        path = SYSCTL / name
        self.addCleanup(path.write_text, path.read_text())
        path.write_text(str(value))

    def told(self, resource):
        lines = self.node.agent.log.read_text(errors="replace").splitlines()
        return [line for line in lines if " host-limit " in line and "code=HOST_LIMIT" in line and resource in line]

    def fill(self, resource, file, column, more):
        """more() until the kernel drops; then the agent's word on it, and what the fleet and the neighbour see."""
        before = counter(file, column)
        self.assertEqual(self.told(resource), [])
        for _ in range(200):
            more()
            if counter(file, column) > before:
                break
        began = time.monotonic()
        self.assertGreater(counter(file, column), before, "the table never was full")
        wait_for(f"{resource} in the agent's log", 3 * TOLD_S, lambda: self.told(resource), every=0.05)
        self.took = time.monotonic() - began
        line, = self.told(resource)
        self.assertIn("component=node-host", line)
        node = wait_for("the node is kept out", 30 * PATIENCE, lambda: next(
            (n for n in self.stack.cli_json("node", "list") if (n["unschedulable"] or {}).get("code") == "HOST_LIMIT"), None))
        self.assertIn(resource, str(node["unschedulable"]))
        events = wait_for("it is in the telemetry", 10 * PATIENCE, lambda: [
            r for r in self.stack.api("GET", f"/v1/nodes/{self.node_id}/telemetry")["records"] if r["what"] == "host-limit"])
        self.assertIn("HOST_LIMIT", str(events))
        done = self.stack.cli("sandbox", "exec", self.sandbox, "--", "echo", "here")
        self.assertEqual((done.returncode, done.stdout), (0, b"here\n"), done.stderr)
        self.assertEqual(self.stack.cli_json("sandbox", "info", self.sandbox)["state"], "running")
        refused = self.stack.cli("sandbox", "create", "--template", "well", "-o", "json")
        self.assertIn(b"HOST_LIMIT", refused.stdout + refused.stderr)
        # the table is full still: what ends gives back all that it had
        self.stack.cli_ok("sandbox", "kill", self.sandbox)
        wait_for("all of it is given back", 3 * FREED_S, lambda: not self.stack.vmm_pids() and not list(self.node.state.rglob(f"*{self.sandbox}*")),
                 every=0.05)

    def test_connections(self):
        run("modprobe", "nf_conntrack")
        # tracked are these floods alone: what carries the test itself must get through
        rules = "table inet croft_test { chain out { type filter hook output priority -300; ip daddr 127.9.0.0/16 accept; notrack; };" \
                " chain look { type filter hook output priority 0; ct state new accept; }; }"
        run("nft", rules)
        self.addCleanup(run, "nft", "delete", "table", "inet", "croft_test", check=False)
        count = SYSCTL / "netfilter/nf_conntrack_count"
        self.set("netfilter/nf_conntrack_udp_timeout", 60)  # full still when the agent looks
        self.set("netfilter/nf_conntrack_max", int(count.read_text()) + 1000)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(sender.close)
        self.port = 1000

        def more():
            for _ in range(100):
                self.port += 1
                try:
                    sender.sendto(b"x", ("127.9.0.1", self.port))
                except OSError:
                    pass  # EPERM: it was dropped; ECONNREFUSED: of one before
        self.fill("connection-tracking", "nf_conntrack", "drop", more)

    def test_neighbours(self):
        run("ip", "link", "add", "crt0", "type", "veth", "peer", "name", "crt1")
        self.addCleanup(run, "ip", "link", "del", "crt0", check=False)
        run("ip", "addr", "add", "198.19.0.1/16", "dev", "crt0")
        for link in ("crt0", "crt1"):
            run("ip", "link", "set", link, "up")
        for level, value in (("1", 8), ("2", 16), ("3", 64)):
            self.set(f"ipv4/neigh/default/gc_thresh{level}", value)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(sender.close)
        self.host = 10

        def more():
            for _ in range(40):
                self.host += 1
                try:
                    sender.sendto(b"x", (f"198.19.{self.host // 250}.{self.host % 250 + 1}", 9))
                except OSError:
                    pass
        self.fill("neighbour", "arp_cache", "table_fulls", more)


if __name__ == "__main__":
    unittest.main()
