import "./setup.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { fromHex, hex, utf8 } from "../src/lib/bytes.ts";
import { canonical } from "../src/lib/canonical.ts";
import { checkpointNames, parseCheckpoint, verifyCheckpoint } from "../src/lib/note.ts";
import { checkLedgerProof, receiptHash, txidOf } from "../src/lib/receipt.ts";

const VKEY = "example.com/ron-ledger+023ba022+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4";
const NOTE =
    "example.com/ron-ledger\n3\nW0eVLW1WDZOO2xB6eYDx87bJt9P2xDwg1CUt0hy3GF4=\n\n" +
    "\u2014 example.com/ron-ledger AjugIiW8zSjALpy5KlFVTOnVqeUVxGN2lbf5CeNMs8ggWp1fPEGe20GIY8dfUVCVRAM1rl1vbjOkatLROWqdiuppSQE=\n";
const ROOT3 = "5b47952d6d560d938edb107a7980f1f3b6c9b7d3f6c43c20d4252dd21cb7185e";

test("canonical JSON sorts keys and escapes two characters", () => {
    assert.equal(canonical({ b: 1, a: ["x\"y\\z", "\u2013"] }), '{"a":["x\\"y\\\\z","\u2013"],"b":1}');
    assert.throws(() => canonical({ a: 1.5 }));
});

test("transaction ids and receipt hashes come out as the wallet makes them", async () => {
    const request = canonical({ op: "transfer", from: "acct:alice", to: "acct:shop-7", asset: "ron", amount: "250000", nonce: 42 });
    assert.equal(await txidOf("default", "order-1001", request), "tx_41892e7d297fbcbf28f2706a97637b40");
    const receipt = {
        txid: "tx_41892e7d297fbcbf28f2706a97637b40", op: "transfer", from: "acct:alice", to: "acct:shop-7", asset: "ron",
        amount: "250000", nonce: 42, idem: "order-1001", ts: "2026-03-02T09:30:00.123Z", receipt_hash: "x", seq: 1031, root: "y", tree_size: 1031,
    };
    assert.equal(await receiptHash(receipt), "sha256:495d6bb9b65d3a6ac5154212ee6de6b4da517ca9e9520821ea6ea8a4c23ff094");
    assert.notEqual(await receiptHash({ ...receipt, amount: "250001" }), await receiptHash(receipt));
});

test("a signed checkpoint is read and verified; a changed one is not", async () => {
    const note = parseCheckpoint(NOTE);
    assert.ok(checkpointNames(note, 3, fromHex(ROOT3)));
    assert.equal(await verifyCheckpoint(note, VKEY), "good");
    assert.equal(await verifyCheckpoint(parseCheckpoint(NOTE.replace("\n3\n", "\n4\n")), VKEY), "bad");
    assert.equal(await verifyCheckpoint(note, VKEY.replace("023ba022", "023ba023")), "bad");
    assert.throws(() => parseCheckpoint("no note"));
});

test("an inclusion proof is judged step by step", async () => {
    const proof = {
        leaf_index: 0,
        leaf_hash: "sha256:bc059994155caf5c5c994872c71c4be72640fcb1b2901d0d389372bd67321f06",
        tree_size: 3,
        root: "sha256:" + ROOT3,
        proof: [
            "sha256:15099fff46667d20d0709fa9f523a3f1e7443ce7eb20ec38ee187f96252f9437",
            "sha256:1368ab84fa39820ab0317c67063b870b18c01b7cb39b72f88bee8e80b3bbe05d",
        ],
        checkpoint: NOTE,
    };
    const verdicts = async (p: typeof proof) => (await checkLedgerProof(p, VKEY)).map((c) => c.verdict);
    assert.deepEqual(await verdicts(proof), ["good", "good", "good"]);
    assert.deepEqual(await verdicts({ ...proof, leaf_index: 1 }), ["bad", "good", "good"]);
    assert.deepEqual(await verdicts({ ...proof, root: proof.leaf_hash }), ["bad", "bad", "good"]);
    assert.deepEqual((await checkLedgerProof(proof, undefined)).map((c) => c.verdict), ["good", "good", "skipped"]);
});

test("hex is lower case and even", () => {
    assert.equal(hex(utf8("az")), "617a");
    assert.throws(() => fromHex("ABC"));
});
