# SPDX-License-Identifier: Apache-2.0
"""A client of croft-vmm's control socket with nothing but the standard library: the few messages of vmm.proto
that the tests need, encoded and decoded by field number."""
import os
import select
import socket
import subprocess
import time


def varint(n):
    out = b""
    while True:
        out += bytes([n & 0x7F | (0x80 if n > 0x7F else 0)])
        n >>= 7
        if not n:
            return out


def field(number, value):
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    """{number: [values]}, bytes for length-delimited ones."""
    out, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        else:
            n = number()
            value = data[at:at + n]
            at += n
        out.setdefault(key >> 3, []).append(value)
    return out


def failure(data):
    f = fields(data)
    return {"code": f.get(1, [b""])[0].decode(), "errno": f.get(2, [0])[0], "message": f.get(3, [b""])[0].decode(),
            "fields": {fields(x).get(1, [b""])[0].decode(): fields(x).get(2, [b""])[0].decode() for x in f.get(4, [])}}


def exit_record(data):
    f = fields(data)
    return {"reason": f.get(1, [0])[0], "userspace": bool(f.get(2, [0])[0]),
            "failure": failure(f[4][0]) if 4 in f else None, "detail": f.get(5, [b""])[0].decode()}


EVENTS = {1: "started", 2: "userspace", 3: "panicked", 4: "exiting"}


class Vmm:
    """One croft-vmm process and one connection to it."""

    def __init__(self, program, run):
        self.run, self.events, self.id = run, [], 0
        os.makedirs(run, exist_ok=True)
        arguments = ["--run", run]
        if os.environ.get("CROFT_COUNT"):  # see filters
            prefix = [os.path.join(os.path.dirname(program), "seccomp-trace"), "--count", os.environ["CROFT_COUNT"], "--"]
        else:
            prefix = []
        if os.geteuid() == 0:  # its own uid, which has to get through
            os.chmod(run, 0o711)
            arguments += ["--uid", "65534", "--gid", "65534"]
        self.control_path = os.path.join(run, "control.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.path.exists(self.control_path):
            os.unlink(self.control_path)
        listener.bind(self.control_path)
        listener.listen(8)
        self.exit_path = os.path.join(run, "exit")
        exit_fd = os.open(self.exit_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self.log = open(os.path.join(run, "vmm.log"), "wb")
        self.process = subprocess.Popen(
            prefix + [program, "--control-fd", str(listener.fileno()), "--exit-fd", str(exit_fd)] + arguments,
            pass_fds=[listener.fileno(), exit_fd], stderr=self.log, start_new_session=True)
        os.close(exit_fd)
        listener.close()
        self.socket = self.connect()

    @property
    def pid(self):
        """The VMM's, also where a tracer started it (see filters)."""
        if not os.environ.get("CROFT_COUNT"):
            return self.process.pid
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as f:
            return int(f.read().split()[0])

    def connect(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(self.control_path)
        return s

    def send(self, body, fds=()):
        self.id += 1
        message = field(1, self.id) + body
        if fds:
            socket.send_fds(self.socket, [message], list(fds))
        else:
            self.socket.send(message)
        return self.id

    def receive(self, timeout):
        """One message: ("response", fields) or ("event", name); None at the end or after the time."""
        if not select.select([self.socket], [], [], timeout)[0]:
            return None
        data = self.socket.recv(65536)
        if not data:
            return None
        f = fields(data)
        if 1 in f:
            return "response", fields(f[1][0])
        event = fields(f[2][0])
        name = EVENTS[event[1][0]]
        self.events.append((name, event.get(2, [0])[0], exit_record(event[3][0]) if 3 in event else None))
        return "event", name

    def fork(self):
        """(failure, None), or (None, the descriptors: state, memory, layers). They are the caller's."""
        wanted = self.send(field(11, b""))
        while True:
            assert select.select([self.socket], [], [], 60)[0], "no answer"
            data, fds, _, _ = socket.recv_fds(self.socket, 65536, 16)
            assert data, "the VMM ended"
            f = fields(data)
            if 1 not in f or fields(f[1][0]).get(1, [0])[0] != wanted:
                assert not fds
                continue
            f = fields(f[1][0])
            if 2 in f:
                return failure(f[2][0]), None
            forked = fields(f[5][0])
            self.copied_pages = forked.get(2, [0])[0]
            assert len(fds) == 2 + forked.get(1, [0])[0], (fds, forked)
            return None, fds

    def call(self, body, fds=(), timeout=60):
        wanted = self.send(body, fds)
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            got = self.receive(until - time.monotonic())
            if got is None:
                raise RuntimeError("no answer")
            if got[0] == "response" and got[1].get(1, [0])[0] == wanted:
                return got[1]
        raise RuntimeError("no answer in time")

    def start(self, kernel, initramfs=None, disks=(), vcpus=1, memory=256, cmdline="", cid=0, console=None,
              kvm="/dev/kvm", tap=None, mac=b"", balloon=False, restore=None, forked=None, prepared=False, prepare=False):
        """disks: (path, read_only, serial). restore: (state, memory, layers...) in place of kernel and initramfs; forked: or what fork()
        gave. prepare: the shell of such a VM, for which `prepared` then brings the rest. Returns None or the failure. `tap`
        and `forked` stay open."""
        fds = [] if prepared else [os.open(kvm, os.O_RDWR)]
        fds += [] if prepare else [os.dup(fd) for fd in forked] if forked else [os.open(path, os.O_RDONLY) for path in restore or (kernel,)]
        body = field(1, vcpus) + field(2, memory) + field(3, cmdline)
        if initramfs:
            fds.append(os.open(initramfs, os.O_RDONLY))
            body += field(4, True)
        for path, read_only, serial in disks:
            if not prepare:
                fds.append(os.open(path, os.O_RDONLY if read_only else os.O_RDWR))
            body += field(5, field(1, read_only) + field(2, serial))
        if cid:
            self.vsock_path = os.path.join(self.run, "vsock.sock")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(self.vsock_path)
            listener.listen(64)
            fds.append(listener.detach())
            body += field(6, field(1, cid) + field(2, self.vsock_path))
        if console:
            fds.append(os.open(console, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            body += field(7, True)
        if tap is not None:
            fds.append(os.dup(tap))
            body += field(8, field(1, mac))
        if balloon:
            body += field(9, b"")
        if restore or forked or prepare:
            body += field(10, True)
        if len(forked or restore or ()) > 2:
            body += field(11, len(forked or restore) - 2)
        if forked:
            body += field(12, True)
        if prepared:
            body += field(13, True)
        answer = self.call(field(12 if prepare else 2, body), fds)
        for fd in fds:
            os.close(fd)
        return failure(answer[2][0]) if 2 in answer else None

    def stats(self):
        f = fields(self.call(field(5, b""))[4][0])
        names = {1: "memory_mib", 2: "vcpus", 3: "vcpu_usec", 4: "kvm_runs", 5: "io_exits", 6: "mmio_exits",
                 7: "console_bytes", 8: "console_dropped", 9: "bad_gpa", 10: "resets_needed", 12: "vsock_connections",
                 13: "vsock_refused", 14: "rng_bytes"}
        out = {name: f.get(number, [0])[0] for number, name in names.items()}
        net = {1: "rx_frames", 2: "rx_bytes", 3: "rx_no_room", 4: "rx_invalid", 5: "tx_frames", 6: "tx_bytes",
               7: "tx_refused", 8: "tx_invalid", 9: "tx_wrong_mac", 10: "throttled"}
        if 15 in f:
            out["net"] = {name: fields(f[15][0]).get(number, [0])[0] for number, name in net.items()}
        if 16 in f:
            balloon = fields(f[16][0])
            names = {1: "target", 2: "pages", 3: "inflated", 4: "deflated", 5: "refused", 6: "failed", 7: "guest_us"}
            out["balloon"] = {name: balloon.get(number, [0])[0] for number, name in names.items()}
            guest = [fields(x) for x in balloon.get(8, [])]
            out["balloon"]["guest"] = {x.get(1, [0])[0]: x.get(2, [0])[0] for x in guest}
        disk = {1: "reads", 2: "writes", 3: "read_bytes", 4: "written_bytes", 5: "flushes", 6: "errors", 7: "discards",
                8: "zeroes"}
        out["disks"] = [{name: fields(d).get(number, [0])[0] for number, name in disk.items()} for d in f.get(11, [])]
        return out

    def stop(self, force=True, grace_ms=0):
        return self.call(field(3, field(1, force) + field(2, grace_ms)))

    def set_balloon(self, mib):
        """None or the failure."""
        answer = self.call(field(6, field(1, mib)))
        return failure(answer[2][0]) if 2 in answer else None

    def new_generation(self):
        answer = self.call(field(7, b""))
        return failure(answer[2][0]) if 2 in answer else None

    def pause(self):
        """None or the failure."""
        answer = self.call(field(8, b""))
        return failure(answer[2][0]) if 2 in answer else None

    def resume(self):
        answer = self.call(field(9, b""))
        return failure(answer[2][0]) if 2 in answer else None

    def snapshot_begin(self, state, memory, differential=False):
        fds = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600) for path in (state, memory)]
        number = self.send(field(10, field(1, True) if differential else b""), fds)
        for fd in fds:
            os.close(fd)
        return number

    def snapshot_end(self, number, timeout=120):
        """None or the failure."""
        until = time.monotonic() + timeout
        while True:
            got = self.receive(until - time.monotonic())
            assert got, "no answer"
            if got[0] == "response" and got[1].get(1, [0])[0] == number:
                return failure(got[1][2][0]) if 2 in got[1] else None

    def snapshot(self, state, memory):
        return self.snapshot_end(self.snapshot_begin(state, memory))

    def state(self):
        status = fields(self.call(field(4, b""))[3][0])
        return {1: "waiting", 2: "running", 3: "stopping", 4: "paused", 5: "prepared"}[status[1][0]]

    def wait_event(self, name, timeout):
        until = time.monotonic() + timeout
        while not any(e[0] == name for e in self.events):
            left = until - time.monotonic()
            if left <= 0 or self.receive(left) is None:
                return False
        return True

    def wait(self, timeout=60):
        """(status, record)"""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        with open(self.exit_path, "rb") as f:
            data = f.read()
        return status, exit_record(data) if data else None

    def vsock_begin(self, port, timeout=30):
        """A stream that asks for the guest's port; vsock_end() has the answer."""
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(timeout)
        s.connect(self.vsock_path)
        s.sendall(b"CONNECT %d\n" % port)
        return s

    @staticmethod
    def vsock_end(s):
        """The port on our side, or 0: the guest does not accept."""
        line = b""
        while not line.endswith(b"\n"):
            try:
                byte = s.recv(1)
            except ConnectionResetError:
                byte = b""
            if not byte:
                return 0
            line += byte
        assert line.startswith(b"OK "), line
        return int(line[3:])

    def vsock(self, port, timeout=30):
        """A stream to the guest's port, or None when it refuses."""
        s = self.vsock_begin(port, timeout)
        if self.vsock_end(s):
            return s
        s.close()
        return None
