"""CRC-32C as docs/formats has it, for programs that write files of a service themselves."""

TABLE = []
for _i in range(256):
    for _ in range(8):
        _i = _i >> 1 ^ (0x82F63B78 if _i & 1 else 0)
    TABLE.append(_i)


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = c >> 8 ^ TABLE[(c ^ b) & 0xFF]
    return c ^ 0xFFFFFFFF
