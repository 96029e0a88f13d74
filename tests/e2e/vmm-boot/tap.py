# SPDX-License-Identifier: Apache-2.0
"""A network namespace of its own with one TAP in it, for tests: made and used by one thread, since a namespace
belongs to a thread. Needs root, and the kernel's tun."""
import ctypes
import fcntl
import os
import queue
import socket
import struct
import threading

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8913, 0x8914, 0x8916, 0x891C
IFF_UP = 1


class Namespace:
    """run(f) calls f() in the namespace; `fd` is the TAP's descriptor."""

    def __init__(self, address, netmask="255.255.255.0", flags=IFF_TAP | IFF_NO_PI | IFF_VNET_HDR):
        self.work = queue.Queue()
        threading.Thread(target=self.loop, daemon=True).start()
        self.fd = self.run(lambda: self.make(address, netmask, flags))

    def loop(self):
        while True:
            f, done = self.work.get()
            try:
                done.put((f(), None))
            except BaseException as e:  # handed to whoever waits
                done.put((None, e))

    def run(self, f):
        done = queue.Queue()
        self.work.put((f, done))
        value, error = done.get()
        if error:
            raise error
        return value

    def make(self, address, netmask, flags):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        fd = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"tap0", flags))
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

        def in_addr(text):
            return struct.pack("16sHH4s8x", b"tap0", socket.AF_INET, 0, socket.inet_aton(text))

        fcntl.ioctl(s, SIOCSIFADDR, in_addr(address))
        fcntl.ioctl(s, SIOCSIFNETMASK, in_addr(netmask))
        for name in (b"lo", b"tap0"):
            flags = struct.unpack("16sH22x", fcntl.ioctl(s, SIOCGIFFLAGS, struct.pack("16s24x", name)))[1]
            fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH22x", name, flags | IFF_UP))
        s.close()
        return fd

    def connect(self, host, port, timeout=60):
        def go():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            s.settimeout(timeout)
            s.connect((host, port))
            return s
        return self.run(go)
