import "./setup.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { digest, fromHex, hex, sha256, utf8 } from "../src/lib/bytes.ts";
import { leafHash, nodeHash, verifyConsistency, verifyInclusion, verifySumProof } from "../src/lib/merkle.ts";

type Hash = Uint8Array;

// RFC 9162 §2.1, straight from the definitions: slow, recursive, nothing shared with what is tested.
const split = (n: number) => 2 ** Math.ceil(Math.log2(n) - 1);
async function mth(d: Hash[]): Promise<Hash> {
    if (d.length === 1) return d[0]!;
    const k = split(d.length);
    return nodeHash(await mth(d.slice(0, k)), await mth(d.slice(k)));
}
async function path(m: number, d: Hash[]): Promise<Hash[]> {
    if (d.length === 1) return [];
    const k = split(d.length);
    return m < k ? [...(await path(m, d.slice(0, k))), await mth(d.slice(k))] : [...(await path(m - k, d.slice(k))), await mth(d.slice(0, k))];
}
async function subproof(m: number, d: Hash[], whole: boolean): Promise<Hash[]> {
    if (m === d.length) return whole ? [] : [await mth(d)];
    const k = split(d.length);
    return m <= k
        ? [...(await subproof(m, d.slice(0, k), whole)), await mth(d.slice(k))]
        : [...(await subproof(m - k, d.slice(k), false)), await mth(d.slice(0, k))];
}
const leaves = (n: number) => Promise.all(Array.from({ length: n }, (_, i) => leafHash(utf8(`leaf ${i}`))));
const flipped = (h: Hash) => h.map((b, i) => (i === 7 ? b ^ 1 : b));

test("every leaf of every tree up to 33 is proven, and nowhere else", async () => {
    for (let n = 1; n <= 33; n++) {
        const d = await leaves(n);
        const root = await mth(d);
        for (let i = 0; i < n; i++) {
            const proof = await path(i, d);
            assert.ok(await verifyInclusion(d[i]!, i, n, proof, root), `${i} of ${n}`);
            assert.ok(!(await verifyInclusion(flipped(d[i]!), i, n, proof, root)), "another leaf");
            assert.ok(!(await verifyInclusion(d[i]!, i, n, proof, flipped(root))), "another root");
            assert.ok(!(await verifyInclusion(d[i]!, i, n, [...proof, root], root)), "a longer path");
            if (proof.length) assert.ok(!(await verifyInclusion(d[i]!, i, n, proof.slice(1), root)), "a shorter path");
            if (n > 1) assert.ok(!(await verifyInclusion(d[i]!, (i + 1) % n, n, proof, root)), "another place");
        }
        assert.ok(!(await verifyInclusion(d[0]!, n, n, [], root)), "beyond the end");
    }
});

test("every pair of sizes up to 24 is consistent, a changed past is not", async () => {
    const d = await leaves(24);
    for (let to = 1; to <= 24; to++)
        for (let from = 1; from <= to; from++) {
            const a = await mth(d.slice(0, from));
            const b = await mth(d.slice(0, to));
            const proof = await subproof(from, d.slice(0, to), true);
            assert.ok(await verifyConsistency(from, to, a, b, proof), `${from} to ${to}`);
            assert.ok(!(await verifyConsistency(from, to, flipped(a), b, proof)), `${from} to ${to}, another past`);
            if (from < to) assert.ok(!(await verifyConsistency(from, to, a, flipped(b), proof)), "another present");
        }
});

test("the hash of an entry is the one the ledger publishes", async () => {
    const leaf =
        '{"account":"acct:alice","amount":"1000","asset":"ron","id":"demo-1","kind":"mint","ts":1760000000000,' +
        '"unit":"sha256:285df40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7","v":1}';
    assert.equal(hex(await leafHash(utf8(leaf))), "bc059994155caf5c5c994872c71c4be72640fcb1b2901d0d389372bd67321f06");
});

function u128(n: bigint): Uint8Array {
    return fromHex(n.toString(16).padStart(32, "0"));
}
async function sumTree(rows: [string, bigint][]) {
    type Node = { hash: Hash; sum: bigint };
    let level: Node[] = [];
    for (const [account, sum] of rows)
        level.push({ sum, hash: await sha256(Uint8Array.of(0, 0, account.length), utf8(account), u128(sum)) });
    const levels = [level];
    while (level.length > 1) {
        const next: Node[] = [];
        for (let i = 0; i < level.length; i += 2) {
            const [l, r] = [level[i]!, level[i + 1]];
            next.push(r ? { sum: l.sum + r.sum, hash: await sha256(Uint8Array.of(1), l.hash, u128(l.sum), r.hash, u128(r.sum)) } : l);
        }
        levels.push((level = next));
    }
    const root = level[0]!;
    const proofOf = (index: number) => {
        const steps: { side: "left" | "right"; hash: string; sum: string }[] = [];
        let at = index;
        for (const l of levels.slice(0, -1)) {
            const sibling = l[at ^ 1];
            if (sibling) steps.push({ side: at & 1 ? "left" : "right", hash: "sha256:" + hex(sibling.hash), sum: String(sibling.sum) });
            at >>= 1;
        }
        return { index, count: rows.length, salt: "", path: steps, root: "sha256:" + hex(root.hash), sum: String(root.sum) };
    };
    return proofOf;
}

test("a payout proves its amount and the total, for every shape up to 17", async () => {
    for (let n = 1; n <= 17; n++) {
        const rows = Array.from({ length: n }, (_, i): [string, bigint] => [`acct:${i}`, BigInt(i * i + 1)]);
        const proofOf = await sumTree(rows);
        for (let i = 0; i < n; i++) {
            const [account, amount] = rows[i]!;
            const proof = proofOf(i);
            assert.ok(await verifySumProof(account, String(amount), proof), `${i} of ${n}`);
            assert.ok(!(await verifySumProof(account, String(amount + 1n), proof)), "another amount");
            assert.ok(!(await verifySumProof(account + "x", String(amount), proof)), "another account");
            assert.ok(!(await verifySumProof(account, String(amount), { ...proof, sum: String(BigInt(proof.sum) + 1n) })), "another total");
            if (n > 1) assert.ok(!(await verifySumProof(account, String(amount), { ...proof, index: i ^ 1 })), "another place");
        }
    }
});

test("a digest has one spelling", () => {
    assert.throws(() => digest("sha256:00"));
    assert.throws(() => digest("SHA256:" + "0".repeat(64)));
});
