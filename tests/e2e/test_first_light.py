# SPDX-License-Identifier: Apache-2.0
"""The whole path as an ordinary user in group kvm: scheduler, node, gateway, VMM, guest, command line."""
import grp
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

import stack as st
from stack import PATIENCE, Stack, mostly_waits, wait_for

USER = 4242  # nobody's: nothing here needs root


def kvm_groups():
    try:
        return [grp.getgrnam("kvm").gr_gid]
    except KeyError:
        return [os.stat("/dev/kvm").st_gid]


def new_stack(**kw):
    return Stack(user=USER, **kw)


class Shared(unittest.TestCase):
    """One stack with one node and the tiny template for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.stack = new_stack().__enter__()
        try:
            cls.stack.template()
            cls.node = cls.stack.node(groups=kvm_groups())
        except BaseException:
            cls.stack.__exit__(Exception, None, None)
            raise

    @classmethod
    def tearDownClass(cls):
        cls.stack.__exit__(None, None, None)


class Exec(Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            cls.sandbox = cls.stack.create()
        except BaseException:
            cls.stack.__exit__(Exception, None, None)
            raise

    def run_in(self, *command, **kw):
        return self.stack.cli("sandbox", "exec", self.sandbox, "--", *command, **kw)

    def test_exit_status(self):
        self.assertEqual(self.run_in("sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.run_in("true").returncode, 0)

    def test_stderr_apart(self):
        done = self.run_in("sh", "-c", "echo out; echo err >&2")
        self.assertEqual((done.stdout, done.stderr), (b"out\n", b"err\n"))

    def test_ten_megabytes_byte_for_byte(self):
        done = self.run_in("sh", "-c", "dd if=/dev/urandom of=/tmp/x bs=1M count=10 2>/dev/null; sha256sum </tmp/x >&2; cat /tmp/x")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout), 10 << 20)
        self.assertEqual(hashlib.sha256(done.stdout).hexdigest(), done.stderr.split()[0].decode())

    def test_ended_by_signal(self):
        done = self.run_in("sh", "-c", "kill -9 $$")
        self.assertEqual(done.returncode, 128 + 9)
        self.assertIn(b"SIGKILL", done.stderr.upper().replace(b"KILLED", b"SIGKILL"))

    def test_not_found_and_not_executable(self):
        self.assertEqual(self.run_in("/no/such/program").returncode, 127)
        self.assertEqual(self.run_in("/etc/passwd").returncode, 126)

    def test_croft_own_failure(self):
        done = self.stack.cli("sandbox", "exec", "aaaaaaaaaaaaaaaaaaaa", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"SANDBOX_", done.stderr)

    def test_stdin(self):
        data = os.urandom(200_000)
        done = self.stack.cli("sandbox", "exec", "-i", self.sandbox, "--", "cat", stdin=data)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, data)

    def test_reader_that_stops_costs_a_bounded_buffer(self):
        watched = [self.node.gateway.popen.pid, self.node.agent.popen.pid, self.stack.scheduler.popen.pid]

        def rss():
            return sum(int(line.split()[1]) for pid in watched for line in open(f"/proc/{pid}/status")
                       if line.startswith("VmRSS"))
        client = subprocess.Popen([str(st.BIN / "croft"), "sandbox", "exec", self.sandbox, "--", "sh", "-c",
                                   "dd if=/dev/zero bs=1M count=24 2>/dev/null; echo end >&2"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=self.stack.client_env())
        try:
            client.stdout.read(1 << 16)
            watched.append(client.pid)
            before, seen = rss(), []
            for _ in range(10):  # nobody reads: what is produced has to wait in the guest
                time.sleep(1)
                seen.append(rss())
            self.assertLess(max(seen) - before, 8 << 10, "kB of growth while nobody reads")
            left, err = client.communicate(timeout=600)
            self.assertEqual((1 << 16) + len(left), 24 << 20)
            self.assertEqual(err, b"end\n")
        finally:
            client.kill()

    def test_diff(self):
        """What its processes did to the image's files and to their own, in a kernel's real overlay; the image's other files are not in it."""
        done = self.run_in("sh", "-c", "set -e; mkdir -p /diff/below; echo 12345 >/diff/below/new; : >/diff/brief; rm /diff/brief;"
                           " ln -s /etc /diff/link; echo more >>/etc/passwd; chmod 0600 /etc/group; rm -r /var; mkdir /var; echo x >/var/own; rm /bin/yes")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = self.stack.cli_json("sandbox", "diff", self.sandbox)
        self.assertTrue(answer["end"]["complete"], answer["end"])
        self.assertEqual(answer["end"]["source"], "guest")
        told = {c["path"]: (c["change"], c["type"]) for c in answer["changes"]}
        self.assertEqual(len(told), len(answer["changes"]), "each path once")
        self.assertEqual({path: told.get(path) for path in ("/diff", "/diff/below/new", "/diff/brief", "/diff/link", "/etc/passwd", "/etc/group",
                                                            "/var", "/var/tmp", "/var/own", "/bin/sh", "/bin", "/bin/yes")},
                         {"/diff": ("added", "directory"), "/diff/below/new": ("added", "file"), "/diff/brief": None,
                          "/diff/link": ("added", "symlink"), "/etc/passwd": ("changed", "file"), "/etc/group": ("changed", "file"),
                          "/var": ("changed", "directory"), "/var/tmp": ("deleted", "directory"), "/var/own": ("added", "file"), "/bin/sh": None,
                          "/bin": None, "/bin/yes": ("deleted", told["/bin/yes"][1])})
        self.assertIn({"change": "added", "path": "/diff/below/new", "type": "file", "size": 6, "mode": "0644"}, answer["changes"])
        text = self.stack.cli("sandbox", "diff", self.sandbox).stdout.decode().splitlines()
        self.assertEqual(len(text), len(answer["changes"]))
        self.assertIn("C /etc/passwd", text)
        self.run_in("rm", "-rf", "/diff")
        self.assertNotIn("/diff", {c["path"] for c in self.stack.cli_json("sandbox", "diff", self.sandbox)["changes"]})

    def test_out_of_memory(self):
        """The command's own answer says so, and so does the node's telemetry; the sandbox goes on."""
        # in a small group, where the kernel does not first look for minutes for pages of files that it might drop
        done = self.run_in("sh", "-c", "cd /sys/fs/cgroup && { echo +memory >cgroup.subtree_control; mkdir -p small; } && echo 16M >small/memory.max"
                           " && echo $$ >small/cgroup.procs && cd / && awk 'BEGIN { while (1) a[i++] = sprintf(\"%10000d\", i) }'; exit $?")
        self.assertEqual(done.returncode, 137, done.stderr)
        self.assertIn(b"GUEST_OOM", done.stderr)

        def told():
            return [r for r in self.stack.api("GET", f"/v1/nodes/{self.stack.cli_json('node', 'list')[0]['id']}/telemetry")["records"]
                    if r.get("sandbox") == self.sandbox and r.get("code") == "GUEST_OOM"]
        records = wait_for("telemetry of it", 20 * PATIENCE, told)
        self.assertEqual({(r["what"], r["outcome"]) for r in records}, {("exec", "failed")}, records)
        self.assertEqual(self.run_in("true").returncode, 0)

    def test_stages(self):
        stages = self.stack.cli_json("sandbox", "stages", self.sandbox)
        stages = stages["records"]
        by_name = {s["stage"]: s for s in stages}
        names = "admit place dispatch accept image disk network jail vmm kernel guest setup ready".split()
        self.assertEqual([s["stage"] for s in stages], names)
        for name in names:
            want = "skipped" if name in ("network", "setup") else "ok"
            self.assertEqual(by_name[name]["outcome"], want, by_name[name])
            self.assertGreaterEqual(by_name[name]["took_ms"], 0)
        self.assertEqual(by_name["network"]["reason"], "no croft-node-helper: helper.socket is not set")
        self.assertEqual(by_name["jail"]["reason"], "user namespace, empty root, filters")
        self.assertGreater(by_name["kernel"]["took_ms"], 0)


class Survival(Shared):
    def guest_facts(self, sandbox):
        text = self.stack.cli_ok("sandbox", "exec", sandbox, "--", "sh", "-c",
                                 "cat /proc/sys/kernel/random/boot_id; cut -d' ' -f1 /proc/uptime")
        boot_id, uptime = text.split()
        return boot_id, float(uptime)

    def test_kill9_of_the_agent(self):
        sandbox = self.stack.create()
        boot_id, uptime = self.guest_facts(sandbox)
        vmms = self.stack.vmm_pids()
        self.assertEqual(len(vmms), 1)
        self.stack.cli_ok("sandbox", "exec", sandbox, "--", "sh", "-c",
                          "(for i in $(seq 1 60); do echo $i >>/tmp/count; sleep 1; done) >/dev/null 2>&1 &")
        self.node.agent.kill9()
        time.sleep(3)
        self.assertEqual(self.stack.vmm_pids(), vmms, "the VMM ended with its agent")
        self.node.start_agent()
        self.node.wait_ready()
        wait_for("exec works again", 30 * PATIENCE,
                 lambda: self.stack.cli("sandbox", "exec", sandbox, "--", "true").returncode == 0)
        again, later = self.guest_facts(sandbox)
        self.assertEqual(again, boot_id)
        self.assertGreater(later, uptime)
        self.assertEqual(self.stack.vmm_pids(), vmms, "something was doubled")
        first = int(self.stack.cli_ok("sandbox", "exec", sandbox, "--", "sh", "-c", "wc -l </tmp/count"))
        time.sleep(3)
        second = int(self.stack.cli_ok("sandbox", "exec", sandbox, "--", "sh", "-c", "wc -l </tmp/count"))
        self.assertGreater(second, first, "the command did not go on")
        self.assertEqual(self.stack.cli_json("sandbox", "info", sandbox)["state"], "running")
        self.stack.cli_ok("sandbox", "kill", sandbox)
        self.stack.assert_clean(self.node)

    def test_kill9_of_the_scheduler(self):
        sandbox = self.stack.create()
        self.stack.scheduler.kill9()
        before = self.stack.vmm_pids()
        self.stack.start_scheduler()
        info = self.stack.cli_json("sandbox", "info", sandbox)
        self.assertEqual(info["state"], "running")
        stages = self.stack.cli_json("sandbox", "stages", sandbox)["records"]
        self.assertEqual(len(stages), 13)
        self.node.wait_ready()
        wait_for("exec works again", 30 * PATIENCE,
                 lambda: self.stack.cli("sandbox", "exec", sandbox, "--", "true").returncode == 0)
        self.assertEqual(self.stack.vmm_pids(), before)
        self.stack.cli_ok("sandbox", "kill", sandbox)
        self.stack.assert_clean(self.node)

    def test_kill9_of_everything_but_the_guest(self):
        """R019: scheduler and agent die within a second; no VM does."""
        sandbox = self.stack.create()
        boot_id, _ = self.guest_facts(sandbox)
        before = self.stack.vmm_pids()
        self.stack.scheduler.kill9()
        self.node.agent.kill9()
        self.node.start_agent()  # first the agent, which then waits for its scheduler
        time.sleep(2)
        self.stack.start_scheduler()
        self.node.wait_ready()
        wait_for("exec works again", 60 * PATIENCE,
                 lambda: self.stack.cli("sandbox", "exec", sandbox, "--", "true").returncode == 0)
        self.assertEqual(self.guest_facts(sandbox)[0], boot_id)
        self.assertEqual(self.stack.vmm_pids(), before)
        self.stack.cli_ok("sandbox", "kill", sandbox)
        self.stack.assert_clean(self.node)

    def test_destroy_leaves_nothing(self):
        sandbox = self.stack.create()
        self.assertEqual(len(self.stack.vmm_pids()), 1)
        self.stack.cli_ok("sandbox", "kill", sandbox)
        self.stack.assert_clean(self.node)
        self.assertEqual(self.stack.cli("sandbox", "kill", "aaaaaaaaaaaaaaaaaaaa").returncode, 3)


class Failures(Shared):
    """Each of these creates fails with stage, code, component and a remedy, and leaves nothing behind. Then the remedy
    is followed as it is printed, and a create succeeds."""

    def fails(self, stage, code, component, *args, template="tiny", node=None, **detail):
        failure = self.stack.failed_create(*args, template=template)
        self.assertEqual((failure["stage"], failure["code"], failure["component"]), (stage, code, component), failure)
        self.assertTrue(failure["remedy"])
        self.assertTrue(failure["owner"])
        self.assertGreater(failure["took_ms"], 0)
        for key, value in detail.items():
            self.assertEqual(failure["detail"].get(key), value, failure)
        self.stack.assert_clean(node or self.node)
        return failure

    def with_options(self, **options):
        """Restarts the node with other options; undone at the end of the test."""
        old = dict(self.node.options)
        new = {k.replace("_", "-"): v for k, v in options.items()}

        def restart(values):
            self.node.options = values
            self.node.agent.stop()
            self.node.agent.args = self.node.argv("run")
            self.node.start_agent()
            self.node.wait_ready()
        self.addCleanup(restart, old)
        restart({**old, **new})

    def wait_schedulable(self):
        wait_for("the node can be used", 60, lambda: any(n["schedulable"] for n in self.stack.api("GET", "/v1/nodes")))

    def works(self, *args, template="tiny"):
        sandbox = self.stack.create(template, *args)
        self.stack.cli_ok("sandbox", "kill", sandbox)
        self.stack.assert_clean(self.node)

    def test_image_digest(self):
        self.stack.template("torn")
        digest = self.stack.cli_json("template", "list")
        digest = [t for t in digest if t["name"] == "torn"][0]["digest"].split(":")[1]
        shutil.rmtree(self.node.cache / "images", ignore_errors=True)
        blob = next(p for p in self.stack.state.rglob(f"*{digest}*") if p.is_file())
        data = blob.read_bytes()
        blob.chmod(0o600)
        blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        failure = self.fails("image", "IMAGE_DIGEST_MISMATCH", "image-source", template="torn")
        self.assertIn("import the template again", failure["remedy"])
        self.stack.template("torn")  # nothing else: the torn bytes are replaced by it
        self.works(template="torn")

    def test_no_file_system(self):
        junk = self.stack.dir / "junk.sqfs"
        junk.write_bytes(b"hsqs" + os.urandom((1 << 20) - 4))
        self.stack.cli_ok("template", "import", "junk", junk)
        failure = self.fails("guest", "ROOTFS_UNREADABLE", "template", template="junk")
        self.assertIn("import it again from a directory or tar", failure["remedy"])
        self.stack.cli_ok("template", "import", "junk", st.CACHE / "images/tiny.tar")
        self.works(template="junk")

    def test_kvm_lost_after_placement(self):
        # The agent looks at /dev/kvm every few seconds. Where it happened to look before the placement, the answer is
        # another one: then once more.
        for _ in range(5):
            self.wait_schedulable()
            os.chmod("/dev/kvm", 0o600)
            try:
                failure = self.stack.failed_create()
            finally:
                os.chmod("/dev/kvm", 0o660)
            time.sleep(1)  # a look that fell into the time without is reported by now
            self.wait_schedulable()
            if failure["stage"] != "place":
                break
        self.assertEqual((failure["stage"], failure["code"], failure["component"]), ("vmm", "KVM_UNAVAILABLE", "node-host"))
        self.assertEqual(failure["errno"], "EACCES")
        self.assertIn("Make /dev/kvm usable", failure["remedy"])  # as it is again
        self.stack.assert_clean(self.node)
        self.works()

    def test_no_kvm_anywhere(self):
        kvm = self.stack.dir / "kvm"
        self.with_options(vmm_kvm=kvm)
        failure = self.fails("place", "NO_COMPATIBLE_NODE", "node-host", cause="KVM_UNAVAILABLE")
        self.assertIn("`cause`", failure["remedy"])  # it sends the reader to the remedy of that code
        nodes = self.stack.cli_json("node", "list")
        self.assertIn("Make /dev/kvm usable", nodes[0]["unschedulable"]["remedy"])
        kvm.symlink_to("/dev/kvm")
        self.wait_schedulable()
        self.works()

    def test_kernel_missing(self):
        kernel = self.stack.dir / "kernel" / "vmlinux"
        kernel.parent.mkdir()
        self.with_options(guest_kernel=kernel)
        failure = self.fails("vmm", "KERNEL_MISSING", "node-software")
        self.assertIn("Install the guest kernel", failure["remedy"])
        shutil.copy(st.CACHE / "guest-kernel/vmlinux", kernel)
        self.works()

    def test_no_capacity(self):
        failure = self.fails("place", "NO_CAPACITY", "node-host", "--memory", "900G", resource="memory")
        records = self.stack.cli_json("sandbox", "stages", failure["sandbox"])["records"]
        self.assertEqual([r["outcome"] for r in records if r["stage"] == "place"], ["failed"], "more than one attempt")
        self.assertIn("asked", " ".join(failure["detail"]))
        self.assertIn("largest", " ".join(failure["detail"]))
        self.assertIn("Ask for no more than `largest`", failure["remedy"])
        self.works("--memory", str(int(failure["detail"]["largest"])) + "M")

    def console(self, failure):
        """Where the remedies say that it is."""
        self.assertIn("failed/SANDBOX.console", failure["remedy"])
        return (self.node.state / "failed" / (failure["sandbox"] + ".console")).read_text(errors="replace")

    def own_initramfs(self, name):
        """An initramfs of the node's own, so that it can be mended in its place."""
        own = self.stack.dir / ("initramfs-" + name)
        shutil.copy(st.CACHE / f"guest-kernel/initramfs-{name}.img", own)
        return own

    def mend(self, initramfs):
        """What installer/kernel/make puts in its place."""
        shutil.copy(st.CACHE / "guest-kernel/initramfs.img", initramfs)

    def test_kernel_panics(self):
        initramfs = self.own_initramfs("panic")
        self.with_options(guest_initramfs=initramfs)
        failure = self.fails("kernel", "GUEST_PANIC", "template")
        self.assertIn("Kernel panic", self.console(failure))
        self.mend(initramfs)
        self.works()

    def test_guest_never_answers(self):
        initramfs = self.own_initramfs("silent")
        self.with_options(guest_initramfs=initramfs, guest_guest_timeout_ms=5000)
        failure = self.fails("guest", "GUEST_TIMEOUT", "template")
        self.assertGreaterEqual(failure["took_ms"], 5000)
        info = self.stack.cli_json("sandbox", "info", failure["sandbox"])
        self.assertGreaterEqual(info["failure"]["took_ms"], 5000)
        self.assertNotIn("panic", self.console(failure))  # it is there, and says that nothing was printed
        self.mend(initramfs)
        self.node.options["guest-guest-timeout-ms"] = 300_000  # the remedy's other half: this host is slow
        self.node.agent.stop()
        self.node.agent.args = self.node.argv("run")
        self.node.start_agent()
        self.node.wait_ready()
        self.works()

    def test_setup_exits_3(self):
        failure = self.fails("setup", "SETUP_FAILED", "caller", "--setup", "exit 3", exit="3")
        self.assertEqual(failure["owner"], "caller")
        self.assertIn("mend the command", failure["remedy"])
        self.works("--setup", "exit 0")


class Refusals(Shared):
    def test_token_twice(self):
        token = self.stack.token()
        first = st.Node(self.stack, "first", user=USER)
        first.join(token)
        second = st.Node(self.stack, "second", user=USER)
        done = second.join(token, ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("JOIN_TOKEN_USED", done.stderr)

    def test_token_expired(self):
        token = self.stack.cli_ok("token", "create", "--pool", "default", "--ttl", "1s")
        time.sleep(2)
        done = st.Node(self.stack, "late", user=USER).join(token, ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("JOIN_TOKEN_EXPIRED", done.stderr)

    def test_token_revoked(self):
        token = self.stack.token()
        ident = [line.split("=")[1].strip() for line in token.splitlines() if line.startswith("token_id")][0]
        self.stack.cli_ok("token", "revoke", ident)
        done = st.Node(self.stack, "revoked-token", user=USER).join(token, ok=False)
        self.assertIn("JOIN_TOKEN_REVOKED", done.stderr)

    def test_two_nodes_on_one_host(self):
        """R002: an identity belongs to a state directory, not to the machine."""
        before = {n["id"] for n in self.stack.api("GET", "/v1/nodes")}
        other = self.stack.node("twin", groups=kvm_groups())
        after = {n["id"]: n for n in self.stack.api("GET", "/v1/nodes")}
        mine = set(after) - before
        self.assertEqual(len(mine), 1)
        both = mine | {self.first_id()}

        def ready_ones():
            ready = [n for n in self.stack.api("GET", "/v1/nodes") if n["state"] == "ready" and n["id"] in both]
            return ready if len(ready) == 2 else None

        ready = wait_for("both are ready", 60, ready_ones)
        self.assertEqual(len({n["machine"] for n in ready}), 2)
        other.stop()

    def test_arguments(self):
        """R034, R049: what no sandbox can be is refused by name before anything is placed."""
        bad = [("timeout", v) for v in (0, -1, 1 << 63, "NaN", 1.5)] + \
              [("cpuCount", v) for v in (0, 33, 257, -1, (1 << 32) + 1, "2")] + \
              [("memoryMB", v) for v in (0, -1, 1 << 44, "1G")] + [("templateID", v) for v in ("", 7, "a/b", "x" * 300)]
        for member, value in bad:
            answer = self.stack.api("POST", "/v2/sandboxes", {"templateID": "tiny", member: value}, check=False)
            want = (400, "INVALID_ARGUMENT")
            if member == "templateID" and answer.get("status") == 404:
                want = (404, "TEMPLATE_NOT_FOUND")  # a name that could be one
            self.assertEqual((answer.get("status"), answer["failure"]["code"]), want, (member, value, answer))
            self.assertEqual(answer["failure"]["stage"], "admit")
            self.assertEqual(answer["failure"]["owner"], "caller")
            names = "template" if member == "templateID" else member
            self.assertIn(names, answer["message"] + json.dumps(answer["failure"]["detail"]), (member, value))
        self.assertEqual(self.stack.vmm_pids(), [])

    def test_already_joined(self):
        done = self.node.join(self.stack.token(), ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ALREADY_JOINED", done.stderr)

    def test_revoked_node(self):
        node = self.stack.node("gone", groups=kvm_groups(), start=False)
        node.start(ready=False)
        mine = wait_for("two nodes", 60, lambda: [n for n in self.stack.api("GET", "/v1/nodes")
                                                  if n["id"] != self.first_id()])
        self.stack.api("POST", f"/v1/nodes/{mine[0]['id']}/revoke", {})
        wait_for("the node hears of it", 90, lambda: "NODE_REVOKED" in node.agent.tail(200))
        node.stop()
        states = {n["id"]: n["state"] for n in self.stack.api("GET", "/v1/nodes")}
        self.assertEqual(states[self.first_id()], "ready", "revoking one node stopped another")

    def first_id(self):
        text = "".join(p.read_text(errors="replace") for p in self.node.state.iterdir() if p.is_file() and "key" not in p.name)
        ids = [n["id"] for n in self.stack.api("GET", "/v1/nodes") if n["id"] in text]
        return ids[0]

    def test_unknown_key(self):
        node = self.stack.node("stranger", start=False)
        third = Stack(user=USER)
        with third:
            alien = st.Node(third, "alien", user=USER)
            alien.join()
            # a valid key pair, of another scheduler's node
            shutil.copyfile(next(alien.state.glob("node-*.key")), next(node.state.glob("node-*.key")))
        node.start(ready=False)
        wait_for("the node is refused", 60, lambda: "NODE_KEY_UNKNOWN" in node.agent.tail(200))
        node.stop()


class Relay:
    """A TCP hop that can be cut: what lies between a customer's network and the scheduler."""

    def __init__(self, to):
        self.to, self.pairs, self.up = to, [], True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                a, _ = self.listener.accept()
            except OSError:
                return
            if not self.up:
                a.close()
                continue
            b = socket.create_connection(("127.0.0.1", self.to))
            self.pairs.append((a, b))
            for x, y in ((a, b), (b, a)):
                threading.Thread(target=self.pump, args=(x, y), daemon=True).start()

    @staticmethod
    def pump(x, y):
        try:
            while data := x.recv(65536):
                y.sendall(data)
        except OSError:
            pass
        for s in (x, y):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.up = False
        for pair in self.pairs:
            for s in pair:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs.clear()


class CutOff(unittest.TestCase):
    @mostly_waits
    def test_telemetry_after_thirty_seconds(self):
        with new_stack() as stack:
            stack.template()
            relay = Relay(stack.link_port)
            node = st.Node(stack, "far", user=USER, groups=kvm_groups())
            stack.nodes.append(node)
            node.join(stack.token().replace(f":{stack.link_port}", f":{relay.port}"))
            node.start()
            sandbox = stack.create("tiny")
            before = stack.api("GET", "/v1/nodes")[0]
            relay.cut()
            wait_for("the node is suspected", 10 * PATIENCE,
                     lambda: stack.api("GET", "/v1/nodes")[0]["state"] in ("suspect", "lost"))
            # what happens meanwhile must be told afterwards: the guest ends by itself
            gateway = f"http://127.0.0.1:{node.gateway_port}"
            subprocess.run([str(st.BIN / "croft"), "sandbox", "exec", sandbox, "--", "sh", "-c", "poweroff -f || true"],
                           env={**stack.client_env(), "CROFT_SANDBOX_URL": gateway}, timeout=120, capture_output=True)
            time.sleep(30)
            relay.up = True
            node_id = before["id"]
            wait_for("the node is back", 60 * PATIENCE, lambda: stack.api("GET", f"/v1/nodes/{node_id}")["state"] == "ready")
            info = wait_for("the end is known", 60 * PATIENCE, lambda: (
                lambda i: i if i["state"] == "ended" else None)(stack.cli_json("sandbox", "info", sandbox)))
            self.assertEqual(info["end_reason"], "guest")

            def all_told():
                # the records first: what arrives between the two answers makes the numbers differ, and it is asked again
                records = stack.api("GET", f"/v1/nodes/{node_id}/telemetry?after=0")["records"]
                state = stack.api("GET", f"/v1/nodes/{node_id}")["telemetry"]
                done = len(records) == state["acked"] == state["received"] > before["telemetry"]["acked"]
                return (records, state) if done and "stop" in (r["what"] for r in records) else None

            told, after = wait_for("the spool is drained", 60 * PATIENCE, all_told)
            self.assertEqual(after["gaps"], 0)
            self.assertEqual(after["lost"], 0)
            self.assertEqual([r["seq"] for r in told], list(range(1, len(told) + 1)), "a gap, or out of order")
            names = [r["what"] for r in told]
            for name in ("ready", "link-lost", "run", "stop"):
                self.assertIn(name, names)
            self.assertLess(names.index("link-lost"), names.index("run"), "the order in which it happened")


class Start(unittest.TestCase):
    def test_image_over_the_bulk_lane(self):
        with new_stack() as stack:
            stack.template()
            node = stack.node(groups=kvm_groups())
            self.assertFalse(list(node.cache.rglob("*.sqfs")) or list((node.cache / "images").glob("sha256*")))
            stack.create()
            held = [p for p in node.cache.rglob("*") if p.is_file() and p.stat().st_size == st.tiny_image().stat().st_size]
            self.assertEqual(len(held), 1)
            self.assertEqual(hashlib.sha256(held[0].read_bytes()).digest(),
                             hashlib.sha256(st.tiny_image().read_bytes()).digest())

    def test_no_process_runs_as_root_and_all_hide_their_memory(self):
        with new_stack() as stack:
            stack.template()
            stack.node(groups=kvm_groups())
            stack.create("tiny", "--vcpus", "2")
            for pid in stack.pids_of(stack.dir):
                uid = [int(x) for x in next(line for line in open(f"/proc/{pid}/status") if line.startswith("Uid")).split()[1:]]
                self.assertEqual(set(uid), {USER})
                # R203: no core of it, and nobody of the same user reads its memory
                self.assertEqual(os.stat(f"/proc/{pid}/environ").st_uid, 0, open(f"/proc/{pid}/cmdline").read())
            self.assertEqual(len(stack.vmm_pids()), 1)


if __name__ == "__main__":
    unittest.main()
