# SPDX-License-Identifier: Apache-2.0
"""A node whose VMM is the stub (tests/lib/stub-vmm.c), on this machine and without KVM: real scheduler, agent, gateway and
helper, the last with real network slots in a network and a mount namespace of this process's own, so that all of it goes
with the process. Root."""
import ctypes
import os
import pathlib
import subprocess

import stack as st

CLONE_NEWNS, CLONE_NEWNET, MS_REC_PRIVATE = 0x20000, 0x40000000, 0x4000 | 0x40000
USER, POOL = 4242, "198.18.0.0/16"


def own_namespaces():
    """OSError where this process may not have them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) or libc.mount(b"", b"/", None, MS_REC_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no namespaces")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


class StubHost:
    """Use as a context manager, in namespaces of its own. Nothing but the scheduler is started."""

    def __init__(self, spares, scheduler_options=None):
        self.stack, self.spares = st.Stack(user=USER, scheduler_options=scheduler_options), spares

    def __enter__(self):
        self.stack.__enter__()
        self.helper = st.Helper(self.stack, USER, "stub-vmm", POOL, self.spares, 71000, 64)
        # VMs are the agent's own here: they are about the network, and this machine may have no cgroup v2
        self.helper.args = [a for a in self.helper.args if not a.startswith(("--vmm-uid", "--group-root"))]
        self.helper.args.append(f"--group-root={self.stack.dir}/no-groups")
        image, kvm = self.stack.dir / "well.img", self.stack.dir / "kvm"
        image.write_bytes(b"hsqsstub:well\n".ljust(4096, b"\0"))
        kvm.write_text("kvm")
        os.chown(kvm, USER, USER)
        self.stack.template("well", image)
        self.node = self.stack.node(start=False, options={
            "helper-socket": self.helper.socket, "vmm-path": st.BIN / "stub-vmm", "vmm-kvm": kvm, "vmm-probe": "no",
            "guest-kernel": kvm, "guest-initramfs": "", "limits-memory-mib": 1 << 20, "limits-disk-mib": 1 << 30,
            "limits-sandboxes": 4096})
        self.node.log_size = 0
        return self

    def __exit__(self, *what):
        self.stack.__exit__(*what)
        self.helper.clear()

    def kernel_counts(self):
        """Links of croft's in the host, and namespaces that are mounted."""
        links = subprocess.run(["ip", "-o", "link", "show", "group", "7282"], capture_output=True, text=True).stdout
        mounts = pathlib.Path("/proc/self/mountinfo").read_text().count(f" {self.helper.run_dir}/netns/s")
        return len(links.splitlines()), mounts
