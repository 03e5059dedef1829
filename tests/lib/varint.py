"""Seven bits a byte, the lowest first, as PMTiles directories have their numbers."""


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)
