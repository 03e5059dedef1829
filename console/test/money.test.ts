import assert from "node:assert/strict";
import { test } from "node:test";
import { formatMoney, isMoney, parseMoney, sumMoney } from "../src/lib/money.ts";

const MAX = "340282366920938463463374607431768211455";

test("digits are grouped and none is lost", () => {
    assert.equal(formatMoney("0"), "0");
    assert.equal(formatMoney("999"), "999");
    assert.equal(formatMoney("1234567"), "1\u2009234\u2009567");
    assert.equal(formatMoney(MAX).replaceAll("\u2009", ""), MAX);
    assert.equal(formatMoney("-1500"), "-1\u2009500");
});

test("an amount fits 128 bits and has one spelling", () => {
    assert.ok(isMoney(MAX));
    assert.ok(!isMoney("340282366920938463463374607431768211456"));
    for (const bad of ["", "01", "-1", "1.0", "1e3", " 1"]) assert.ok(!isMoney(bad), bad);
});

test("what a person types becomes units, or nothing", () => {
    assert.equal(parseMoney(" 1 234 "), "1234");
    assert.equal(parseMoney("1'000_000"), "1000000");
    assert.equal(parseMoney("007"), "7");
    for (const bad of ["0", "", "1.5", "1,5", "-3", "abc"]) assert.equal(parseMoney(bad), undefined, bad);
});

test("sums are exact beyond 2^53", () => {
    assert.equal(sumMoney(["9007199254740993", "1", MAX]), (BigInt("9007199254740994") + BigInt(MAX)).toString());
});
