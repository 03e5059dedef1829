/*
 * A stranger's consumer: Node's fetch reads the stream, WebCrypto recomputes every link from the envelope alone, and each message is
 * acked with its fencing token.
 *
 * usage: node stream.mjs URL TOKEN_FILE TOPIC COUNT      prints the payloads in the order in which they came
 */
import { readFileSync } from "node:fs";
import { webcrypto } from "node:crypto";

const [url, tokenFile, topic, count] = process.argv.slice(2);
const headers = { Authorization: "Bearer " + readFileSync(tokenFile, "utf8").trim() };
const text = new TextEncoder();

const sha256 = async (bytes) => new Uint8Array(await webcrypto.subtle.digest("SHA-256", bytes));
const join = (...parts) => Uint8Array.from(parts.flatMap((p) => [...p]));
const lp = (bytes) => join([bytes.length >>> 24, bytes.length >>> 16, bytes.length >>> 8, bytes.length].map((b) => b & 255), bytes);
const hex = (s) => Uint8Array.from(s.match(/../g), (h) => parseInt(h, 16));
const named = (bytes) => "sha256:" + Buffer.from(bytes).toString("hex");
const hash = (s) => hex(s.replace(/^sha256:/, ""));
const u64 = (v) => {
  const b = new DataView(new ArrayBuffer(8));
  b.setBigUint64(0, BigInt(v));
  return lp(new Uint8Array(b.buffer));
};
const ms = (ts) => (ts === undefined ? 0 : Date.parse(ts));
const equal = (what, got, want) => {
  if (got !== want) throw new Error(`${what}: ${got} instead of ${want}`);
};

async function attrsHash(attrs) {
  const keys = Object.keys(attrs).sort();
  const n = new DataView(new ArrayBuffer(4));
  n.setUint32(0, keys.length);
  return sha256(join(new Uint8Array(n.buffer), ...keys.map((k) => join(lp(text.encode(k)), lp(text.encode(attrs[k]))))));
}

async function link(e) {
  return sha256(
    join(
      text.encode("ron/mailbox/chain/v1\0"), hash(e.chain_prev), u64(e.topic_seq), lp(text.encode(e.topic)), lp(hex(e.msg_id.replaceAll("-", ""))),
      u64(ms(e.ts)), u64(ms(e.not_before)), lp(text.encode(e.idem_key)), lp(hash(e.payload_hash)), lp(await attrsHash(e.attrs)),
    ),
  );
}

const stop = new AbortController();
const answer = await fetch(url + "/v1/recv/stream", { method: "POST", headers, body: JSON.stringify({ topic, credit: 2 }), signal: stop.signal });
equal("status", answer.status, 200);
equal("type", answer.headers.get("content-type"), "application/x-ndjson");

let rest = "";
let seen = 0;
let before;
for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + piece).split("\n");
  rest = lines.pop();
  for (const line of lines.filter((l) => l !== "")) {
    const e = JSON.parse(line);
    const payload = Buffer.from(e.payload_b64, "base64");
    equal("payload_hash", named(await sha256(payload)), e.payload_hash);
    equal("hash_chain", named(await link(e)), e.hash_chain);
    if (before !== undefined) equal("chain_prev", e.chain_prev, before);
    before = e.hash_chain;
    const ack = await fetch(`${url}/v1/ack/${e.msg_id}`, { method: "POST", headers, body: JSON.stringify({ attempt: e.attempt }) });
    equal("ack", ack.status, 200);
    console.log(payload.toString());
    seen++;
  }
  if (seen >= Number(count)) break;
}
stop.abort();
equal("messages", seen, Number(count));
