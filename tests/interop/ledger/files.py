"""Reads the files of a stopped ledger and of a stopped mailbox's journals, with nothing but docs/formats to go by.

usage: files.py ledger DIR | journal DIR    ends with 0 and a line of what was read, or with the first thing that is not as written
"""
import glob, hashlib, json, os, struct, sys

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ 0x82F63B78 if byte & 1 else byte >> 1
    TABLE.append(byte)


def crc(data):
    c = 0xFFFFFFFF
    for x in data:
        c = TABLE[(c ^ x) & 255] ^ (c >> 8)
    return c ^ 0xFFFFFFFF


def u16(b, at):
    return struct.unpack_from("<H", b, at)[0]


def u32(b, at):
    return struct.unpack_from("<I", b, at)[0]


def u64(b, at):
    return struct.unpack_from("<Q", b, at)[0]


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def must(holds, what):
    if not holds:
        sys.exit(f"not as written: {what}")


def whole(path):
    with open(path, "rb") as f:
        return f.read()


def superblock(b):
    must(len(b) == 4096 and b[:8] == b"RONLEDG1" and u32(b, 8) == 1, "SUPERBLOCK: magic, version")
    must(u32(b, 4092) == crc(b[:4092]), "SUPERBLOCK: CRC")
    origin = b[46 : 46 + u16(b, 44)].decode()
    must(origin and not any(b[46 + len(origin) : 4092]), "SUPERBLOCK: origin and zeros")
    return {"align": u32(b, 12), "segment": u32(b, 16), "id": b[28:44], "origin": origin}


def frames(folder, root, ledger):
    """(segment, offset, group, first seq, records, units, ms, root after, payload) of each, checked with what it follows"""
    group, seq, epoch = 0, None, 0
    for path in sorted(glob.glob(os.path.join(folder, "0*.seg"))):
        b, no = whole(path), int(os.path.basename(path)[:8])
        if not any(b[:4096]):
            break  # made, not yet begun
        name, align = os.path.basename(path), u32(b, 56)
        seq = u64(b, 16) if seq is None else seq
        must(b[:8] == b"RONLSEG1" and u32(b, 8) == 1 and u32(b, 12) == no and u32(b, 60) == len(b), f"{name}: header")
        must(u64(b, 16) == seq and u64(b, 24) == group + 1 and b[64:96] == root, f"{name}: continues")
        end = 104 if ledger else 4092
        must(u32(b, end) == crc(b[:end]) and not any(b[108:4096] if ledger else b[104:4092]), f"{name}: header CRC, zeros")
        at = 4096
        while b[at : at + 4] == b"RLF1":
            length, payload = u32(b, at + 4), u32(b, at + 8)
            f, where = b[at : at + length], f"{name}:{at}"
            must(length == -(-(128 + payload + 16) // align) * align and u16(f, 12) == 1, f"{where}: lengths, version")
            must(u32(f, 120) == crc(f[:120]) and u32(f, length - 8) == crc(f[: length - 8]) and f[-4:] == b"RLFE", f"{where}: CRCs, magic")
            must(u64(f, 16) == group + 1 == u64(f, length - 16) and u64(f, 24) == seq and f[56:88] == root, f"{where}: continues")
            must(u64(f, 48) >= epoch and u32(f, 124) == 0 and not any(f[128 + payload : length - 16]), f"{where}: epoch, zeros")
            zero = sum(not any(f[i : min(i + 512, 128 + payload)]) for i in range(0, 128 + payload, 512))
            must(u16(f, 14) == (0 if ledger else zero), f"{where}: {zero} zero sectors, {u16(f, 14)} told")
            group, epoch, root = group + 1, u64(f, 48), f[88:120]
            yield no, at, group, seq, u32(f, 32), u32(f, 36), u64(f, 40), root, f[128 : 128 + payload]
            seq += u32(f, 32)
            at += length
        must(not any(b[at:]), f"{name}: zeros behind its last frame")


def unit(p, at):
    """(next, idem_id, leaves)"""
    idem_n, kid_n, meta_n, flags = p[at + 6], p[at + 7], u16(p, at + 8), u16(p, at + 10)
    q = at + 52
    idem, kid, meta = (p[q : q + idem_n].decode(), p[q + idem_n : q + idem_n + kid_n].decode(), p[q + idem_n + kid_n : q + idem_n + kid_n + meta_n].decode())
    q += idem_n + kid_n + meta_n
    leaves = []
    for _ in range(u16(p, at + 4)):
        n = struct.unpack_from(">H", p, q)[0]
        leaves.append(p[q + 2 : q + 2 + n])
        q += 2 + n
    must(q == at + u32(p, at), f"unit {idem}: length")
    entries = [json.loads(leaf) for leaf in leaves]
    must(all(canonical(e) == leaf and e["v"] == 1 for e, leaf in zip(entries, leaves)), f"unit {idem}: leaves are canonical")
    bare = [{k: v for k, v in e.items() if k not in ("id", "ts", "unit", "v")} for e in entries]
    must(sha(canonical({"entries": bare, "idem_id": idem})) == p[at + 20 : at + 52], f"unit {idem}: fingerprint")
    made_here = flags & 1
    envelope = {"cap": None if made_here else p[at + 12 : at + 20].hex(), "fp": "sha256:" + p[at + 20 : at + 52].hex(), "idem_id": idem,
                "kid": None if made_here else kid, "meta": meta or None, "n": len(leaves)}
    name = "sha256:" + sha(canonical({k: v for k, v in envelope.items() if v is not None})).hex()
    must(all(e["unit"] == name for e in entries), f"unit {idem}: envelope")
    return q, idem, [(e["id"], leaf) for e, leaf in zip(entries, leaves)]


def tree(hashes):
    stack = []  # (level, hash) of complete subtrees
    for h in hashes:
        level = 0
        while stack and stack[-1][0] == level:
            level, h = level + 1, sha(b"\1", stack.pop()[1], h)
        stack.append((level, h))
    root = stack.pop()[1]
    while stack:
        root = sha(b"\1", stack.pop()[1], root)
    return root


def index_run(b, known):
    must(b[:8] == b"RONLIDX1" and u32(b, 8) == 1 and u32(b, 60) == crc(b[:60]) and not any(b[48:60]), "index: header")
    n, blocks = u64(b, 16), u64(b, 40)
    end, samples = 64 + 32 * n, 8 * -(-n // 128)
    bits, tail = b[end + samples : end + samples + 64 * blocks], b[end + samples + 64 * blocks :]
    must(blocks == -(-n // 32) and len(tail) == 16 and tail[12:] == b"RIDX", "index: lengths, magic")
    must([u32(tail, 0), u32(tail, 4), u32(tail, 8)] == [crc(b[64:end]), crc(b[end : end + samples]), crc(bits)], "index: CRCs")
    must(b[end : end + samples] == b"".join(b[64 + 4096 * i : 72 + 4096 * i] for i in range(-(-n // 128))), "index: samples")
    before = (b"", 0)
    for at in range(64, end, 32):
        key, place = b[at : at + 16], struct.unpack_from("<QII", b, at + 16)
        must(before <= (key, place[0]) and known.get(key) == place, f"index: record at {at}")
        before = (key, place[0])
        block = 64 * ((u64(key, 0) * blocks) >> 64)
        for i in range(7):
            bit = (u64(key, 8) >> 9 * i) & 511
            must(bits[block + bit // 8] >> (bit % 8) & 1, f"index: the filter says no to the record at {at}")
    return n


def state_run(b):
    must(b[:8] == b"RONLSTA1" and u32(b, 8) == 1 and u32(b, 60) == crc(b[:60]) and not any(b[32:60]), "state: header")
    at, before = 64, b""
    for _ in range(u64(b, 16)):
        key_n = u16(b, at + 1)
        name = b[at : at + 1] + b[at + 3 : at + 3 + key_n]
        value_n = u16(b, at + 3 + key_n)
        must(name > before, "state: order")
        must(value_n in {b"A": (0, 40), b"N": (0, 8), b"R": (0, 16), b"S": (0, 32)}.get(name[:1], (value_n,)), f"state: value of {name!r}")
        before = name
        at += 5 + key_n + value_n
    must(u32(b, at) == crc(b[64:at]) and b[at + 4 :] == b"RSTA", "state: CRC, magic")


def ledger(folder):
    sb = superblock(whole(folder + "/SUPERBLOCK"))
    hashes, groups, known, root = [], [], {}, hashlib.sha256().digest()
    for no, at, group, seq, records, units, ms, root, payload in frames(folder + "/journal", root, True):
        p, seen = 0, 0
        while p < len(payload):
            begin = p
            p, idem, leaves = unit(payload, p)
            known[sha(b"\1", idem.encode())[:16]] = (len(hashes) + 1, no, at + 128 + begin)
            for name, leaf in leaves:
                known[sha(b"\2", name.encode())[:16]] = (len(hashes) + 1, no, at + 128 + begin)
                hashes.append(sha(b"\0", leaf))
            seen += 1
        must(seen == units and len(hashes) == seq + records - 1, f"group {group}: counts")
        groups.append(struct.pack("<QQQII", len(hashes), group, ms, no, at) + root)
    must(hashes and tree(hashes) == root, "the tree over all leaves has another root")
    must(b"".join(groups).startswith(whole(folder + "/groups")), "groups")
    must(b"".join(hashes).startswith(whole(folder + "/tree/00")), "tree/00")
    for path in glob.glob(folder + "/state/*.run"):
        state_run(whole(path))
    indexed = sum(index_run(whole(path), known) for path in glob.glob(folder + "/index/*.run"))
    manifests = glob.glob(folder + "/ckpt/MANIFEST-*.json")
    must(manifests and indexed, "there is no checkpoint to read")
    for path in manifests:
        line, told = whole(path).split(b"\n")
        must(canonical(json.loads(line)) == line and told == b"%08x" % crc(line), path)
    print(f"{sb['origin']}: {len(groups)} groups, {len(hashes)} entries, {indexed} index records, {len(manifests)} manifests")


def journal(folder):
    print(sum(1 for _ in frames(folder, bytes(32), False)), "groups")


{"ledger": ledger, "journal": journal}[sys.argv[1]](sys.argv[2])
