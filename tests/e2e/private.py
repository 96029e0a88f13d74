# SPDX-License-Identifier: Apache-2.0
"""What left a node over its link, as tests/lib/link-tap.c kept it before it was encrypted."""
import struct

STREAMS = range(50, 54)  # of proto/link.proto's Envelope: what a client relays through the scheduler


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def body_of(message):
    """The number of the last field of 10 or more: which body an Envelope has. None: it is no Envelope."""
    at, found = 0, None
    try:
        while at < len(message):
            tag, at = varint(message, at)
            if tag & 7 == 2:
                size, at = varint(message, at)
                at += size
            elif tag & 7 == 0:
                _, at = varint(message, at)
            else:
                return None
            found = tag >> 3 if tag >> 3 >= 10 else found
    except IndexError:
        return None
    return found if at == len(message) else None


def sent(path):
    """(whether it is of a relayed stream, bytes) of each."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        size, = struct.unpack_from(">I", data, at)
        message = data[at + 4:at + 4 + size]
        assert len(message) == size, "the tap's file ends in the middle"
        yield body_of(message) in STREAMS, message
        at += 4 + size
