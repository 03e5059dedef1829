"""Checks an export of a ledger with nothing but docs/formats/ledger.md, RFC 9162 and RFC 8032 to go by.

usage: export.py FILE VKEY    ends with 0 and a line of what it proves, or with the first thing that does not hold
"""
import base64, hashlib, json, struct, sys


def must(holds, what):
    if not holds:
        sys.exit(f"does not hold: {what}")


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def digest(text):
    must(text.startswith("sha256:") and len(text) == 71, f"a hash: {text}")
    return bytes.fromhex(text[7:])


# --- Ed25519, RFC 8032 §5.1, slow and short -----------------------------------------------------------------------------

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a, b):
    (x, y, z, t), (u, v, w, s) = a, b
    k, m, n, o = (y - x) * (v - u) % P, (y + x) * (v + u) % P, 2 * t * s * D % P, 2 * z * w % P
    e, f, g, h = m - k, o - n, o + n, m + k
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n, p):
    q = (0, 1, 1, 0)
    while n:
        q, p, n = (add(q, p) if n & 1 else q), add(p, p), n >> 1
    return q


def point(b):
    y = int.from_bytes(b, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - x2) % P or y >= P:
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


G = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed(key, text, signature):
    a, r, s = point(key), point(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + text).digest(), "little") % L
    (x, y, z, _), (u, v, w, _) = times(s, G), add(r, times(h, a))
    return (x * w - u * z) % P == 0 and (y * w - v * z) % P == 0


def note(text, vkey):
    """(size, root) of a signed head"""
    origin, key_id, key = vkey.split("+", 2)
    key = base64.b64decode(key, validate=True)
    must(key[0] == 1 and sha(origin.encode(), b"\n", key)[:4].hex() == key_id, "the verifier key's id")
    body, signatures = text.split("\n\n", 1)
    name, size, root = body.split("\n")
    must(name == origin, "the head is of this log")
    ours = [base64.b64decode(line.split(" ")[2]) for line in signatures.splitlines() if line.startswith(f"— {origin} ")]
    must(any(s[:4].hex() == key_id and signed(key[1:], body.encode() + b"\n", s[4:]) for s in ours), "the head is signed by this key")
    return int(size), base64.b64decode(root, validate=True)


# --- the tree, RFC 9162 ----------------------------------------------------------------------------------------------

def grow(edge, n, leaf):
    """Another leaf behind n of them; the edge holds complete subtrees, the smallest last."""
    while n & 1:
        leaf, n = sha(b"\1", edge.pop(), leaf), n >> 1
    edge.append(leaf)


def root_of(edge):
    if not edge:
        return sha()
    root = edge[-1]
    for left in reversed(edge[:-1]):
        root = sha(b"\1", left, root)
    return root


def consistent(p, size, root):
    """§2.1.4.2; the edge of the older tree, which its left nodes are."""
    m, n, path = p["from"], p["to"], [digest(h) for h in p["proof"]]
    must(0 < m < n == size and digest(p["to_root"]) == root, "the proof ends in the signed head")
    if m & (m - 1) == 0:
        path.insert(0, digest(p["from_root"]))
    must(path, "a proof")
    fn, sn = m - 1, n - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    old = new = path[0]
    edge = [old]
    for node in path[1:]:
        must(sn, "the proof is no longer than the tree is high")
        if fn & 1 or fn == sn:
            old, new = sha(b"\1", node, old), sha(b"\1", node, new)
            edge.insert(0, node)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            new = sha(b"\1", new, node)
        fn, sn = fn >> 1, sn >> 1
    must(sn == 0 and old == digest(p["from_root"]) and new == root, f"the tree of {m} is the beginning of that of {n}")
    must(len(edge) == bin(m).count("1") and root_of(edge) == old, "the left nodes are the edge")
    return edge


# --- the export ------------------------------------------------------------------------------------------------------

def leaves(head, rest):
    at = 0
    for seq in range(head["from"], head["to"] + 1):
        if head["format"] == "bundles":
            n = struct.unpack_from(">H", rest, at)[0] if at + 2 <= len(rest) else len(rest)
            leaf, at = rest[at + 2 : at + 2 + n], at + 2 + n
            must(at <= len(rest), f"entry {seq} is there")
        else:
            end = rest.find(b"\n", at)
            must(end >= 0, f"line {seq} is there")
            line, at = json.loads(rest[at:end]), end + 1
            leaf = line["leaf"].encode()
            must(line["seq"] == seq and digest(line["leaf_hash"]) == sha(b"\0", leaf), f"line {seq}: seq and leaf hash")
            must(line["idem_id"] and line["ledger_ms"] > 0 and ("kid" in line or line["idem_id"].startswith("_expire:")), f"line {seq}: members")
        e = json.loads(leaf)
        must(json.dumps(e, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == leaf and e["v"] == 1, f"leaf {seq} is canonical")
        yield leaf
    must(at == len(rest), "nothing behind the last entry")


with open(sys.argv[1], "rb") as f:
    first, rest = f.read().split(b"\n", 1)
head = json.loads(first)
must(head["v"] == 1 and head["format"] in ("jsonl", "bundles"), "the first line's form")
size, root = note(head["checkpoint"], sys.argv[2])
a, b, proofs = head["from"] - 1, head["to"], list(head["consistency"])
must(0 <= a <= b <= size, "the entries are within the head")
edge = []
if 0 < a < size:
    must(proofs and proofs[0]["from"] == a, "a proof for what stands before")
    edge = consistent(proofs.pop(0), size, root)
if a == size:  # nothing is exported: the head says it all
    must(b == size and not proofs and not rest, "an empty export")
else:
    for n, leaf in enumerate(leaves(head, rest), a):
        grow(edge, n, sha(b"\0", leaf))
    if b == 0:
        must(not proofs, "nothing to prove")
    elif b < size:
        must(proofs and proofs[0]["from"] == b and digest(proofs[0]["from_root"]) == root_of(edge), "a proof for what stands behind")
        consistent(proofs.pop(0), size, root)
    else:
        must(root_of(edge) == root, "the entries make the signed root")
    must(not proofs, "no other proofs")
print(f"entries {head['from']} to {b} are in the signed tree of size {size}")
