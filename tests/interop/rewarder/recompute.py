#!/usr/bin/env python3
"""Recomputes one epoch from published files, with nothing but Python's integers and hashlib.

usage: recompute.py SNAPSHOT.ndjson RUN_DIR [PAYOUT.json ...]

Checks the inputs digest, every amount, dust, the Merkle-sum root and the manifest's digests; then each payout's proof.
"""
import hashlib
import hmac
import json
import sys
from fractions import Fraction
from math import lcm


def sha(b):
    return hashlib.sha256(b).digest()


def lp(b):
    return bytes([len(b)]) + b


def text(h):
    return "sha256:" + h.hex()


def read_snapshot(path):
    with open(path, encoding="ascii") as f:
        head = json.loads(f.readline())
        rows = [json.loads(line) for line in f if line.strip()]
    assert head["snapshot"] == 1 and head["count"] == len(rows)
    dims = sorted(head["dims"])
    usage = {r[0]: {d: r[1 + head["dims"].index(d)] for d in dims} for r in rows}
    assert len(usage) == len(rows), "an account occurs twice"
    return head, dims, usage


def digest(head, dims, usage):
    out = b"RONROWS1" + lp(head["tenant"].encode()) + lp(head["epoch"].encode())
    out += lp(bytes.fromhex(head.get("salt", ""))) + bytes([len(dims)]) + b"".join(lp(d.encode()) for d in dims)
    out += len(usage).to_bytes(8, "big")
    for account in sorted(usage, key=str.encode):
        out += lp(account.encode()) + b"".join(usage[account][d].to_bytes(8, "big") for d in dims)
    return sha(out)


def scores(policy, usage):
    weights = {w["dim"]: Fraction(w["num"], w["den"]) for w in policy["weights"]}
    scale = lcm(*[w.denominator for w in weights.values()])
    return {a: sum(u[d] * int(w * scale) for d, w in weights.items()) for a, u in usage.items()}


def split(policy, pool, score):
    total = sum(score.values())
    if total == 0:
        return {a: 0 for a in score}
    share = {a: Fraction(pool * s, total) for a, s in score.items()}
    paid = {a: int(x) for a, x in share.items()}
    if policy["rounding"] == "largest_remainder":
        order = sorted((a for a in score if score[a]), key=lambda a: (-(share[a] - paid[a]), a.encode()))
        for a in order[: pool - sum(paid.values())]:
            paid[a] += 1
    elif policy["rounding"] == "webster":
        paid = {a: int(x + Fraction(1, 2)) for a, x in share.items()}
        while sum(paid.values()) < pool:
            a = min((a for a in score if score[a]), key=lambda a: (-Fraction(score[a], 2 * paid[a] + 1), a.encode()))
            paid[a] += 1
        while sum(paid.values()) > pool:
            low = min(Fraction(score[a], 2 * paid[a] - 1) for a in score if paid[a])
            a = max((a for a in score if paid[a] and Fraction(score[a], 2 * paid[a] - 1) == low), key=str.encode)
            paid[a] -= 1
    return paid


def limit(policy, rounded):
    top, low = policy.get("max_payout"), int(policy["min_payout"])
    return {a: int(top) if top and v > int(top) else 0 if v < low else v for a, v in rounded.items()}


def leaf(salt, account, amount):
    mac = hmac.new(salt, account.encode(), hashlib.sha256).digest()[:16] if salt else b""
    return sha(b"\0" + lp(mac) + lp(account.encode()) + amount.to_bytes(16, "big")), amount


def node(left, right):
    total = left[1] + right[1]
    assert total < 1 << 128
    return sha(b"\1" + left[0] + left[1].to_bytes(16, "big") + right[0] + right[1].to_bytes(16, "big")), total


def root(leaves):
    if not leaves:
        return sha(b""), 0
    while len(leaves) > 1:
        pairs = [node(leaves[i], leaves[i + 1]) for i in range(0, len(leaves) - 1, 2)]
        leaves = pairs + leaves[len(leaves) // 2 * 2 :]
    return leaves[0]


def check_proof(payout, manifest):
    p = payout["proof"]
    mac = bytes.fromhex(p["salt"])
    account, amount = payout["account"], int(payout["amount"])
    at = sha(b"\0" + lp(mac) + lp(account.encode()) + amount.to_bytes(16, "big")), amount
    for step in p["path"]:
        other = bytes.fromhex(step["hash"][7:]), int(step["sum"])
        at = node(other, at) if step["side"] == "left" else node(at, other)
    c = manifest["commitment"]
    assert (text(at[0]), str(at[1])) == (c["root"], c["sum"]), account


def main():
    head, dims, usage = read_snapshot(sys.argv[1])
    run = sys.argv[2]
    raw = open(run + "/run.json", "rb").read()
    m = json.loads(raw)
    assert raw == json.dumps(m, sort_keys=True, separators=(",", ":")).encode(), "run.json is not canonical"
    canonical = json.dumps(m["policy"], sort_keys=True, separators=(",", ":")).encode()
    assert text(sha(canonical)) == m["policy_hash"]
    assert text(digest(head, dims, usage)) == m["inputs"]["digest"], "inputs digest"
    key = b"ron-rewarder/run/1\0" + lp(m["tenant"].encode()) + lp(m["epoch"].encode())
    key += bytes.fromhex(m["policy_hash"][7:]) + bytes.fromhex(m["inputs"]["digest"][7:])
    assert text(sha(key)) == m["run_key"]
    assert text(sha(open(run + "/payouts.bin", "rb").read())) == m["files"]["payouts.bin"]

    pool = int(m["pool"]["amount"])
    score = scores(m["policy"], usage)
    assert str(sum(score.values())) == m["totals"]["score"]
    paid = limit(m["policy"], split(m["policy"], pool, score))
    dust = pool - sum(paid.values())
    assert dust >= 0 and str(dust) == m["totals"]["dust"], "dust"
    if dust:
        paid[m["policy"]["dust_account"]] = dust
    salt = bytes.fromhex(head.get("salt", ""))
    leaves = [leaf(salt, a, paid[a]) for a in sorted(paid, key=str.encode) if paid[a]]
    top = root(leaves)
    c = m["commitment"]
    assert (text(top[0]), str(top[1]), len(leaves)) == (c["root"], c["sum"], c["count"]), "commitment"
    for path in sys.argv[3:]:
        payout = json.load(open(path))
        assert int(payout["amount"]) == paid[payout["account"]]
        check_proof(payout, m)
    print(f"{m['epoch']}: {len(leaves)} leaves, {pool} = payouts + dust, root {c['root'][:23]}, {len(sys.argv) - 3} proofs")


main()
