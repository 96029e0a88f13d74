# SPDX-License-Identifier: Apache-2.0
"""What croft-node-helper does for a node: scheduler and agent run as an ordinary user, the helper as root, and each VMM
with a uid and a control group of its own; a guest is on the network, with an internet of the test's own in a network
namespace. Users, groups, processes and links are asked of the kernel."""
import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import time
import unittest

import private
import stack as st
from stack import PATIENCE, Helper, Stack, wait_for
from test_first_light import USER, kvm_groups

FIRST_UID, UIDS = 70000, 256  # of VMs
GROUPS = pathlib.Path("/sys/fs/cgroup")
PUBLIC, OTHER, PRIVATE, METADATA = "93.184.216.34", "93.184.216.35", "10.9.0.1", "169.254.169.254"
NAMES = {"web.example.test": [PUBLIC], "other.example.test": [OTHER], "rebind.example.test": [METADATA, PRIVATE]}

# A web server on every address and a name server, in the namespace that stands for the internet.
SERVER = f"""
import http.server, socket, struct, threading
names = {NAMES!r}
def dns():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("{PUBLIC}", 53))
    while True:
        q, peer = s.recvfrom(512)
        at, labels = 12, []
        while q[at]:
            labels.append(q[at + 1:at + 1 + q[at]].decode().lower())
            at += 1 + q[at]
        found = names.get(".".join(labels), [])
        body = b"".join(b"\\xc0\\x0c\\0\\1\\0\\1" + struct.pack(">IH", 0, 4) + socket.inet_aton(a) for a in found)
        s.sendto(q[:2] + b"\\x81" + (b"\\x80" if found else b"\\x83") + struct.pack(">HHHH", 1, len(found), 0, 0)
                 + q[12:at + 5] + body, peer)
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from outside\\n")
    def log_message(self, *args): pass
threading.Thread(target=dns, daemon=True).start()
http.server.ThreadingHTTPServer(("0.0.0.0", 80), Hello).serve_forever()
"""


def run(*command):
    subprocess.run([str(c) for c in command], check=True, capture_output=True, timeout=60)


class Internet:
    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "100000"])
        wait_for("a namespace", 10, lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        run("ip", "link", "add", "crofttest0", "type", "veth", "peer", "name", "net0", "netns", self.holder.pid)
        run("ip", "addr", "add", "203.0.113.2/24", "dev", "crofttest0")
        run("ip", "link", "set", "crofttest0", "up")
        inside = ["nsenter", "-t", self.holder.pid, "-n"]
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "addr", "add", "203.0.113.1/24", "dev", "net0")
        run(*inside, "ip", "link", "set", "net0", "up")
        for address in (PUBLIC, OTHER, PRIVATE, METADATA):
            run(*inside, "ip", "addr", "add", f"{address}/32", "dev", "lo")
            run("ip", "route", "add", f"{address}/32", "via", "203.0.113.1")
        self.server = subprocess.Popen([str(c) for c in inside] + [sys.executable, "-c", SERVER])

    def close(self):
        for process in (self.server, self.holder):
            process.kill()
            process.wait()
        subprocess.run(["ip", "link", "del", "crofttest0"], capture_output=True)


class Network(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("croft-node-helper needs root")
        cls.internet = Internet()
        cls.stack = Stack(user=USER).__enter__()
        try:
            cls.helper = Helper(cls.stack, USER, "croft-vmm", "198.18.40.0/24", 1, FIRST_UID, UIDS,
                                "--group-memory-mib=3000", "--group-cpu-percent=1000")
            cls.run_dir, cls.groups = cls.helper.run_dir, cls.helper.groups
            cls.helper.listen()
            cls.stack.template()
            cls.tap = cls.stack.dir / "tap" / "sent"
            cls.tap.parent.mkdir()
            os.chown(cls.tap.parent, USER, USER)
            cls.node = cls.stack.node(groups=kvm_groups(), gateway_user=USER + 1, options={
                "helper-socket": cls.helper.socket, "helper-dns": f"{PUBLIC}:53"}, start=False)
            cls.node.agent.env.update(LD_PRELOAD=str(st.BIN.parent / "lib/link-tap.so"), CROFT_LINK_TAP=str(cls.tap))
            cls.node.start()
            cls.sandbox = cls.stack.create()
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
        cls.internet.close()

    def facts(self, sandbox):
        """Of its VMM: pid, uid, gid, control group."""
        pids = [pid for pid in self.stack.vmm_pids() if sandbox in pathlib.Path(f"/proc/{pid}/cmdline").read_text()]
        self.assertEqual(len(pids), 1, pids)
        status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pids[0]}/status").read_text().splitlines())
        ids = {name: set(status[name].split()) for name in ("Uid", "Gid")}
        self.assertEqual([len(ids["Uid"]), len(ids["Gid"])], [1, 1], status)
        groups = [line[3:] for line in pathlib.Path(f"/proc/{pids[0]}/cgroup").read_text().splitlines() if line.startswith("0::")]
        return pids[0], int(ids["Uid"].pop()), int(ids["Gid"].pop()), GROUPS / groups[0].lstrip("/")

    def in_guest(self, command):
        return self.stack.cli("sandbox", "exec", self.sandbox, "--", "sh", "-c", command)

    def fetch(self, host, seconds=20):
        return self.in_guest(f"fetch {host} {seconds}")

    def links(self):
        text = subprocess.run(["ip", "-o", "link", "show", "group", "7282"], capture_output=True, text=True).stdout
        return len(text.splitlines())

    def test_a_the_gateway_is_another_user(self):
        """And without a capability, as the agent is: they meet at the sockets of their group."""
        uids = []
        for process in (self.node.agent, self.node.gateway):
            status = dict(line.split(":", 1) for line in
                          pathlib.Path(f"/proc/{process.popen.pid}/status").read_text().splitlines())
            self.assertEqual(int(status["CapEff"], 16) | int(status["CapPrm"], 16), 0, status)
            uids.append(status["Uid"].split()[0])
        self.assertEqual(len(set(uids)), 2)
        self.assertEqual(self.in_guest("echo here").stdout, b"here\n")

    def test_a_stage(self):
        stages = {s["stage"]: s for s in self.stack.cli_json("sandbox", "stages", self.sandbox)["records"]}
        self.assertEqual(stages["network"]["outcome"], "ok", stages["network"])
        self.assertRegex(stages["network"]["reason"], r"^s[0-9a-f]{12}, 198\.18\.40\.\d+$")

    def test_b_reaches_the_internet_by_address_and_name(self):
        for host in (PUBLIC, "web.example.test"):
            done = self.fetch(host)
            self.assertEqual((done.returncode, done.stdout), (0, b"hello from outside\n"), (host, done.stderr))

    def test_c_reaches_nothing_private(self):
        for host in (PRIVATE, METADATA, "rebind.example.test", "203.0.113.2"):
            done = self.fetch(host, 5)
            self.assertEqual((done.returncode, done.stdout), (1, b""), (host, done.stderr))
            # refused on the way, not a client that failed by itself
            self.assertRegex(done.stderr, rb"guest-fetch: (connect|rebind.example.test): ", host)
        # and the host does get there: it is no accident
        run(*(("wget", "-O", "/dev/null") if pathlib.Path("/usr/bin/wget").exists() else ("curl",)), f"http://{PRIVATE}/")

    def test_c_no_way_out_over_ipv6(self):
        """Whatever the guest's kernel gives itself: no global address, no gateway, no default route."""
        done = self.in_guest("cat /proc/net/if_inet6; echo --; cat /proc/net/ipv6_route")
        self.assertEqual(done.returncode, 0, done.stderr)
        addresses, routes = (part.split("\n") for part in done.stdout.decode().split("--\n"))
        self.assertEqual([a for a in addresses if a and not a.startswith(("fe80", "0" * 31 + "1"))], [])
        for route in filter(None, routes):
            to, prefix, _, _, gateway, *_, device = route.split()
            self.assertEqual(gateway, "0" * 32, route)
            self.assertTrue(device == "lo" or to.startswith(("fe80", "ff00")) and prefix != "00", route)

    def reaches(self, host):
        done = self.fetch(host, 5)
        self.assertIn((done.returncode, done.stdout), ((0, b"hello from outside\n"), (1, b"")), done.stderr)
        return done.returncode == 0

    def set_policy(self, **body):
        return self.stack.api("PUT", f"/sandboxes/{self.sandbox}/network", body, check=False)

    def test_c_the_tenants_policy_live_and_over_a_restart(self):
        """Named hosts alone, by the address that they answer; kept when the agent starts anew; and opened again."""
        self.assertTrue(self.reaches(OTHER))
        self.assertEqual(self.set_policy(allowOut=["web.example.test"], denyOut=["0.0.0.0/0"]), {})
        shown = self.stack.api("GET", f"/sandboxes/{self.sandbox}")
        self.assertEqual(shown["network"], {"allowOut": ["web.example.test"], "denyOut": ["0.0.0.0/0"]})
        want = {"web.example.test": True, PUBLIC: True, "other.example.test": False, OTHER: False, PRIVATE: False}
        self.assertEqual({host: self.reaches(host) for host in want}, want)
        self.node.agent.kill9()
        self.node.start_agent()
        self.node.wait_ready()
        wait_for("exec works again", 30 * PATIENCE, lambda: self.in_guest("true").returncode == 0)
        wait_for("its resolver is back", 30 * PATIENCE, lambda: self.reaches("web.example.test"))
        self.assertEqual({host: self.reaches(host) for host in want}, want)
        # what is none changes nothing; a rule cannot open what the owner did not
        failed = self.set_policy(denyOut=["10.0.0.1/8"])
        self.assertEqual((failed["status"], failed["failure"]["code"], failed["failure"]["detail"]["field"]),
                         (400, "INVALID_CIDR", "denyOut[0]"))
        self.assertEqual(self.set_policy(allowOut=[PRIVATE, "rebind.example.test"], denyOut=["0.0.0.0/0"]), {})
        want = {"web.example.test": False, PUBLIC: False, PRIVATE: False, "rebind.example.test": False}
        self.assertEqual({host: self.reaches(host) for host in want}, want)
        self.stack.cli_ok("sandbox", "network", self.sandbox)
        self.assertTrue(self.reaches(OTHER))

    def test_c_the_tenants_policy_at_the_start(self):
        mine, type(self).sandbox = self.sandbox, self.stack.create("tiny", "--no-internet", "--allow-out", OTHER)
        made = self.sandbox
        try:
            self.assertEqual({host: self.reaches(host) for host in (PUBLIC, OTHER)}, {PUBLIC: False, OTHER: True})
            self.stack.cli_ok("sandbox", "kill", self.sandbox)
            # what was denied, and how much passed, is in the node's telemetry
            records = wait_for("its telemetry", 60 * PATIENCE, lambda: self.records_of(made))
        finally:
            type(self).sandbox = mine
        denied = [r for r in records if r["what"] == "egress-policy"]
        self.assertEqual([(r["outcome"], r["code"]) for r in denied], [("failed", "EGRESS_DENIED")], records)
        self.assertIn(f"packets to {PUBLIC}, tcp port 80,", denied[0]["detail"])
        counters = [r["detail"] for r in records if r["what"] == "egress-counters"][-1]
        self.assertRegex(counters, r"^stage=egress-policy sent_packets=\d+ sent_bytes=\d+ received_packets=\d+")
        stages = {s["stage"]: s for s in self.stack.cli_json("stages")["stages"]}
        self.assertGreaterEqual(stages["egress-policy"]["failed"], 1, stages)

    def test_c_nothing_of_the_guest_leaves(self):
        """What callers and guests write is in no byte of the node's own, in no file, log or figure of the scheduler's."""
        mark = {what: f"zq{what}{os.urandom(6).hex()}" for what in
                ("command", "environment", "file", "output", "name", "panic", "setup")}
        before = self.tap.stat().st_size
        done = self.stack.cli("sandbox", "exec", "--env", f"A={mark['environment']}", self.sandbox, "--", "sh", "-c",
                              f": {mark['command']}; echo {mark['output']}; echo >/tmp/{mark['file']}; false")
        self.assertEqual((done.returncode, done.stdout.decode()), (1, mark["output"] + "\n"))
        self.assertNotEqual(self.fetch(f"{mark['name']}.example.test", 5).returncode, 0)
        failure = self.stack.failed_create("--setup", f"echo {mark['setup']}; echo {mark['setup']} >&2; exit 3")
        self.assertEqual(failure["code"], "SETUP_FAILED")
        # the node's own log has it, and a client's own call brings it
        audit = self.stack.cli_json("sandbox", "audit", self.sandbox)
        ran = [c for c in audit["commands"] if mark["command"] in c["command"][-1]]
        self.assertEqual([c["exit"] for c in ran], [1], audit["commands"])
        told = [o for o in audit["output"] if mark["command"] in o["command"][-1]][0]["stdout"]
        said = f"{mark['output']}\n".encode()
        self.assertEqual((told["size"], told["sha256"], told["head"]), (len(said), hashlib.sha256(said).hexdigest(), said.decode()))
        self.assertIn(f"/tmp/{mark['file']}", [f.get("path") for f in audit["files"]])
        logged = b"".join(p.read_bytes() for p in (self.node.run / "audit").glob("*.log"))
        for what in ("command", "output", "setup"):
            self.assertIn(mark[what].encode(), logged)
        self.assertNotIn(mark["environment"].encode(), logged)
        verified = subprocess.run([self.stack.bin / "croft-node", "audit", "verify", "--run", self.node.run], capture_output=True, check=False)
        self.assertEqual(verified.returncode, 0, verified.stderr)
        other = self.stack.create()
        self.stack.cli("sandbox", "exec", other, "--", "sh", "-c",
                       f"echo \"<0>{mark['panic']}\" >/dev/kmsg; echo c >/proc/sysrq-trigger", timeout=60 * PATIENCE)
        wait_for("its end is known", 60 * PATIENCE, lambda: self.stack.cli_json("sandbox", "info", other).get("failure"))
        self.assertEqual(self.stack.cli_json("sandbox", "info", other)["failure"]["code"], "GUEST_PANIC")
        consoles = b"".join(p.read_bytes() for p in self.node.state.glob("**/*.console"))
        self.assertIn(mark["panic"].encode(), consoles)  # the node's operator has it
        time.sleep(6)  # telemetry of the last, and its sums
        sent = list(private.sent(self.tap))
        as_relayed = base64.b64encode(f"{mark['output']}\n".encode())[:-4]
        self.assertTrue(any(as_relayed in message for is_stream, message in sent if is_stream),
                        "the tap does not see what is relayed")
        self.assertGreater(self.tap.stat().st_size, before)
        places = {"the link": b"".join(message for is_stream, message in sent if not is_stream),
                  "/metrics": self.stack.metrics()}
        self.assertIn(other.encode(), places["the link"])
        for path in [*self.stack.state.glob("**/*"), self.stack.scheduler.log]:
            if path.is_file():
                places[str(path)] = path.read_bytes()
        found = [(what, place) for what, word in mark.items() for place, data in places.items() if word.encode() in data]
        # but for the caller's own request, which is run again where its node is lost
        self.assertEqual([f for f in found if f[0] != "setup" or "store.db" not in f[1]], [])

    def test_c_sleeps_and_wakes_in_another_slot(self):
        """Another hardware address, another address, another resolver; a new uid and group; the policy is the same."""
        look = "cat /sys/class/net/eth0/address; ip -4 addr show dev eth0 | grep -o 'inet [0-9.]*'; cat /etc/resolv.conf"
        before, facts = self.in_guest(look).stdout.split(), self.facts(self.sandbox)
        self.assertEqual(self.set_policy(allowOut=["web.example.test"], denyOut=["0.0.0.0/0"]), {})
        self.stack.cli_ok("sandbox", "pause", self.sandbox)
        self.assertFalse(facts[3].exists())
        wait_for("its slot is gone but for the spare", 60 * PATIENCE, lambda: self.links() <= 1)
        self.stack.cli_ok("sandbox", "resume", self.sandbox)
        after = self.in_guest(look).stdout.split()
        self.assertEqual(len(after), len(before))
        for line, (old, new) in zip(("MAC", None, "address", None, "resolver"), zip(before, after)):
            self.assertEqual(old != new, line is not None, (line, before, after))
        self.assertTrue(self.facts(self.sandbox)[3].exists())
        want = {"web.example.test": True, "other.example.test": False, OTHER: False, PRIVATE: False}
        self.assertEqual({host: self.reaches(host) for host in want}, want)
        self.stack.cli_ok("sandbox", "network", self.sandbox)
        self.assertTrue(self.reaches(OTHER))

    def records_of(self, sandbox):
        """Of the node's telemetry, once the counters are there: they come behind the denials."""
        node = self.stack.cli_json("node", "list")[0]["id"]
        records = [r for r in self.stack.api("GET", f"/v1/nodes/{node}/telemetry")["records"]
                   if r.get("sandbox") == sandbox and r["what"].startswith("egress")]
        return records if any(r["what"] == "egress-counters" for r in records) and self.is_gone(sandbox) else None

    def is_gone(self, sandbox):
        return not (self.groups / sandbox).exists()

    def test_d_a_uid_and_a_group_of_its_own(self):
        other = self.stack.create()
        mine, theirs = self.facts(self.sandbox), self.facts(other)
        for sandbox, (_, uid, gid, group) in ((self.sandbox, mine), (other, theirs)):
            self.assertTrue(FIRST_UID <= uid < FIRST_UID + UIDS, uid)
            self.assertEqual(gid, USER)
            self.assertEqual(group, self.groups / sandbox)
            self.assertTrue(192 << 20 < int((group / "memory.max").read_text()) < 400 << 20)
            self.assertLess(int((group / "pids.max").read_text()), 100)
            self.assertRegex((group / "cpu.max").read_text(), r"^\d+ 100000$")
        # the owner's ceiling over all of them
        self.assertEqual([(self.groups / f).read_text().strip() for f in ("memory.max", "cpu.max")], [str(3000 << 20), "1000000 100000"])
        self.assertNotEqual(mine[1], theirs[1])
        stages = {s["stage"]: s for s in self.stack.cli_json("sandbox", "stages", other)["records"]}
        self.assertEqual(stages["jail"]["outcome"], "ok", stages["jail"])

        # R032: the kernel takes one VM's memory away; its failure has its own code, and nobody else's VM is harmed
        (theirs[3] / "memory.max").write_text("4M")
        wait_for("it ends", 20 * PATIENCE, lambda: not pathlib.Path(f"/proc/{theirs[0]}").exists())
        wait_for("its end is known", 20 * PATIENCE,
                 lambda: b"HOST_OOM" in self.stack.cli("sandbox", "info", other, "-o", "json").stdout)
        wait_for("its group is gone", 20 * PATIENCE, lambda: not theirs[3].exists())
        self.assertEqual(self.facts(self.sandbox), mine)
        done = self.in_guest("true")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_d_agent_killed_and_back(self):
        self.in_guest(f"(while :; do fetch {PUBLIC} 9 >/dev/null && date +%s >>/tmp/reached; sleep 1; done) >/dev/null 2>&1 &")
        before = self.facts(self.sandbox)
        self.node.agent.kill9()
        away = time.time()
        time.sleep(20)  # what the guest does meanwhile is what is looked at
        back = time.time()
        self.node.start_agent()
        self.node.wait_ready()
        reached = [int(t) for t in self.in_guest("cat /tmp/reached").stdout.split()]
        self.assertEqual(self.facts(self.sandbox), before)
        self.assertTrue([t for t in reached if away + 5 < t < back - 2], (away, back, reached))
        done = self.fetch("web.example.test")  # its resolver is back
        self.assertEqual((done.returncode, done.stdout), (0, b"hello from outside\n"), done.stderr)

    def test_e_helper_killed_and_back(self):
        before = self.facts(self.sandbox)
        self.helper.kill9()
        self.assertEqual(self.fetch(PUBLIC).stdout, b"hello from outside\n")  # what runs goes on
        self.node.agent.kill9()
        self.helper.start()
        self.node.start_agent()
        wait_for("the agent has the helper again", 60 * PATIENCE, lambda: self.node.said("croft-node-helper is there"))
        self.node.wait_ready()
        wait_for("exec works again", 30 * PATIENCE, lambda: self.in_guest("true").returncode == 0)
        self.assertEqual(self.facts(self.sandbox), before)

    def test_f_nothing_is_left(self):
        self.stack.cli_ok("sandbox", "kill", self.sandbox)
        self.stack.assert_clean(self.node)
        self.assertEqual([p.name for p in self.groups.iterdir() if p.is_dir()], [])
        wait_for("the slot is gone but for the spare", 60 * PATIENCE, lambda: self.links() <= 1)
        self.assertEqual(list((self.run_dir / "slots").iterdir()), [])
