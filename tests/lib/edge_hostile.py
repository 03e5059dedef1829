#!/usr/bin/env python3
"""Writes PMTiles archives and MBTiles files that no honest tool writes.

usage: edge_hostile.py DIR

DIR/refused/*.pmtiles: a mount must refuse them; DIR/refused/NAME.why says in which words. DIR/bearable/*: they may be mounted.
"""
import gzip
import os
import sqlite3
import struct
import sys

from varint import varint

out = sys.argv[1]
os.makedirs(out + "/refused")
os.makedirs(out + "/bearable")


def directory(*entries):  # (id, run, length, offset)
    parts, last = [varint(len(entries))], 0
    for e in entries:
        parts.append(varint(e[0] - last))
        last = e[0]
    for column in (1, 2):
        parts += [varint(e[column]) for e in entries]
    return b"".join(parts + [varint(e[3] + 1) for e in entries])


def archive(path, root, metadata=b"{}", leaves=b"", data=b"tile", gzipped=False, zooms=(0, 3), at=None, root_at=127):
    if gzipped:
        root, metadata = gzip.compress(root, mtime=0), gzip.compress(metadata, mtime=0)
    sections, where = [], root_at
    for part in (root, metadata, leaves, data):
        sections += [where, len(part)]
        where += len(part)
    for i, value in (at or {}).items():
        sections[i] = value
    head = b"PMTiles\x03" + struct.pack("<8Q", *sections) + struct.pack("<3Q", 1, 1, 1)
    head += bytes([1, 2 if gzipped else 1, 1, 1, *zooms]) + struct.pack("<4i", -1800000000, -850000000, 1800000000, 850000000)
    head += bytes([0]) + struct.pack("<2i", 0, 0)
    with open(path, "wb") as f:
        f.write(head + bytes(root_at - 127) + root + metadata + leaves + data)


def refused(name, why, *args, **options):
    archive(f"{out}/refused/{name}.pmtiles", *args, **options)
    with open(f"{out}/refused/{name}.why", "w") as f:
        f.write(why)


one = directory((0, 1, 4, 0))
itself = directory((0, 0, 5, 0))
refused("leaf_of_itself", "nested too deep", itself, leaves=itself)
refused("leaf_outside", "lies outside the leaf section", directory((0, 0, 6, 0)), leaves=itself)
refused("leaf_far_outside", "lies outside the leaf section", directory((0, 0, 5, 2**64 - 2)), leaves=itself)
refused("leaf_before_its_id", "overlap or lie outside", directory((7, 0, 5, 0)), leaves=directory((0, 1, 4, 0)))
refused("run_over_the_end", "overlap or lie outside", directory((2**64 - 5, 2**32 - 1, 4, 0)))
refused("runs_overlap", "overlap or lie outside", directory((0, 3, 4, 0), (2, 1, 4, 0)))
refused("ids_wrap", "ids are cut off", varint(2) + varint(2**64 - 1) + varint(2) + varint(1) * 2 + varint(4) * 2 + varint(1) * 2)
refused("ids_stand_still", "do not rise", varint(2) + varint(0) * 2 + varint(1) * 2 + varint(4) * 2 + varint(1) * 2)
refused("a_varint_of_eleven_bytes", "number of entries", b"\xff" * 10 + b"\x01" + bytes(20))
refused("more_entries_than_bytes", "number of entries", varint(1 << 20) + bytes(100))
refused("bytes_left_over", "left over", one + b"x")
refused("first_offset_follows", "offsets are cut off", varint(1) + varint(0) + varint(1) + varint(4) + varint(0))
refused("offsets_overflow", "offsets overflow", varint(2) + varint(0) + varint(1) + varint(1) * 2 + varint(4) * 2 + varint(2**64 - 2) + varint(0))
refused("tile_outside", "outside the tile section", directory((0, 1, 4, 1)))
refused("tile_too_long", "larger than packs.max_tile_bytes", directory((0, 1, 5 << 20, 0)), data=bytes(5 << 20))
refused("root_too_far", "within the first 16384", one, root_at=16380)
refused("root_too_long", "within the first 16384", directory(*((i, 1, 4, 0) for i in range(5000))))
refused("section_wraps", "beyond the end", one, at={6: 2**64 - 4})
bomb = gzip.compress(bytes(17 << 20), mtime=0)
refused("directory_that_swells", "does not inflate", directory((0, 0, len(bomb), 0)), leaves=bomb, gzipped=True)
refused("metadata_that_swells", "metadata does not inflate", one, metadata=b" " * (11 << 20) + b"{}", gzipped=True)
refused("metadata_deep", "metadata is not a JSON object", one, metadata=b'{"a":' + b"[" * (4 << 20), gzipped=True)
refused("metadata_a_list", "metadata is not a JSON object", one, metadata=b"[]")
refused("metadata_twice", "metadata is not a JSON object", one, metadata=b'{"name":"a","name":"b"}')

# three million objects in ten kilobytes
archive(out + "/bearable/swollen.pmtiles", one, metadata=b'{"name":"swollen","a":[' + b"{}," * 3_400_000 + b"{}]}", gzipped=True)
archive(out + "/bearable/wordy.pmtiles", one, metadata=b'{"name":7,"vector_layers":[' + b"{}," * 3_000_000 + b"{}]}", gzipped=True)
# each of these tiles is 4 MiB long and begins one byte behind the one before: read one by one they are 760 GiB
n = 200_000
leaf = varint(n) + varint(0) + varint(1) * (n - 1) + varint(1) * n + varint(4 << 20) * n + b"".join(varint(i + 1) for i in range(n))
archive(out + "/bearable/a_overlap.pmtiles", directory((0, 0, len(leaf), 0)), leaves=leaf, data=bytes((4 << 20) + n), zooms=(0, 9))


def mbtiles(name, *statements, kind="refused", why=None):
    db = sqlite3.connect(f"{out}/{kind}/{name}.mbtiles")
    db.execute("CREATE TABLE metadata (name text, value text)")
    db.execute("INSERT INTO metadata VALUES ('format','png'),('minzoom','0'),('maxzoom','1')")
    for s in statements:
        db.execute(s)
    db.commit()
    db.close()
    if why:
        with open(f"{out}/{kind}/{name}.why", "w") as f:
            f.write(why)


T = "CREATE TABLE t (zoom_level, tile_column, tile_row, tile_data, PRIMARY KEY (zoom_level, tile_column, tile_row))"
TILES = T.replace("TABLE t", "TABLE tiles")
ONE = "INSERT INTO t VALUES (0,0,0,'x')"
views = [T, ONE] + [f"CREATE VIEW v{i} AS SELECT * FROM {'v%d' % (i - 1) if i else 't'} UNION ALL SELECT * FROM {'v%d' % (i - 1) if i else 't'}" for i in range(13)]
mbtiles("views_of_views", *views, "CREATE VIEW tiles AS SELECT * FROM v12", why="there is no table or view tiles")
mbtiles("a_step_of_megabytes", T, ONE, "CREATE TABLE k (a INTEGER PRIMARY KEY, s)", "INSERT INTO k VALUES (-5, CAST(zeroblob(4000000) AS TEXT))",
        "INSERT INTO k WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 999) SELECT n, '' FROM c",
        "CREATE VIEW tiles AS SELECT * FROM t WHERE (SELECT count(b.s || k.s) FROM k, k b, k c WHERE k.a >= 0 AND c.a >= 0 AND b.a = -5) >= 0",
        why="looking for a tile does not end")
mbtiles("recursion", T, ONE, "CREATE VIEW tiles AS WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c) SELECT t.* FROM t, c", why="there is no table or view tiles")
mbtiles("a_function", T, ONE, "CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, randomblob(1000) AS tile_data FROM t", why="there is no table or view tiles")
mbtiles("no_tiles", TILES.replace("tile_data", "other"), why="there is no table or view tiles")
mbtiles("no_rows", TILES, "DELETE FROM metadata WHERE name <> 'format'", why="there are no tiles")
# rows that are no tiles, or the same tile again: none of them is what a lookup finds
mbtiles("rows", "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)", "CREATE INDEX i ON tiles (zoom_level, tile_column, tile_row)",
        "INSERT INTO tiles VALUES (0,0,0,'the one'),(0,0,0,'another'),(1,0,0,'integer'),(1,0,NULL,'nothing'),('1',0,0,'as text'),(1,0.5,0,'a half!')," +
        "(-1,0,0,'minus'),(30,0,0,'too far'),(1,2,0,'outside')", kind="bearable")
mbtiles("long_tile", TILES, "INSERT INTO tiles VALUES (0,0,0,'before'),(1,0,0,zeroblob(5000000)),(1,0,1,'behind')", kind="bearable")
mbtiles("generated", TILES.replace("tile_data,", "raw, tile_data GENERATED ALWAYS AS (raw || '!') VIRTUAL,"), "INSERT INTO tiles VALUES (0,0,0,'made')", kind="bearable")
mbtiles("triggered", TILES, "INSERT INTO tiles VALUES (0,0,0,'x')", "CREATE TRIGGER g AFTER INSERT ON tiles BEGIN SELECT load_extension('evil'); END", kind="bearable")
db = sqlite3.connect(out + "/bearable/logged.mbtiles")
db.execute("PRAGMA journal_mode=WAL")
db.close()
mbtiles("logged", TILES, "INSERT INTO tiles VALUES (0,0,0,'in wal mode')", kind="bearable")
# one page is torn: its tiles cannot be read, all the others can
mbtiles("torn", TILES, "INSERT INTO tiles WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 63) SELECT 6, n, 0, printf('tile-%03d-%3000s', n, '') FROM c",
        "UPDATE metadata SET value = '6' WHERE name = 'maxzoom'", kind="bearable")
with open(out + "/bearable/torn.mbtiles", "r+b") as f:
    at = f.read().index(b"tile-020-") // 4096 * 4096
    f.seek(at)
    f.write(bytes(4096))
