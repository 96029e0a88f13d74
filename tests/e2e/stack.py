# SPDX-License-Identifier: Apache-2.0
"""A whole croft in a temporary directory: real processes, loopback only.

Stack() starts a scheduler; node() joins and starts a node agent with its gateway. Everything is started by path
from CROFT_BIN (build/dev/bin), logs into the stack's directory, and is ended by pid. leftovers() asks the kernel,
not croft, what a sandbox left behind.
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CROFT_BIN", TOP / "build/dev/bin")).resolve()  # processes get folders of their own
CACHE = pathlib.Path(os.environ.get("CROFT_CACHE_DIR", "/var/cache/croft"))
# The emulated host is slow: what waits for the product's own deadline waits three times as long here.
PATIENCE = 3
FAILURE = re.compile(r" stage=([\w-]+) code=(\w+) component=([\w-]+)")


def mostly_waits(test):
    """Of a test that spends its time waiting for the product's deadlines: several such run at once (tests/e2e/run)."""
    test.mostly_waits = True
    return test


given_ports = set()


def free_port():
    """One that no other call got, and below those that the kernel gives to outgoing connections, which would take it."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in given_ports:
            given_ports.add(port)
            return port


def wait_for(what, seconds, check, every=0.1):
    """Polls until check() is true; its value is returned. AssertionError names `what` when time is up."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(every)


class Process:
    """One of croft's processes. Runs as `user` (a uid) where one is given."""

    def __init__(self, stack, name, args, env=None, user=None, groups=(), group=None):
        self.name, self.args, self.stack = name, [str(a) for a in args], stack
        self.log = stack.dir / "log" / f"{name}.log"
        self.env = {**stack.base_env(), **(env or {})}
        self.identity = {} if user is None else {"user": user, "group": group or user, "extra_groups": list(groups)}
        self.popen = None

    def start(self):
        with open(self.log, "ab") as log:
            self.popen = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env,
                                          start_new_session=True, cwd="/", umask=0o027 if self.identity else -1,
                                          **self.identity)
        return self

    def running(self):
        return self.popen is not None and self.popen.poll() is None

    def kill9(self):
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(30)

    def stop(self, seconds=30):
        if self.running():
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill9()
        return self.popen.returncode if self.popen else None

    def tail(self, n=40):
        try:
            return f"--- {self.name}\n" + "".join(open(self.log, errors="replace").readlines()[-n:])
        except FileNotFoundError:
            return ""


class Helper(Process):
    """croft-node-helper, as root, for the agent of `user` that is the stack's "node1": network slots of `pool`, and VMMs
    (`vmm`) with `uids` uids from `first_uid` in control groups of their own."""

    def __init__(self, stack, user, vmm, pool, spares, first_uid, uids, *more):
        self.socket, self.run_dir = stack.dir / "helper.sock", stack.dir / "helper"
        self.groups = pathlib.Path("/sys/fs/cgroup") / stack.dir.name
        super().__init__(stack, "helper", [
            BIN / "croft-node-helper", f"--helper-socket={self.socket}", f"--helper-user={user}",
            f"--helper-run={self.run_dir}", f"--network-pool={pool}", f"--network-spares={spares}",
            f"--group-root={self.groups}", f"--vmm-path={BIN / vmm}", f"--vmm-run={stack.dir}/node1/run",
            f"--vmm-uid-first={first_uid}", f"--vmm-uid-count={uids}", *more])

    def listen(self):
        self.start()
        wait_for("the helper listens", 30 * PATIENCE, self.socket.exists)

    def clear(self):
        """Ends it, and what it leaves on purpose for the next one."""
        self.stop()
        subprocess.run(f"for n in {self.run_dir}/netns/*; do umount $n; done; umount {self.run_dir}/netns; nft delete table inet croft;"
                       " ip -o link show group 7282 | cut -d: -f2 | cut -d@ -f1 | xargs -rn1 ip link del;"
                       f" rmdir {self.groups}/* {self.groups}", shell=True, capture_output=True)


class Node:
    def __init__(self, stack, name, options=None, user=None, groups=(), pool="default", gateway=True, scheduler=None,
                 gateway_user=None, programs=None):
        """`gateway_user`: the gateway is this one, and what it shares with the agent is the group `user`, as the units have it."""
        self.stack, self.name, self.user, self.groups, self.bin = stack, name, user, groups, programs or stack.bin
        self.dir = stack.dir / name
        self.state, self.cache, self.run = self.dir / "state", self.dir / "cache", self.dir / "run"
        for d in (self.state, self.cache, self.run):
            d.mkdir(parents=True)
            if user is not None:
                os.chown(d, user, user)
        if gateway_user is not None:
            os.chown(self.run, 0, user)
            self.run.chmod(0o1770)
        self.options = {"state": self.state, "cache": self.cache, "run": self.run,
                        "guest-kernel": CACHE / "guest-kernel/vmlinux",
                        "guest-initramfs": CACHE / "guest-kernel/initramfs.img",
                        "guest-kernel-timeout-ms": 180000, "guest-guest-timeout-ms": 180000,
                        "vmm-timeout-ms": 60000, "limits-disk-floor-percent": 0,
                        "guest-canary-period": "0s", **(options or {})}  # a VM that no test asked for is in the way of most
        self.gateway_port = free_port()
        self.agent = Process(stack, f"{name}-agent", self.argv("run"), user=user, groups=groups)
        self.gateway = Process(stack, f"{name}-gateway", [self.bin / "croft-gateway", "run", "--run", self.run,
                                                          "--gateway-port", self.gateway_port],
                               user=gateway_user or user, group=user, groups=groups if gateway_user is None else ())
        self.id = None

    def argv(self, verb, **more):
        args = [self.bin / "croft-node", verb]
        for key, value in {**self.options, **more}.items():
            args += [f"--{key}={value}"]
        return [str(a) for a in args]

    def join(self, token_text=None, ok=True):
        token = self.dir / "token"
        token.write_text(token_text or self.stack.token())
        token.chmod(0o600)
        if self.user is not None:
            os.chown(token, self.user, self.user)
        identity = {} if self.user is None else {"user": self.user, "group": self.user}
        done = subprocess.run(self.argv("join", **{"token-file": token}), capture_output=True, text=True, timeout=120,
                              env=self.stack.base_env(), cwd="/", **identity)
        if ok:
            assert done.returncode == 0, done.stderr + self.stack.tails()
        return done

    def start(self, ready=True):
        if not self.gateway.running():
            self.gateway.start()
        self.start_agent()
        if ready:
            self.wait_ready()
        return self

    def start_agent(self):
        self.log_size = self.agent.log.stat().st_size if self.agent.log.exists() else 0
        self.agent.start()

    def said(self, text):
        """Whether the agent logged `text` since its last start."""
        with open(self.agent.log, "rb") as log:
            log.seek(self.log_size)
            return text.encode() in log.read()

    def wait_ready(self):
        """The agent that was started last was welcomed, and the scheduler counts its node as ready."""
        wait_for(f"{self.name} is welcomed", 30 * PATIENCE, lambda: self.said("welcomed by the scheduler"))
        wait_for(f"{self.name} is ready", 30 * PATIENCE,
                 lambda: any(n["state"] == "ready" for n in self.stack.api("GET", "/v1/nodes")))

    def stop(self):
        self.agent.stop()
        self.gateway.stop()


class Stack:
    """Use as a context manager. keep=True leaves the directory for a look."""

    def __init__(self, user=None, scheduler_options=None, programs=None):
        """`programs`: where scheduler, command line and, unless a node has its own, agents and gateways are from."""
        self.bin = programs or BIN
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="croft-e2e-", dir="/tmp"))
        self.dir.chmod(0o755)
        self.user = user
        for sub in ("log", "scheduler"):
            (self.dir / sub).mkdir()
            if user is not None:
                os.chown(self.dir / sub, user, user)
        self.api_port, self.link_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.api_port}"
        self.state = self.dir / "scheduler" / "state"
        self.scheduler_options = scheduler_options or {}
        self.nodes, self.key, self.provider_key, self.scheduler = [], None, None, None

    def base_env(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CROFT_", "E2B_", "XDG_"))}
        env.update(HOME=str(self.dir), LANG="C.UTF-8")
        for name in ("CROFT_LOG", "CROFT_ORIGINS_FILE"):
            if name in os.environ:
                env[name] = os.environ[name]
        return env

    def client_env(self):
        return {**self.base_env(), "CROFT_API_URL": self.url, "CROFT_API_KEY": self.key or ""}

    def __enter__(self):
        identity = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        done = subprocess.run([self.bin / "croft-scheduler", "init", "--state", self.state, "-o", "json"],
                              capture_output=True, text=True, env=self.base_env(), timeout=60, cwd="/", **identity)
        assert done.returncode == 0, done.stderr
        keys = json.loads(done.stdout)
        self.provider_key, self.key = keys["provider_key"], keys["provider_key"]
        self.tenant_key = keys.get("tenant_key")
        args = [self.bin / "croft-scheduler", "run", "--state", self.state, "--api-port", self.api_port,
                "--link-port", self.link_port]
        for k, v in {"fleet-start-timeout": "600s", "fleet-dispatch-timeout": "120s", **self.scheduler_options}.items():
            args += [f"--{k}={v}"]
        self.scheduler = Process(self, "scheduler", args, user=self.user)
        Stack.running.append(self)
        self.start_scheduler()
        return self

    def start_scheduler(self):
        self.scheduler.start()
        wait_for("the scheduler answers", 20 * PATIENCE, self.healthy)

    def healthy(self):
        assert self.scheduler.running(), "the scheduler ended\n" + self.scheduler.tail()
        try:
            return self.api("GET", "/health", check=False) is not None
        except (OSError, AssertionError):
            return False

    def __exit__(self, kind, value, trace):
        if kind is not None:
            print(self.tails(), flush=True)
        for node in self.nodes:
            try:
                for sandbox in node.state.glob("sandboxes/*"):
                    self.cli("sandbox", "kill", sandbox.name)
            except Exception:  # the stack may be broken on purpose
                pass
        for node in self.nodes:
            node.stop()
        self.scheduler.stop()
        self.end_strays()
        Stack.running.remove(self)
        Stack.ended_shut_downs += self.own_shut_downs
        self.keep_failures()
        if kind is None or not os.environ.get("CROFT_TEST_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)

    def keep_failures(self):
        """What the programs' logs have of failures, for tests/origins/check."""
        path = os.environ.get("CROFT_ORIGINS_FILE")
        if not path:
            return
        found = [line for log in (self.dir / "log").glob("*.log") for line in log.read_text(errors="replace").splitlines()]
        found = [FAILURE.search(line) for line in found]
        with open(path, "a") as origins:
            origins.writelines("{1} {0} {2} e2e\n".format(*match.groups()) for match in found if match)

    running, ended_shut_downs = [], 0  # of all stacks

    @property
    def own_shut_downs(self):
        logs = [node.agent.log for node in self.nodes if node.agent.log.exists()]
        return sum(log.read_bytes().count(b"reason=triple-fault") for log in logs)

    @classmethod
    def shut_downs(cls):
        """The guests whose CPU shut down so far in this run, by the agents' own logs."""
        return cls.ended_shut_downs + sum(stack.own_shut_downs for stack in cls.running)

    def end_strays(self):
        """VMMs that outlived a test that failed: ours by their directory, ended by pid."""
        for pid in self.pids_of(self.dir):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    # ---- clients ----
    def metrics(self):
        import urllib.request
        req = urllib.request.Request(self.url + "/metrics", headers={"X-API-Key": self.key or ""})
        with urllib.request.urlopen(req, timeout=60) as answer:
            return answer.read()

    def api(self, method, path, body=None, key=None, check=True):
        import urllib.error
        import urllib.request
        data = None if body is None else json.dumps(body).encode()
        req = urllib.request.Request(self.url + path, data=data, method=method)
        req.add_header("X-API-Key", key or self.key or "")
        if data is not None:
            req.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(req, timeout=300) as answer:
                text = answer.read()
                return json.loads(text) if text else {}
        except urllib.error.HTTPError as error:
            text = error.read()
            if check:
                raise AssertionError(f"{method} {path}: {error.code} {text.decode()}")
            return {"status": error.code, **json.loads(text)}

    def cli(self, *args, timeout=400, stdin=None, env=None):
        return subprocess.run([str(self.bin / "croft"), *map(str, args)], capture_output=True, timeout=timeout, input=stdin,
                              stdin=None if stdin is not None else subprocess.DEVNULL,
                              env={**self.client_env(), **(env or {})}, cwd="/")

    def cli_ok(self, *args, **kw):
        done = self.cli(*args, **kw)
        assert done.returncode == 0, f"croft {' '.join(map(str, args))}: {done.returncode}\n{done.stderr.decode()}{self.tails()}"
        return done.stdout.decode()

    def cli_json(self, *args, **kw):
        return json.loads(self.cli_ok(*args, "-o", "json", **kw))

    def token(self, *args):
        return self.cli_ok("token", "create", "--pool", "default", "--ttl", "1h", *args)

    def template(self, name="tiny", image=None):
        image = image or tiny_image()
        self.cli_ok("template", "import", name, image)

    def node(self, name="node1", start=True, join=True, **kw):
        kw.setdefault("user", self.user)
        node = Node(self, name, **kw)
        self.nodes.append(node)
        if join:
            node.join()
        if start:
            node.start()
        return node

    def create(self, template="tiny", *args):
        """Creates and waits until it runs; returns its id."""
        args = ("sandbox", "create", "--template", template, "--memory", "192M", "--timeout", "2h", *args)
        done = self.cli(*args, "-o", "json")
        if done.returncode != 0 and self.is_glitch(done.stdout + done.stderr):
            return self.cli_json(*args)["sandboxID"]
        assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stderr.decode()}{self.tails()}"
        return json.loads(done.stdout)["sandboxID"]

    glitches = int(os.environ.get("CROFT_GLITCHES", "0"))

    @classmethod
    def is_glitch(cls, answer):
        return b"GUEST_TRIPLE_FAULT" in answer and cls.forgiven("while it booted; that start is made again")

    @classmethod
    def forgiven(cls, what):
        """The CPU of a guest shut down once in some hundred boots under QEMU's emulated SVM. Whose fault that is
        is not known yet (docs/decisions/0002); a run forgives two, says so, and none on a real KVM."""
        if os.environ.get("CROFT_KVM_HOST") != "emulated" or cls.glitches == 2:
            return False
        Stack.glitches += 1
        print("# emulated host: a guest's CPU shut down " + what, flush=True)
        return True

    def failed_create(self, *args, template="tiny"):
        """A create that must fail: returns the failure record of the answer."""
        command = ("sandbox", "create", "--template", template, *args, "-o", "json")
        done = self.cli(*command)
        if self.is_glitch(done.stdout + done.stderr):
            done = self.cli(*command)
        assert done.returncode != 0, "the create succeeded: " + done.stdout.decode()
        for text in (done.stderr, done.stdout):
            try:
                return json.loads(text.decode().strip().splitlines()[-1])["failure"]
            except (ValueError, IndexError, KeyError):
                try:
                    return json.loads(text)["failure"]
                except (ValueError, KeyError):
                    continue
        raise AssertionError("no failure record in: " + done.stderr.decode() + done.stdout.decode())

    # ---- the kernel's view ----
    @staticmethod
    def pids_of(directory, name=None):
        """Processes that have `directory` in their command line or hold a file or socket path below it."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                cmdline = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if name and name not in cmdline.split(" ")[0]:
                    continue
                links = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
            except (OSError, ProcessLookupError):
                continue
            if str(directory) in cmdline or any(str(directory) in link for link in links):
                found.append(int(entry.name))
        return found

    def vmm_pids(self):
        """VMMs of this stack: processes of that program that hold a file below our directory."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or not os.readlink(entry / "exe").endswith(("/croft-vmm", "/stub-vmm")):
                    continue
                links = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(str(self.dir) in link for link in links):
                found.append(int(entry.name))
        return sorted(found)

    def leftovers(self, node):
        """What is left of sandboxes on a node: processes, mounts, sockets, files. Empty lists when clean."""
        run = str(node.run)
        sockets = [line.split()[-1] for line in open("/proc/net/unix") if run in line]
        sockets = [s for s in sockets if len(pathlib.Path(s).parent.name) == 8 and pathlib.Path(s).parent.parent == node.run]
        mounts = [line.split()[4] for line in open("/proc/self/mountinfo") if str(node.dir) in line]
        files = [str(p) for top, what in ((node.run, "????????"), (node.state, "sandboxes/*"))
                 for pattern in (what, what + "/*") for p in top.glob(pattern)]
        return {"vmms": self.vmm_pids(), "sockets": sockets, "mounts": mounts, "files": files}

    def assert_clean(self, node):
        def look():
            try:
                left = self.leftovers(node)
            except FileNotFoundError:  # it goes at this moment
                return False
            self.last = left
            return not any(left.values())
        try:
            wait_for("nothing is left of the sandbox", 10 * PATIENCE, look)
        except AssertionError:
            raise AssertionError(f"left behind: {self.last}")

    def tails(self):
        out = self.scheduler.tail() if self.scheduler else ""
        for node in self.nodes:
            out += node.agent.tail() + node.gateway.tail()
            for log in node.run.glob("*/vmm.log"):
                out += f"--- {log}\n" + log.read_text(errors="replace")[-1000:]
            for log in node.run.glob("*/console*"):
                out += f"--- {log}\n" + log.read_text(errors="replace")[-2000:]
        return out


def tiny_image():
    """A few megabytes of busybox root; made once."""
    image = CACHE / "images/tiny.sqfs"
    assert image.exists(), f"{image} is missing: tests/lib/tiny-image makes it"
    return image
