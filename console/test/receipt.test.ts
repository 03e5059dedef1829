import "./setup.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { fromHex, hex, utf8 } from "../src/lib/bytes.ts";
import { canonical } from "../src/lib/canonical.ts";
import { checkpointNames, parseCheckpoint, verifyCheckpoint, verifyWithPem } from "../src/lib/note.ts";
import { checkLedgerProof, checkReceipt, receiptHash, txidOf, type Receipt, type ReceiptProof } from "../src/lib/receipt.ts";

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

test("what openssl signed is verified with its key; nothing else is", async () => {
    const pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAElmHK2QTH0qPIUFGa9YHtUCpoNwOn7t39TxHD73v4sE=\n-----END PUBLIC KEY-----\n";
    const signature = fromHex("697fc274913d11fe14e474917a31a4a17ff5b05b1e204ab4f013c39639b41f3480c7f1d2568f3dd1a733ab9b33d40238de1202e0f604433e253012a4c86a030f");
    assert.equal(await verifyWithPem(pem, signature, utf8("run")), "good");
    assert.equal(await verifyWithPem(pem, signature, utf8("ran")), "bad");
    assert.equal(await verifyWithPem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", signature, utf8("run")), "bad");
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

// A hold of 300 in lane 3, and its capture of 200 that gave 100 back, as GET /v1/tx/{txid}/proof answered.
const PROOFS_KEY = "localhost/ron-ledger/5bcc73010f8e14294016ddf8346f2f48+92183e26+AROJE6wGftglYi4ka3hPUiT18zeeVMYateTC82ruXGu/";
const HOLD = JSON.parse(String.raw`{"receipt":{"txid":"tx_20012fd8a4c34cf615917f198b37bd19","op":"hold","from":"acct:alice","to":"acct:hotel","asset":"ron","amount":"300","nonce":1,"lane":3,"expires_at":"2026-11-18T16:45:16.597Z","idem":"01a1ef55-7123-7c42-a46b-ea0d0200ff7b","ts":"2026-11-18T15:45:16.597Z","receipt_hash":"sha256:c7fe1374edae02727fef73295ac19868e7982fe301a9fd172a1e91601dd2c070","seq":2,"root":"sha256:dbd792b70c4388ce9c784f2c872507ca27a75e6caa60af7d5c15689cf062f281","tree_size":2},"tenant":"default","request":"{\"amount\":\"300\",\"asset\":\"ron\",\"expires_in\":3600,\"from\":\"acct:alice\",\"lane\":3,\"nonce\":1,\"op\":\"hold\",\"to\":\"acct:hotel\"}","ledger_proof":{"leaf":"{\"account\":\"acct:alice\",\"amount\":\"300\",\"asset\":\"ron\",\"hold_until\":1795020316597,\"id\":\"tx_20012fd8a4c34cf615917f198b37bd19\",\"kind\":\"hold\",\"nonce\":\"844424930131969\",\"ts\":1795016716597,\"unit\":\"sha256:2c2334e3174e70b721f0b687531176762f33f55bacf85c0c4e4f71adc733b629\",\"v\":1}","envelope":"{\"cap\":\"7f9936fd385fae63\",\"fp\":\"sha256:5ef6ca032746505d10f8dfeb8f62bcdfc3b0ae09b885235059e3a6e9be3cbb08\",\"idem_id\":\"w:ca49537572e1dc29dadff8864259f8f27c2757ed28c3c7499e1aa3556a83b2a7\",\"kid\":\"k1\",\"meta\":\"AQEHZGVmYXVsdCQwMWExZWY1NS03MTIzLTdjNDItYTQ2Yi1lYTBkMDIwMGZmN2IACmFjY3Q6aG90ZWw=\",\"n\":1}","leaf_index":1,"leaf_hash":"sha256:3a3a7aa8b4c41e326dc8650df030acd110c390ca8649ba8a0f44180eea35d259","tree_size":2,"root":"sha256:dbd792b70c4388ce9c784f2c872507ca27a75e6caa60af7d5c15689cf062f281","proof":["sha256:1b2fedad2c097a486724228375c31e3aa8aca260dd4a8e672dd8fc6d54360fb2"],"checkpoint":"localhost/ron-ledger/5bcc73010f8e14294016ddf8346f2f48\n2\n29eStwxDiM6ceE8shyUHyienXmyqYK99XBVonPBi8oE=\n\n— localhost/ron-ledger/5bcc73010f8e14294016ddf8346f2f48 khg+JjoukSIpGWpfHj2ltDwi74l4RxK0MafniXor0TP4O4NpPahy3sX/ll/+L0X8hYHxYxTBlRKHobpodQwOGDAAAwQ=\n"}}`) as ReceiptProof;
const CAPTURE = JSON.parse(String.raw`{"receipt":{"txid":"tx_a5466a25e49e1b427d63614484a6f1cb","op":"capture","from":"acct:alice","to":"acct:hotel","asset":"ron","amount":"200","released":"100","hold":"tx_20012fd8a4c34cf615917f198b37bd19","idem":"01a1ef55-718f-79ac-a090-ef13aa373580","ts":"2026-11-18T15:45:16.703Z","receipt_hash":"sha256:ae1cdb92228352c629c19d55007a36d2230ae1ad067c5c072b17d3a541bdd14c","seq":3,"root":"sha256:ab608396edfb4ddb7de39fee148f65c6b71a34e6b0509921fb3ef0a09c8f9fa1","tree_size":4},"tenant":"default","request":"{\"amount\":\"200\",\"hold\":\"tx_20012fd8a4c34cf615917f198b37bd19\",\"op\":\"capture\"}","ledger_proof":{"leaf":"{\"account\":\"acct:alice\",\"amount\":\"200\",\"asset\":\"ron\",\"id\":\"tx_a5466a25e49e1b427d63614484a6f1cb\",\"kind\":\"capture\",\"ref_id\":\"tx_20012fd8a4c34cf615917f198b37bd19\",\"to\":\"acct:hotel\",\"ts\":1795016716703,\"unit\":\"sha256:d9bd7785b44e5014e5df00b182bf7fc291738d1fabe7fefd1b3fa91b5a1be737\",\"v\":1}","envelope":"{\"cap\":\"7f9936fd385fae63\",\"fp\":\"sha256:43fd297161f8f6dd9ea7e558e69e2c2b2d0595d72a805a35f6bb7a3c3ff8ab09\",\"idem_id\":\"w:446a8ebc67fef2435d1026d47df202b098847cb1bb5433a3d27bcd469f7cc770\",\"kid\":\"k1\",\"meta\":\"AQIHZGVmYXVsdCQwMWExZWY1NS03MThmLTc5YWMtYTA5MC1lZjEzYWEzNzM1ODAAAA==\",\"n\":2}","leaf_index":2,"leaf_hash":"sha256:cd9f68581bd84ef8a91e0e0123532c9dccd19e1c97dfaa05fe4188c1ed257e60","tree_size":4,"root":"sha256:ab608396edfb4ddb7de39fee148f65c6b71a34e6b0509921fb3ef0a09c8f9fa1","proof":["sha256:9cc8978b19304fc35fd27a7e826fb080a9ec396bc54fdd6b1f10d4650fdaccad","sha256:dbd792b70c4388ce9c784f2c872507ca27a75e6caa60af7d5c15689cf062f281"],"checkpoint":"localhost/ron-ledger/5bcc73010f8e14294016ddf8346f2f48\n4\nq2CDlu37Tdt945/uFI9lxrcaNOawUJkh+z7woJyPn6E=\n\n— localhost/ron-ledger/5bcc73010f8e14294016ddf8346f2f48 khg+Jl5KYXJYHpngtc6O1cYsU/HnbrTOAq77dHl7bX+qcRRVCjr9QM91J3CwQya0KMr03MbU8tobDO149uLR1RkK8ws=\n"}}`) as ReceiptProof;

const failed = async (p: ReceiptProof) => (await checkReceipt(p, PROOFS_KEY)).filter((c) => c.verdict !== "good").map((c) => c.what);

test("a receipt with its proof holds", async () => {
    assert.deepEqual(await failed(HOLD), []);
    assert.deepEqual(await failed(CAPTURE), []);
});

// Whoever changes a receipt computes its hash again: everything it says must hang on the ledger's signature in another way.
test("no member of a receipt can be changed", async () => {
    const changes: [ReceiptProof, Partial<Receipt>][] = [
        [HOLD, { to: "acct:eve" }],
        [HOLD, { from: "acct:eve" }],
        [HOLD, { amount: "301" }],
        [HOLD, { memo: "x" }],
        [HOLD, { nonce: 2 }],
        [HOLD, { lane: 0 }],
        [HOLD, { ts: "2026-11-18T15:45:16.598Z" }],
        [HOLD, { expires_at: "2027-11-18T16:45:16.597Z" }],
        [HOLD, { released: "1" }],
        [CAPTURE, { from: "acct:eve" }],
        [CAPTURE, { to: "acct:eve" }],
        [CAPTURE, { released: "99" }],
        [CAPTURE, { hold: HOLD.receipt.txid.replace("2", "3") }],
        [CAPTURE, { expires_at: "2027-11-18T16:45:16.597Z" }],
    ];
    for (const [proof, change] of changes) {
        const receipt = { ...proof.receipt, ...change } as Receipt;
        receipt.receipt_hash = await receiptHash(receipt);
        assert.notDeepEqual(await failed({ ...proof, receipt }), [], JSON.stringify(change));
    }
    const { released: _, ...less } = CAPTURE.receipt;
    const receipt = { ...less, receipt_hash: await receiptHash(less) } as Receipt;
    assert.notDeepEqual(await failed({ ...CAPTURE, receipt }), [], "what was given back is left out");
});

test("hex is lower case and even", () => {
    assert.equal(hex(utf8("az")), "617a");
    assert.throws(() => fromHex("ABC"));
});
