// What a browser can do with a payout, its proof, the manifest and the public key: WebCrypto only, nothing of ours.
// usage: node proof.mjs RUN_DIR PAYOUT.json ...
import { webcrypto } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
const { subtle } = webcrypto; // node 18 has no global one

const [dir, ...payouts] = process.argv.slice(2);
const utf8 = new TextEncoder();
const hex = (text) => Uint8Array.from(text.match(/../g) ?? [], (b) => parseInt(b, 16));
const join = (...parts) => Uint8Array.from(parts.flatMap((p) => [...p]));
const lp = (bytes) => join([bytes.length], bytes);
const sha = async (bytes) => new Uint8Array(await subtle.digest("SHA-256", bytes));
const u128 = (n) => hex(n.toString(16).padStart(32, "0"));
const fail = (why) => { console.error(why); process.exit(1); };

async function checkSignature(manifest) {
    const pem = readFileSync(`${dir}/pub.pem`, "utf8").replace(/-----[^-]+-----|\s/g, "");
    const key = await subtle.importKey("spki", Buffer.from(pem, "base64"), { name: "Ed25519" }, false, ["verify"]);
    const name = readdirSync(`${dir}/sigs`).find((f) => /^[0-9a-f]{16}\.sig$/.test(f));
    return subtle.verify("Ed25519", key, readFileSync(`${dir}/sigs/${name}`), manifest);
}

async function climb(payout) {
    const { salt, path } = payout.proof;
    let sum = BigInt(payout.amount);
    let hash = await sha(join([0], lp(hex(salt)), lp(utf8.encode(payout.account)), u128(sum)));
    for (const step of path) {
        const other = join(hex(step.hash.slice(7)), u128(BigInt(step.sum)));
        const mine = join(hash, u128(sum));
        hash = await sha(step.side === "left" ? join([1], other, mine) : join([1], mine, other));
        sum += BigInt(step.sum);
        if (sum >> 128n) fail("the sums overflow");
    }
    return { root: "sha256:" + Buffer.from(hash).toString("hex"), sum: sum.toString() };
}

const bytes = readFileSync(`${dir}/run.json`);
const run = JSON.parse(bytes);
if (!(await checkSignature(bytes))) fail("the signature is not the key's");
for (const file of payouts) {
    const top = await climb(JSON.parse(readFileSync(file)));
    if (top.root !== run.commitment.root || top.sum !== run.commitment.sum) fail(`${file} does not lead to the commitment`);
    if (top.sum !== run.pool.amount) fail("the commitment is not the pool");
}
console.log(`${payouts.length} proofs lead to the signed commitment`);
