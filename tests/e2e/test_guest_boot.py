# SPDX-License-Identifier: Apache-2.0
"""croft-guest in croft-vmm alone, without agent and gateway: from the boot marker to the power-off, and the roots
that it cannot use. One VM serves most tests."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import stack as st

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "guest-boot"))
from guestclient import Guest, Hello, collect, field, frame, now_us, read_frame  # noqa: E402
from vmmclient import Vmm  # noqa: E402

POWEROFF = 10  # VmmExitReason


class Machine:
    """A VM with `image` as its read-only disk and, unless told otherwise, an empty ext4 as its other."""

    def __init__(self, image, disk=True, kernel="guest-kernel", disk_mib=256, initramfs=True, **more):
        self.dir = tempfile.mkdtemp(prefix="croft-guest-boot-")
        self.console = os.path.join(self.dir, "console")
        shutil.copy(image, os.path.join(self.dir, "image"))
        disks = [(os.path.join(self.dir, "image"), True, "image")]
        path = os.path.join(self.dir, "disk")
        with open(path, "wb") as f:
            f.truncate(disk_mib << 20)
        if disk:
            subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-F", path], check=True)
        disks.append((path, False, "disk"))
        self.vmm = Vmm(str(st.BIN / "croft-vmm"), self.dir)
        self.hello = Hello(os.path.join(self.dir, "vsock.sock"))
        first = str(st.CACHE / kernel / "initramfs.img") if initramfs else None
        refused = self.vmm.start(str(st.CACHE / kernel / "vmlinux"), first, disks, cid=3, console=self.console, **more)
        assert refused is None, refused
        self.guest = Guest(self.vmm)

    def greet(self):
        try:
            return self.hello.wait(180)
        except OSError as error:
            raise AssertionError(f"no hello: {error}\n{self.tail()}") from error

    def tail(self):
        with open(self.console, errors="replace") as f:
            return f.read()[-4000:]

    def close(self):
        if self.vmm.process.poll() is None:
            self.vmm.process.kill()
        self.vmm.process.wait()
        shutil.rmtree(self.dir)


def padded(path, data):
    """A file of whole sectors."""
    with open(path, "wb") as f:
        f.write(data)
        f.truncate(-(-len(data) // 512) * 512)
    return path


class GuestBoot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Machine(st.CACHE / "images/tiny.sqfs")
        try:
            cls.said = cls.machine.greet()
            cls.guest = cls.machine.guest
            cls.guest.configure("sandbox-1", [("CONFIGURED", "yes")], "user", now_us())
        except BaseException:
            cls.machine.close()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.machine.close()

    def ok(self, script, **more):
        done = self.guest.run(script, **more)
        self.assertEqual((done["code"], done["err"]), (0, b""), done)
        return done["out"].decode()

    def test_hello(self):
        self.assertIsNone(self.said["failure"])
        self.assertEqual(self.said["version"], 1)
        self.assertEqual(self.said["boot_id"], self.ok("cat /proc/sys/kernel/random/boot_id").strip())
        self.assertEqual(self.said["kernel"], self.ok("uname -r").strip())
        self.assertTrue(self.machine.vmm.wait_event("userspace", 1))

    def test_uptime_rises(self):
        one, two = self.guest.info(), self.guest.info()
        self.assertEqual(one["boot_id"], two["boot_id"])
        self.assertGreater(two["uptime_us"], one["uptime_us"])

    def test_root(self):
        self.assertEqual(self.ok("echo changed >/etc/motd; cat /etc/motd; rm /bin/vi; ls /bin/vi 2>&1 | wc -l", user="root"),
                         "changed\n1\n")
        mounts = {line.split()[1]: line.split()[2] for line in self.ok("cat /proc/mounts").splitlines()}
        wanted = {"/": "overlay", "/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs", "/dev/pts": "devpts",
                  "/dev/shm": "tmpfs", "/run": "tmpfs", "/sys/fs/cgroup": "cgroup2"}
        self.assertEqual(wanted, {k: mounts.get(k) for k in wanted})
        self.assertEqual(self.ok("echo x >/dev/shm/x; cat </dev/fd/0 /dev/shm/x; stat -c %a /dev/shm /tmp"), "x\n1777\n1777\n")

    def test_identity(self):
        self.assertEqual(self.ok("hostname; id -un; id -G; pwd; echo $CONFIGURED $HOME $USER"),
                         "sandbox-1\nuser\n1000 2000\n/home/user\nyes /home/user user\n")
        self.assertIn("sandbox-1", self.ok("cat /etc/hosts /etc/hostname"))
        self.assertLess(abs(int(self.ok("date +%s")) - time.time()), 60)
        self.assertIn("127.0.0.1", self.ok("ip addr show lo"))

    def test_protection(self):
        self.assertEqual(self.ok("cat /proc/1/oom_score_adj /proc/self/oom_score_adj", user="root"), "-1000\n0\n")
        # root of the sandbox cannot end PID 1
        self.ok("kill -9 1; kill -15 1; kill -11 1; true", user="root")
        self.assertEqual(self.ok("echo still"), "still\n")

    def test_exit_signal_stderr(self):
        done = self.guest.run("echo out; echo err >&2; exit 7")
        self.assertEqual((done["out"], done["err"], done["code"]), (b"out\n", b"err\n", 7))
        done = self.guest.run("kill -9 $$")
        self.assertEqual((done["code"], done["signal"]), (None, 9))

    def test_megabyte(self):
        done = self.guest.run("seq 1 150000; seq 1 1000 >&2")
        self.assertEqual(done["out"], "".join(f"{i}\n" for i in range(1, 150001)).encode())
        self.assertEqual(done["err"], "".join(f"{i}\n" for i in range(1, 1001)).encode())

    def test_terminal(self):
        done = self.guest.run("tty; stty size", pty=(132, 43))
        self.assertEqual(done["pty"], b"/dev/pts/0\r\n43 132\r\n")

    def test_stdin(self):
        stream = self.guest.start("/bin/cat", stdin=True)
        read_frame(stream)
        stream.sendall(frame(field(7, field(3, b"hello "))) + frame(field(7, field(3, b"guest"))) + frame(field(8, b"")))
        self.assertEqual(collect(stream)["out"], b"hello guest")

    def test_refusals(self):
        for cmd, more, code in [("/no/such", {}, "COMMAND_NOT_FOUND"), ("/etc/passwd", {}, "COMMAND_NOT_EXECUTABLE"),
                                ("/bin/true", {"cwd": "/no"}, "CWD_NOT_FOUND"), ("/bin/true", {"user": "no"}, "USER_NOT_FOUND")]:
            self.assertEqual(collect(self.guest.start(cmd, **more))["failure"]["code"], code)

    def test_orphans_are_reaped(self):
        self.ok("for i in 1 2 3 4 5 6 7 8; do (sleep 0.1 &) ; done >/dev/null")
        time.sleep(2)
        self.assertEqual(self.ok("ps -o stat | grep -c Z; true").strip(), "0")


class GuestEnds(unittest.TestCase):
    """Each needs a VM of its own."""

    def machine(self, image, **more):
        machine = Machine(image, **more)
        self.addCleanup(machine.close)
        return machine

    def scratch(self, name):
        directory = tempfile.mkdtemp(prefix="croft-guest-image-")
        self.addCleanup(shutil.rmtree, directory)
        return os.path.join(directory, name)

    def check_failed(self, machine, code):
        said = machine.greet()
        self.assertEqual(said["failure"]["code"], code)
        self.assertNotEqual(said["failure"]["errno"], 0)
        # it does not panic, and says the same to whoever asks it to run something
        self.assertEqual(machine.guest.run("true")["failure"]["code"], code)
        self.assertEqual(machine.guest.info()["boot_id"], said["boot_id"])

    def test_erofs_root(self):
        machine = self.machine(st.CACHE / "images/tiny.erofs")
        self.assertIsNone(machine.greet()["failure"])
        done = machine.guest.run("echo changed >/etc/motd && cat /etc/motd && /bin/busybox | head -n 1 && "
                                 "dmesg | grep -c 'erofs.*mounted'", user="root")
        self.assertRegex(done["out"].decode(), r"^changed\nBusyBox .*\n1\n$", done)

    def test_image_is_no_file_system(self):
        self.check_failed(self.machine(padded(self.scratch("image"), b"no file system at all\n" * 5000)), "ROOTFS_UNREADABLE")

    def test_image_without_shell(self):
        image, root = self.scratch("image.sqfs"), self.scratch("root")
        os.makedirs(root + "/etc")
        subprocess.run([st.BIN / "croft-image-pack", root, image], check=True, stdout=subprocess.DEVNULL)
        self.check_failed(self.machine(image), "ROOTFS_INCOMPLETE")

    def test_disk_is_no_file_system(self):
        self.check_failed(self.machine(st.CACHE / "images/tiny.sqfs", disk=False), "GUEST_DISK_UNREADABLE")

    def test_power_off_keeps_what_was_written(self):
        machine = self.machine(st.CACHE / "images/tiny.sqfs")
        self.assertIsNone(machine.greet()["failure"])
        self.assertEqual(machine.guest.run("echo kept >/root/file", user="root")["code"], 0)
        self.assertEqual(machine.guest.power_off()[0], 2)
        status, record = machine.vmm.wait(60)
        self.assertEqual((status, record["reason"]), (POWEROFF, POWEROFF))
        said = subprocess.run(["/usr/sbin/debugfs", "-R", "cat /upper/root/file", os.path.join(machine.dir, "disk")],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        self.assertEqual(said.stdout, b"kept\n")
