# SPDX-License-Identifier: Apache-2.0
"""A pool that starts anew elsewhere what ran on a lost node: the old VM has ended itself before, with its agent alive
behind a cut and with its agent killed. In a pool without that nothing is disturbed. What lives is counted in the kernel."""
import pathlib
import re
import selectors
import socket
import threading
import time
import unittest

from stack import PATIENCE, Stack, mostly_waits, wait_for
from test_first_light import USER, kvm_groups

SELF_STOP, LOST = 15, 30  # seconds


class Relay:
    """A TCP relay on loopback that can be cut: what is under way goes no further, and nothing new comes through."""

    def __init__(self, port):
        self.target, self.is_cut = port, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        threading.Thread(target=self.run, daemon=True).start()

    def accept(self):
        client, _ = self.listener.accept()
        server = socket.create_connection(("127.0.0.1", self.target))
        for one, other in ((client, server), (server, client)):
            self.selector.register(one, selectors.EVENT_READ, other)

    def run(self):
        while True:
            if self.is_cut:  # bytes wait in the kernel: a cut, not a close
                time.sleep(0.1)
                continue
            for key, _ in self.selector.select(0.2):
                if self.is_cut:
                    break
                if key.fileobj is self.listener:
                    self.accept()
                    continue
                try:
                    data = key.fileobj.recv(1 << 16)
                    if data:
                        key.data.sendall(data)
                        continue
                except OSError:
                    pass
                for end in (key.fileobj, key.data):
                    try:
                        self.selector.unregister(end)
                    except (KeyError, ValueError):
                        pass
                    end.close()


class Census(threading.Thread):
    """How many VMMs of two nodes were alive at once, at most."""

    def __init__(self, nodes):
        super().__init__(daemon=True)
        self.nodes, self.most, self.end = nodes, 0, False

    def run(self):
        while not self.end:
            alive = [pid for node in self.nodes for pid in vmms_of(node)]
            self.most = max(self.most, len(alive))
            time.sleep(0.25)


def vmms_of(node):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            args = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if args[0].endswith(b"croft-vmm") and any(a.startswith(str(node.run).encode() + b"/") for a in args):
            found.append(int(entry.name))
    return found


class Lease(unittest.TestCase):
    def make_node(self, stack, name, pool, relay=None):
        node = stack.node(name, start=False, join=False, user=USER, groups=kvm_groups())
        token = stack.cli_ok("token", "create", "--pool", pool, "--ttl", "1h")
        if relay:
            token = re.sub(rf"(scheduler = .*:){stack.link_port}\b", rf"\g<1>{relay.port}", token)
        node.join(token)
        return node.start(ready=False)

    def lost(self, sandbox, old, new):
        """`old` is not heard of any more: its VM ends by itself, and only then one starts on `new`."""
        wait_for("the VM ends itself", SELF_STOP + 10 * PATIENCE, lambda: not vmms_of(old))
        ended = time.monotonic()
        self.assertEqual(vmms_of(new), [], "the other one started before")
        wait_for("it starts on the other node", LOST + 30 * PATIENCE, lambda: vmms_of(new))
        self.assertGreater(time.monotonic() - ended, 3)
        wait_for("it runs there", 60 * PATIENCE,
                 lambda: self.stack.cli("sandbox", "exec", sandbox, "--", "true").returncode == 0)
        self.assertEqual(vmms_of(old), [])

    @mostly_waits
    def test_self_stop_and_replacement(self):
        with Stack(user=USER, scheduler_options={"fleet-grace": "1s"}) as self.stack:
            stack = self.stack
            stack.template()
            stack.cli_ok("pool", "create", "--replace", "on-loss", "--self-stop-after", f"{SELF_STOP}s", "--lost-after",
                         f"{LOST}s", "lossy")
            relay = Relay(stack.link_port)
            first = self.make_node(stack, "first", "lossy", relay)
            quiet = self.make_node(stack, "quiet", "default")
            for node in (first, quiet):
                node.wait_ready()
            sandbox = stack.create("tiny", "--pool", "lossy")
            steady = stack.create("tiny", "--pool", "default")
            second = self.make_node(stack, "second", "lossy")
            second.wait_ready()
            self.assertEqual(len(vmms_of(first)), 1)
            undisturbed = vmms_of(quiet)
            self.assertEqual(len(undisturbed), 1)
            census = Census((first, second))
            census.start()

            # renewed: it outlives several leases
            time.sleep(2 * SELF_STOP)
            self.assertEqual(len(vmms_of(first)), 1, "a VM whose node is there ended itself")

            # a cut, with the agent alive behind it; the other pool's agent is killed and stays away
            quiet.agent.kill9()
            relay.is_cut = True
            self.lost(sandbox, first, second)
            relay.is_cut = False
            wait_for("the cut heals", 40 * PATIENCE,
                     lambda: sum(n["state"] == "ready" for n in stack.api("GET", "/v1/nodes")) == 2)
            wait_for("the node that was cut has nothing of it", 20 * PATIENCE,
                     lambda: not list(first.state.glob(f"sandboxes/{sandbox}")))
            self.assertEqual(len(vmms_of(second)), 1, "healing ended the one that lives")
            self.assertEqual(vmms_of(first), [])

            # the agent is killed: nobody is there to end the VM
            second.agent.kill9()
            self.lost(sandbox, second, first)
            second.start_agent()
            wait_for("the agent that came back clears up", 40 * PATIENCE,
                     lambda: not list(second.state.glob(f"sandboxes/{sandbox}")))
            census.end = True
            self.assertEqual(census.most, 1, "two lived at once")
            self.assertEqual(len(vmms_of(first)), 1)

            # without on-loss: the same VM all the time, and adopted
            self.assertEqual(vmms_of(quiet), undisturbed)
            quiet.start_agent()
            wait_for("the sandbox is adopted", 60 * PATIENCE,
                     lambda: stack.cli("sandbox", "exec", steady, "--", "true").returncode == 0)
            self.assertEqual(vmms_of(quiet), undisturbed)
            for one in (sandbox, steady):
                stack.cli_ok("sandbox", "kill", one)
            wait_for("nothing is left", 20 * PATIENCE, lambda: not stack.vmm_pids())
