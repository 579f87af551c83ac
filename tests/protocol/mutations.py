"""Damage to good bytes: cut, changed, doubled, and the lengths that have broken decoders before."""

from __future__ import annotations

from random import Random

from ottla.protocol.primitives import uvarint

INTERESTING = [b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 10]
INTERESTING += [
    uvarint(2**31 - 1),
    uvarint(2**32 - 1),
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x00",
    b"\x80\x80\x80\x80\x80\x00",
]


def mutated(random: Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = random.randbytes(1)
            case 2:
                piece = random.choice(INTERESTING)
                data[at : at + len(piece)] = piece
            case 3:
                data[at:at] = random.choice(INTERESTING)
            case 4:
                del data[at : at + random.randrange(1, 9)]
            case 5:
                data[at:at] = data[: random.randrange(len(data) + 1)]
    return bytes(data)
