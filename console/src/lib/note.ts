// Signed checkpoints (C2SP tlog-checkpoint): origin, size, root, and an Ed25519 signature over exactly these lines.

import { equal, fromBase64, hex, sha256, utf8 } from "./bytes.ts";

export interface Checkpoint {
    origin: string;
    size: number;
    root: Uint8Array<ArrayBuffer>;
    signed: string;
    signatures: { name: string; bytes: Uint8Array<ArrayBuffer> }[];
}

export function parseCheckpoint(note: string): Checkpoint {
    const gap = note.indexOf("\n\n");
    if (gap < 0) throw new Error("a checkpoint has an empty line before its signatures");
    const signed = note.slice(0, gap + 1);
    const [origin, size, root] = signed.split("\n");
    if (!origin || !/^(0|[1-9][0-9]*)$/.test(size ?? "") || !root) throw new Error("a checkpoint begins with origin, size and root");
    const signatures = note
        .slice(gap + 2)
        .split("\n")
        .filter((line) => line.startsWith("\u2014 "))
        .map((line) => {
            const [, name = "", bytes = ""] = line.split(" ");
            return { name, bytes: fromBase64(bytes) };
        });
    return { origin, size: Number(size), root: fromBase64(root), signed, signatures };
}

export type Verdict = "good" | "bad" | "unsupported";

/** vkey: `<name>+<8 hex>+<base64 of 0x01 and the public key>` */
export async function verifyCheckpoint(checkpoint: Checkpoint, vkey: string): Promise<Verdict> {
    const [name = "", id = "", encoded = ""] = splitVkey(vkey);
    const key = fromBase64(encoded);
    if (key.length !== 33 || key[0] !== 1) return "bad";
    const expected = (await sha256(utf8(name), Uint8Array.of(10), key)).slice(0, 4);
    if (hex(expected) !== id || checkpoint.origin !== name) return "bad";
    const signature = checkpoint.signatures.find((s) => s.name === name && equal(s.bytes.slice(0, 4), expected));
    if (!signature) return "bad";
    return verifyEd25519(key.slice(1), signature.bytes.slice(4), utf8(checkpoint.signed));
}

function splitVkey(vkey: string): string[] {
    return /^([^+]+)\+([0-9a-f]{8})\+(.+)$/.exec(vkey)?.slice(1) ?? []; // the base64 may hold '+', the name may not
}

/** pem: an Ed25519 public key as SubjectPublicKeyInfo, whose last 32 bytes are the key. */
export async function verifyWithPem(pem: string, signature: Uint8Array<ArrayBuffer>, message: Uint8Array<ArrayBuffer>): Promise<Verdict> {
    const der = fromBase64(pem.replace(/-----[A-Z ]+-----|\s/g, ""));
    return der.length === 44 ? verifyEd25519(der.slice(12), signature, message) : "bad";
}

export async function verifyEd25519(key: Uint8Array<ArrayBuffer>, signature: Uint8Array<ArrayBuffer>, message: Uint8Array<ArrayBuffer>): Promise<Verdict> {
    let imported: CryptoKey;
    try {
        imported = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
    } catch (e) {
        if (e instanceof DOMException && e.name === "NotSupportedError") return "unsupported";
        throw e;
    }
    return (await crypto.subtle.verify({ name: "Ed25519" }, imported, signature, message)) ? "good" : "bad";
}

export function checkpointNames(checkpoint: Checkpoint, size: number, root: Uint8Array): boolean {
    return checkpoint.size === size && equal(checkpoint.root, root);
}
