// Checks a wallet receipt the way a stranger would: from its own bytes and the ledger's public key alone.

import { digest, equal, hex, sha256, utf8 } from "./bytes.ts";
import { canonical, type Canonical } from "./canonical.ts";
import { leafHash, verifyInclusion } from "./merkle.ts";
import { checkpointNames, parseCheckpoint, verifyCheckpoint } from "./note.ts";

export interface Check {
    what: string;
    verdict: "good" | "bad" | "skipped";
    detail?: string;
}

export interface LedgerProof {
    leaf?: string;
    envelope?: string;
    leaf_index: number;
    leaf_hash: string;
    tree_size: number;
    root: string;
    proof: string[];
    checkpoint?: string;
}

export interface Receipt {
    txid: string;
    op: string;
    asset: string;
    amount: string;
    idem: string;
    receipt_hash: string;
    seq: number;
    root: string;
    tree_size: number;
    [member: string]: string | number;
}

const AFTER_HASH = new Set(["receipt_hash", "seq", "root", "tree_size"]);

export async function receiptHash(receipt: Record<string, Canonical>): Promise<string> {
    const covered = Object.fromEntries(Object.entries(receipt).filter(([k]) => !AFTER_HASH.has(k)));
    return "sha256:" + hex(await sha256(utf8(canonical(covered))));
}

export async function txidOf(tenant: string, key: string, request: string): Promise<string> {
    const zero = Uint8Array.of(0);
    const sum = await sha256(utf8("ron/wallet/txid/v1"), zero, utf8(tenant), zero, utf8(key), zero, utf8(request));
    return "tx_" + hex(sum).slice(0, 32);
}

async function judge(what: string, detail: string, ok: () => boolean | Promise<boolean>): Promise<Check> {
    try {
        return { what, detail, verdict: (await ok()) ? "good" : "bad" };
    } catch (e) {
        return { what, detail: e instanceof Error ? e.message : detail, verdict: "bad" };
    }
}

/** The leaf is in the tree with this root, and the ledger signed that tree. */
export async function checkLedgerProof(p: LedgerProof, vkey: string | undefined): Promise<Check[]> {
    const checks: Check[] = [];
    const leaf = p.leaf;
    if (leaf !== undefined)
        checks.push(await judge("The entry hashes to its leaf", p.leaf_hash, async () => equal(await leafHash(utf8(leaf)), digest(p.leaf_hash))));
    checks.push(
        await judge(
            "The leaf is in the tree",
            `leaf ${p.leaf_index} of ${p.tree_size}, ${p.proof.length} step${p.proof.length === 1 ? "" : "s"} up`,
            () => verifyInclusion(digest(p.leaf_hash), p.leaf_index, p.tree_size, p.proof.map(digest), digest(p.root)),
        ),
    );
    if (!p.checkpoint) {
        checks.push({ what: "The tree is signed", verdict: "skipped", detail: "no checkpoint for a size inside a commit group" });
        return checks;
    }
    const note = p.checkpoint;
    checks.push(
        await judge("The checkpoint names this tree", `size ${p.tree_size}`, () =>
            checkpointNames(parseCheckpoint(note), p.tree_size, digest(p.root)),
        ),
    );
    if (!vkey) {
        checks.push({ what: "The checkpoint is signed by the ledger", verdict: "skipped", detail: "the ledger's key is not known" });
        return checks;
    }
    let signature: Check;
    try {
        const verdict = await verifyCheckpoint(parseCheckpoint(note), vkey);
        signature = {
            what: "The checkpoint is signed by the ledger",
            verdict: verdict === "unsupported" ? "skipped" : verdict,
            detail: verdict === "unsupported" ? "this browser has no Ed25519" : vkey.split("+")[0] ?? "",
        };
    } catch (e) {
        signature = { what: "The checkpoint is signed by the ledger", verdict: "bad", detail: String(e) };
    }
    return [...checks, signature];
}

type Members = Record<string, unknown>;

/** In both and equal, or in neither. */
const agree = (a: Members, b: Members, ...names: string[]) => names.every((n) => a[n] === b[n]);

/** What was asked for, whose hash the id is: a capture or release names its hold, and the sides are the hold's. */
function requestAgrees(request: Members, receipt: Members): boolean {
    return (
        agree(request, receipt, "op", "memo", "hold", "nonce", "lane") &&
        (request.amount === undefined || request.amount === receipt.amount) &&
        (request.hold !== undefined || agree(request, receipt, "from", "to", "asset"))
    );
}

/** What the ledger wrote down. A hold's payee is not in its entry but in the request. */
function leafAgrees(leaf: Members, receipt: Receipt): boolean {
    const { op } = receipt;
    const nonce = (BigInt(receipt.lane ?? 0) << 48n) | BigInt(receipt.nonce ?? 0);
    const until = leaf.hold_until === undefined ? undefined : new Date(Number(leaf.hold_until)).toISOString();
    return (
        leaf.id === receipt.txid &&
        leaf.kind === (op === "issue" ? "mint" : op) &&
        leaf.ts === Date.parse(String(receipt.ts)) &&
        leaf.account === (op === "issue" ? receipt.to : receipt.from) &&
        (op === "issue" || op === "hold" || leaf.to === receipt.to) &&
        agree(leaf, receipt, "asset", "amount") &&
        leaf.ref_id === receipt.hold &&
        (nonce === 0n || leaf.nonce === String(nonce)) &&
        until === receipt.expires_at
    );
}

/** The fingerprint covers every entry of the unit: what a capture gave back stands in its second one. */
async function fingerprintOf(leaf: Members, receipt: Receipt, idem_id: string): Promise<string> {
    const { id: _id, ts: _ts, unit: _unit, v: _v, ...first } = leaf as Record<string, Canonical>;
    const { to: _to, ...back } = first;
    const entries = receipt.released === undefined ? [first] : [first, { ...back, kind: "release", amount: receipt.released }];
    return "sha256:" + hex(await sha256(utf8(canonical({ entries, idem_id }))));
}

export interface ReceiptProof {
    receipt: Receipt;
    tenant: string;
    request: string;
    ledger_proof: LedgerProof;
}

export async function checkReceipt(p: ReceiptProof, vkey: string | undefined): Promise<Check[]> {
    const { receipt, ledger_proof: ledger } = p;
    const read = (text: string | undefined) => JSON.parse(text || "{}") as Members;
    const leaf = read(ledger.leaf);
    const envelope = ledger.envelope ?? "";
    return [
        await judge("The receipt is what was hashed", receipt.receipt_hash, async () => (await receiptHash(receipt)) === receipt.receipt_hash),
        await judge("Its id comes from the request", receipt.txid, async () => (await txidOf(p.tenant, receipt.idem, p.request)) === receipt.txid),
        await judge("The request says the same", `${receipt.op} of ${receipt.amount} ${receipt.asset}`, () => requestAgrees(read(p.request), receipt)),
        await judge("The ledger entry says the same", String(receipt.ts ?? ""), () => leafAgrees(leaf, receipt)),
        await judge("The entry belongs to this unit", String(leaf.unit ?? ""), async () => {
            const { fp, idem_id } = read(envelope);
            return leaf.unit === "sha256:" + hex(await sha256(utf8(envelope))) && fp === (await fingerprintOf(leaf, receipt, String(idem_id)));
        }),
        await judge(
            "The receipt names this tree",
            `sequence ${receipt.seq}, size ${receipt.tree_size}`,
            () => ledger.root === receipt.root && ledger.tree_size === receipt.tree_size && ledger.leaf_index === receipt.seq - 1,
        ),
        ...(await checkLedgerProof(ledger, vkey)),
    ];
}
