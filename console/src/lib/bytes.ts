// Bytes, hex, base64 and SHA-256, the last by WebCrypto.

const encoder = new TextEncoder();

export function utf8(text: string): Uint8Array<ArrayBuffer> {
    return encoder.encode(text);
}

export function concat(...parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
    const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
    let at = 0;
    for (const p of parts) {
        out.set(p, at);
        at += p.length;
    }
    return out;
}

export function equal(a: Uint8Array, b: Uint8Array): boolean {
    return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export function hex(bytes: Uint8Array): string {
    return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Uint8Array<ArrayBuffer> {
    if (!/^([0-9a-f]{2})*$/.test(text)) throw new Error("not lower-case hexadecimal");
    return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** "sha256:<64 hex>" as its 32 bytes. */
export function digest(text: string): Uint8Array<ArrayBuffer> {
    if (!/^sha256:[0-9a-f]{64}$/.test(text)) throw new Error(`not a digest: ${text.slice(0, 20)}`);
    return fromHex(text.slice(7));
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

export function toBase64(bytes: Uint8Array): string {
    return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
}

export async function sha256(...parts: Uint8Array[]): Promise<Uint8Array<ArrayBuffer>> {
    return new Uint8Array(await crypto.subtle.digest("SHA-256", concat(...parts)));
}
