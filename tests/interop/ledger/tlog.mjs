// What a browser can do with a tlog-proof file and a verifier key: WebCrypto only, nothing of ours.
// usage: node tlog.mjs PROOF VKEY     prints the index and the leaf, or fails with what is wrong
import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
const { subtle } = webcrypto; // node 18 has no global one

const [file, vkey] = process.argv.slice(2);
const utf8 = new TextEncoder();
const base64 = (text) => new Uint8Array(Buffer.from(text, "base64"));
const same = (a, b) => Buffer.compare(a, b) === 0;
const sha = async (...parts) => new Uint8Array(await subtle.digest("SHA-256", Buffer.concat(parts.map((p) => Uint8Array.from(p)))));
const fail = (why) => { console.error(why); process.exit(1); };

// RFC 9162, 2.1.3.2
async function rootOf(leaf, index, size, path) {
    let fn = BigInt(index), sn = BigInt(size) - 1n, r = await sha([0], leaf);
    if (fn > sn) fail("the index is beyond the tree");
    for (const p of path) {
        if (sn === 0n) fail("the proof is too long");
        if (fn % 2n === 1n || fn === sn) {
            r = await sha([1], p, r);
            while (fn % 2n === 0n && fn !== 0n) { fn >>= 1n; sn >>= 1n; }
        } else {
            r = await sha([1], r, p);
        }
        fn >>= 1n;
        sn >>= 1n;
    }
    if (sn !== 0n) fail("the proof is too short");
    return r;
}

const [top, ...rest] = readFileSync(file, "utf8").split("\n\n");
const lines = top.split("\n");
if (lines.shift() !== "c2sp.org/tlog-proof@v1") fail("no proof");
const leaf = base64(lines.shift().match(/^extra (\S+)$/)[1]);
const index = lines.shift().match(/^index (\d+)$/)[1];
const body = rest[0] + "\n"; // what is signed
const [origin, size, root] = body.split("\n");

const [name, id, ...key] = vkey.split("+");
const typed = base64(key.join("+")); // type, then the key
const publicKey = await subtle.importKey("raw", typed.slice(1), { name: "Ed25519" }, false, ["verify"]);
const keyId = (await sha(utf8.encode(name + "\n"), typed)).slice(0, 4);
if (typed[0] !== 1 || Buffer.from(keyId).toString("hex") !== id || origin !== name) fail("not this log's key");
const [, signer, signature] = rest[1].match(/^— (\S+) (\S+)\n$/) ?? fail("no signature");
const signed = base64(signature);
if (signer !== name || !same(signed.slice(0, 4), keyId)) fail("signed by another");
if (!await subtle.verify("Ed25519", publicKey, signed.slice(4), utf8.encode(body))) fail("the signature is wrong");
if (!same(await rootOf(leaf, index, size, lines.map(base64)), base64(root))) fail("the leaf is not under this root");
console.log(index, Buffer.from(leaf).toString());
