"""XXH3 (64 bits, no seed), the hash that Kafka keeps of the topics a group reads (ConsumerGroupMetadata records).

Only so that a group that moves between servers does not rebalance for nothing: small inputs, no need for speed.
"""

from __future__ import annotations

from struct import unpack_from

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_PMX_1, _PMX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_SECRET_STEP = 8
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // _SECRET_STEP


def xxh3_64(data: bytes) -> int:
    length = len(data)
    if length <= 16:
        return _up_to_16(data, length)
    if length <= 128:
        return _up_to_128(data, length)
    if length <= 240:
        return _up_to_240(data, length)
    return _long(data, length)


def _u32(data: bytes, pos: int) -> int:
    return int(unpack_from("<I", data, pos)[0])


def _u64(data: bytes, pos: int) -> int:
    return int(unpack_from("<Q", data, pos)[0])


def _up_to_16(data: bytes, length: int) -> int:
    if length > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, length - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((length + swapped + high + _fold(low, high)) & _M64)
    if length >= 4:
        combined = (_u32(data, length - 4) + (_u32(data, 0) << 32)) & _M64
        return _rrmxmx(combined ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16), length)
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[length - 1] | length << 8
        return _avalanche64(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _up_to_128(data: bytes, length: int) -> int:
    total = length * _P64_1
    for step in range((length - 1) // 32, -1, -1):
        total += _mix16(data, step * 16, step * 32)
        total += _mix16(data, length - (step + 1) * 16, step * 32 + 16)
    return _avalanche(total & _M64)


def _up_to_240(data: bytes, length: int) -> int:
    total = length * _P64_1
    for step in range(8):
        total += _mix16(data, step * 16, step * 16)
    total = _avalanche(total & _M64)
    for step in range(8, length // 16):
        total += _mix16(data, step * 16, (step - 8) * 16 + 3)
    total += _mix16(data, length - 16, 136 - 17)
    return _avalanche(total & _M64)


def _long(data: bytes, length: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    stripes = (length - 1) // _STRIPE
    for stripe in range(stripes):
        in_block = stripe % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE, in_block * _SECRET_STEP)
        if in_block == _STRIPES_PER_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, length - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = length * _P64_1
    for pair in range(4):
        low = lanes[pair * 2] ^ _u64(_SECRET, 11 + pair * 16)
        total += _fold(low, lanes[pair * 2 + 1] ^ _u64(_SECRET, 19 + pair * 16))
    return _avalanche(total & _M64)


def _accumulate(lanes: list[int], data: bytes, pos: int, secret_pos: int) -> None:
    for lane in range(8):
        value = _u64(data, pos + lane * 8)
        keyed = value ^ _u64(_SECRET, secret_pos + lane * 8)
        lanes[lane ^ 1] = (lanes[lane ^ 1] + value) & _M64
        lanes[lane] = (lanes[lane] + (keyed & _M32) * (keyed >> 32)) & _M64


def _scramble(lanes: list[int]) -> None:
    for lane in range(8):
        value = lanes[lane] ^ lanes[lane] >> 47 ^ _u64(_SECRET, len(_SECRET) - _STRIPE + lane * 8)
        lanes[lane] = value * _P32_1 & _M64


def _mix16(data: bytes, pos: int, secret_pos: int) -> int:
    low = _u64(data, pos) ^ _u64(_SECRET, secret_pos)
    return _fold(low, _u64(data, pos + 8) ^ _u64(_SECRET, secret_pos + 8))


def _fold(first: int, second: int) -> int:
    product = first * second
    return (product & _M64) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value = (value ^ value >> 37) * _PMX_1 & _M64
    return value ^ value >> 32


def _avalanche64(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _M64
    value = (value ^ value >> 29) * _P64_3 & _M64
    return value ^ value >> 32


def _rrmxmx(value: int, length: int) -> int:
    value ^= (value << 49 | value >> 15) & _M64 ^ (value << 24 | value >> 40) & _M64
    value = value * _PMX_2 & _M64
    value ^= (value >> 35) + length
    value = value * _PMX_2 & _M64
    return value ^ value >> 28
