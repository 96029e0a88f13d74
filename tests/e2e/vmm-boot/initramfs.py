#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""initramfs.py KERNEL-DIR PROBE OUT: an uncompressed initramfs with PROBE as /init and the modules that the
probe's devices need, in the order of modules.dep. KERNEL-DIR may be "-": no modules."""
import os
import sys

WANTED = ["virtio_mmio", "virtio_blk", "vmw_vsock_virtio_transport", "virtio-rng", "pvpanic-mmio",
          "virtio_net", "virtio_balloon"]


def module_order(directory):
    deps, paths, order = {}, {}, []
    with open(os.path.join(directory, "modules.dep")) as f:
        for line in f:
            path, _, rest = line.partition(":")
            deps[path] = rest.split()
            paths[os.path.basename(path).split(".")[0].replace("_", "-")] = path

    def visit(path):
        # what a module needs stands in the order in which it is needed last: the reverse is the load order
        for need in reversed(deps[path]):
            visit(need)
        if path not in order:
            order.append(path)

    for name in WANTED:
        visit(paths[name.replace("_", "-")])
    return order


def cpio(out, name, mode, data=b""):
    def pad():
        out.write(b"\0" * (-out.tell() % 4))

    encoded = name.encode() + b"\0"
    cpio.inode += 1
    fields = [cpio.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0]
    out.write(b"070701" + b"".join(b"%08x" % x for x in fields) + encoded)
    pad()
    out.write(data)
    pad()


cpio.inode = 0


def main():
    kernel, probe, target = sys.argv[1:]
    directory, order = "", []
    if kernel != "-":
        with open(os.path.join(kernel, "version")) as f:
            directory = os.path.join(kernel, "lib/modules", f.read().strip())
        order = module_order(directory)
    with open(target, "wb") as out:
        for name in ("dev", "proc", "sys", "m"):
            cpio(out, name, 0o040755)
        with open(probe, "rb") as f:
            cpio(out, "init", 0o100755, f.read())
        for path in order:
            with open(os.path.join(directory, path), "rb") as f:
                cpio(out, "m/" + os.path.basename(path), 0o100644, f.read())
        cpio(out, "modules", 0o100644, "".join("/m/%s\n" % os.path.basename(p) for p in order).encode())
        cpio(out, "TRAILER!!!", 0)


main()
