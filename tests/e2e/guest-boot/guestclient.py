# SPDX-License-Identifier: Apache-2.0
"""A client of croft-guest (guest.proto) with nothing but the standard library."""
import os
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vmm-boot"))
from vmmclient import field, fields  # noqa: E402


def frame(body):
    return struct.pack(">I", len(body)) + body


def read_frame(stream):
    """One frame, None at the end."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
        want = 4 if len(data) < 4 else 4 + struct.unpack(">I", data[:4])[0]
        got = stream.recv(want - len(data))
        if not got:
            return None
        data += got
    return data[4:]


def text(f, number):
    return f.get(number, [b""])[0].decode(errors="replace")


def failure(data):
    f = fields(data)
    return {"code": text(f, 1), "errno": f.get(2, [0])[0], "message": text(f, 3)}


class Hello:
    """Listens where the guest's connection to port 1 comes out."""

    def __init__(self, vsock_path):
        self.path = vsock_path + "_1"
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o666)  # the VMM has a uid of its own
        self.listener.listen(4)

    def wait(self, timeout):
        self.listener.settimeout(timeout)
        stream, _ = self.listener.accept()
        stream.settimeout(timeout)
        f = fields(read_frame(stream))
        stream.close()
        return {"version": f.get(1, [0])[0], "boot_id": text(f, 3), "kernel": text(f, 4),
                "failure": failure(f[5][0]) if 5 in f else None, "uptime_us": f.get(6, [0])[0]}


class Guest:
    def __init__(self, vmm):
        self.vmm = vmm

    def open(self, body):
        stream = self.vmm.vsock(1024)
        assert stream is not None, "croft-guest refuses"
        stream.settimeout(120)
        stream.sendall(frame(body))
        return stream

    def ask(self, body):
        """The one answer: (field number of GuestEvent, fields)."""
        stream = self.open(body)
        answer = fields(read_frame(stream))
        stream.close()
        number = next(iter(answer))
        return number, fields(answer[number][0])

    def info(self):
        number, f = self.ask(field(1, b""))
        assert number == 3, number
        return {"boot_id": text(f, 1), "uptime_us": f.get(2, [0])[0], "memory_total_kib": f.get(6, [0])[0]}

    def configure(self, hostname="", env=(), user="", realtime_us=0):
        body = field(1, hostname) + b"".join(field(2, field(1, n) + field(2, v)) for n, v in env)
        return self.ask(field(2, body + field(3, user) + field(4, realtime_us)))

    def start(self, cmd, args=(), user="", pty=None, stdin=False, tag="", cwd="", traceparent=""):
        body = field(1, cmd) + b"".join(field(2, a) for a in args) + field(5, user)
        if cwd:
            body += field(4, cwd)
        if stdin:
            body += field(6, True)
        if pty:
            body += field(7, field(1, pty[0]) + field(2, pty[1]))
        return self.open(field(3, body + field(8, tag) + field(10, traceparent)))

    def run(self, script, **more):
        return collect(self.start("/bin/sh", ("-c", script), **more))

    def power_off(self):
        return self.ask(field(10, b""))


def collect(stream):
    """{"out", "err", "pty", "code", "signal", "failure", "pid"} of a stream, to its end."""
    result = {"out": b"", "err": b"", "pty": b"", "code": None, "signal": 0, "failure": None, "pid": 0}
    while True:
        data = read_frame(stream)
        if data is None:
            break
        event = fields(data)
        number = next(iter(event))
        f = fields(event[number][0])
        if number == 1:
            result["failure"] = failure(event[1][0])
        elif number == 4:
            result["pid"] = f[1][0]
        elif number == 5:
            result[{1: "out", 2: "err", 3: "pty"}[f[1][0]]] += f.get(2, [b""])[0]
        elif number == 6:
            result["code"] = f.get(2, [0])[0] if f.get(1, [0])[0] else None
            result["signal"] = f.get(3, [0])[0]
            result["timed_out"] = bool(f.get(4, [0])[0])
    stream.close()
    return result


def now_us():
    return time.time_ns() // 1000
