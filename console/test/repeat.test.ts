import assert from "node:assert/strict";
import { test } from "node:test";
import { isFinal, Repeats } from "../src/lib/repeat.ts";

test("the same words keep their key until the outcome is known", async () => {
    let made = 0;
    const repeats = new Repeats<number>();
    const key = (words: string) => repeats.of(words, async () => ++made);
    assert.deepEqual([await key("pay bob 5"), await key("pay bob 5")], [1, 1]);
    assert.equal(await key("pay bob 6"), 2, "other words are another request");
    repeats.known();
    assert.equal(await key("pay bob 6"), 3, "said again after the answer, it is meant again");
});

test("what could not be prepared was not sent", async () => {
    const repeats = new Repeats<number>();
    await assert.rejects(repeats.of("pay", () => Promise.reject(new Error("no nonce"))));
    assert.equal(await repeats.of("pay", async () => 7), 7);
});

test("no answer, a busy and a broken service leave the outcome open; a refusal does not", () => {
    assert.deepEqual([0, 408, 429, 500, 503].filter(isFinal), []);
    assert.deepEqual([400, 403, 409, 422].filter(isFinal), [400, 403, 409, 422]);
});
