#!/usr/bin/env python3
"""Writes a PMTiles v3 archive, independently of the service's own writer.

usage: edge_pack.py FILE ZOOM TEXT [--gzip] [--leaves N] [--bytes N] [--noise N] [--tiles N] [--mvt]

Every tile of zoom 0..ZOOM (the first N in the order of their ids) says "TEXT z/x/y", padded with dots to N bytes, followed by N bytes of noise (the same for the same tile).
With --mvt it is a vector tile: one polygon as large as the tile in the layer "tile", and its property "text" says that.
"""
import gzip
import os
import random
import struct
import sys

from varint import varint


def tile_id(z, x, y):
    base, d, s = (4**z - 1) // 3, 0, 2**z // 2
    while s:
        rx, ry = int(x & s > 0), int(y & s > 0)
        d += s * s * ((3 * rx) ^ ry)
        x, y = x & (s - 1), y & (s - 1)
        if ry == 0:
            if rx:
                x, y = s - 1 - x, s - 1 - y
            x, y = y, x
        s //= 2
    return base + d


def directory(entries):
    out = [varint(len(entries))]
    last = 0
    for i, _, _, _ in entries:
        out.append(varint(i - last))
        last = i
    out += [varint(run) for _, run, _, _ in entries]
    out += [varint(n) for _, _, n, _ in entries]
    out += [varint(at + 1) for _, _, _, at in entries]
    return b"".join(out)


def vector_tile(text):
    field = lambda number, content: varint(number << 3 | 2) + varint(len(content)) + content
    corners = [9, 0, 0, 26, 8192, 0, 0, 8192, 8191, 0, 15]  # move to the origin, three lines (zigzag), close
    feature = field(2, varint(0) * 2) + varint(3 << 3) + varint(3) + field(4, b"".join(varint(n) for n in corners))
    layer = field(1, b"tile") + field(2, feature) + field(3, b"text") + field(4, field(1, text)) + varint(5 << 3) + varint(4096)
    return field(3, varint(15 << 3) + varint(2) + layer)


def main():
    path, zoom, text = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    opts = sys.argv[4:]
    pack = (lambda b: gzip.compress(b, mtime=0)) if "--gzip" in opts else (lambda b: b)
    leaves = int(opts[opts.index("--leaves") + 1]) if "--leaves" in opts else 0
    pad = int(opts[opts.index("--bytes") + 1]) if "--bytes" in opts else 0
    noise = int(opts[opts.index("--noise") + 1]) if "--noise" in opts else 0
    tiles = sorted((tile_id(z, x, y), z, x, y) for z in range(zoom + 1) for x in range(2**z) for y in range(2**z))
    if "--tiles" in opts:
        tiles = tiles[: int(opts[opts.index("--tiles") + 1])]
    entries, data = [], bytearray()
    for i, z, x, y in tiles:
        said = f"{text} {z}/{x}/{y}".encode().ljust(pad, b".") + random.Random(f"{z}/{x}/{y}").randbytes(noise)
        body = pack(vector_tile(said) if "--mvt" in opts else said)
        entries.append((i, 1, len(body), len(data)))
        data += body
    leaf_bytes = b""
    if leaves:
        top = []
        for at in range(0, len(entries), leaves):
            part = pack(directory(entries[at : at + leaves]))
            top.append((entries[at][0], 0, len(part), len(leaf_bytes)))
            leaf_bytes += part
        root = pack(directory(top))
    else:
        root = pack(directory(entries))
    meta = pack(b'{"name":"made by python","vector_layers":[]}')
    code = 2 if "--gzip" in opts else 1
    at = 127
    sections = []
    for n in (len(root), len(meta), len(leaf_bytes), len(data)):
        sections += [at, n]
        at += n
    head = b"PMTiles\x03" + struct.pack("<8Q", *sections) + struct.pack("<3Q", len(tiles), len(entries), len(entries))
    head += bytes([1, code, code, 1, 0, zoom]) + struct.pack("<4i", -1800000000, -850000000, 1800000000, 850000000)
    head += bytes([0]) + struct.pack("<2i", 0, 0)
    assert len(head) == 127
    with open(path + ".making", "wb") as f:
        f.write(head + root + meta + leaf_bytes + bytes(data))
    os.rename(path + ".making", path)


main()
