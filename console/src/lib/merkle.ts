// RFC 9162 proofs over SHA-256, and the rewarder's sum tree. Everything a stranger needs to check what a service claims;
// nothing here trusts the service.

import { concat, digest, equal, fromHex, sha256, utf8 } from "./bytes.ts";

type Hash = Uint8Array;

const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);

export function leafHash(leaf: Uint8Array): Promise<Hash> {
    return sha256(LEAF, leaf);
}

export function nodeHash(left: Hash, right: Hash): Promise<Hash> {
    return sha256(NODE, left, right);
}

const odd = (n: number) => n % 2 === 1;
const half = (n: number) => Math.floor(n / 2); // sizes may pass 2^31, so no bit operators

/** RFC 9162 §2.1.3.2: is `leaf` the one at `index` in the tree of `size` leaves with this root? */
export async function verifyInclusion(leaf: Hash, index: number, size: number, proof: Hash[], root: Hash): Promise<boolean> {
    if (!Number.isSafeInteger(index) || !Number.isSafeInteger(size) || index < 0 || index >= size) return false;
    let fn = index;
    let sn = size - 1;
    let r = leaf;
    for (const p of proof) {
        if (sn === 0) return false;
        if (odd(fn) || fn === sn) {
            r = await nodeHash(p, r);
            while (!odd(fn) && fn !== 0) {
                fn = half(fn);
                sn = half(sn);
            }
        } else r = await nodeHash(r, p);
        fn = half(fn);
        sn = half(sn);
    }
    return sn === 0 && equal(r, root);
}

/** RFC 9162 §2.1.4.2: does the tree of `to` leaves only add to the tree of `from` leaves? */
export async function verifyConsistency(
    from: number,
    to: number,
    fromRoot: Hash,
    toRoot: Hash,
    proof: Hash[],
): Promise<boolean> {
    if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from < 1 || from > to) return false;
    if (from === to) return proof.length === 0 && equal(fromRoot, toRoot);
    const powerOfTwo = Number.isInteger(Math.log2(from)) && 2 ** Math.log2(from) === from;
    const path = powerOfTwo ? [fromRoot, ...proof] : [...proof];
    if (path.length === 0) return false;
    let fn = from - 1;
    let sn = to - 1;
    while (odd(fn)) {
        fn = half(fn);
        sn = half(sn);
    }
    let fr = path[0]!;
    let sr = path[0]!;
    for (const c of path.slice(1)) {
        if (sn === 0) return false;
        if (odd(fn) || fn === sn) {
            fr = await nodeHash(c, fr);
            sr = await nodeHash(c, sr);
            while (!odd(fn) && fn !== 0) {
                fn = half(fn);
                sn = half(sn);
            }
        } else sr = await nodeHash(sr, c);
        fn = half(fn);
        sn = half(sn);
    }
    return sn === 0 && equal(fr, fromRoot) && equal(sr, toRoot);
}

function u128(value: bigint): Uint8Array {
    if (value < 0n || value >> 128n) throw new Error("not an unsigned 128-bit amount");
    return fromHex(value.toString(16).padStart(32, "0"));
}

function lengthPrefixed(bytes: Uint8Array): Uint8Array {
    if (bytes.length > 255) throw new Error("too long for a length byte");
    return concat(Uint8Array.of(bytes.length), bytes);
}

export interface SumProof {
    index: number;
    count: number;
    salt: string;
    path: { side: "left" | "right"; hash: string; sum: string }[];
    root: string;
    sum: string;
}

/** Is this payout a leaf of the committed tree, and do all payouts add up to the committed sum? */
export async function verifySumProof(account: string, amount: string, p: SumProof): Promise<boolean> {
    let sum = BigInt(amount);
    let hash: Hash = await sha256(LEAF, lengthPrefixed(fromHex(p.salt)), lengthPrefixed(utf8(account)), u128(sum));
    let at = p.index;
    let last = p.count - 1;
    if (at < 0 || at > last) return false;
    for (const step of p.path) {
        while (!odd(at) && at === last && last !== 0) {
            at = half(at); // an odd last node moves up unchanged
            last = half(last);
        }
        if (step.side !== (odd(at) ? "left" : "right")) return false;
        const sibling = { hash: digest(step.hash), sum: BigInt(step.sum) };
        const [l, r] = step.side === "left" ? [sibling, { hash, sum }] : [{ hash, sum }, sibling];
        hash = await sha256(NODE, l.hash, u128(l.sum), r.hash, u128(r.sum));
        sum = l.sum + r.sum;
        if (sum >> 128n) return false;
        at = half(at);
        last = half(last);
    }
    while (!odd(at) && at === last && last !== 0) {
        at = half(at);
        last = half(last);
    }
    return last === 0 && equal(hash, digest(p.root)) && sum === BigInt(p.sum);
}
