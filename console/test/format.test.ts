import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, count, lasting, rate, span } from "../src/lib/format.ts";

test("counts are grouped as amounts are", () => {
    assert.equal(count(0), "0");
    assert.equal(count(2000), "2\u2009000");
    assert.equal(count(undefined), "\u2013");
    assert.equal(rate(9.96), "10.0");
    assert.equal(rate(12345.6), "12\u2009346");
});

test("a length of time has one unit", () => {
    assert.equal(span(5), "5 s");
    assert.equal(span(240), "4 min");
    assert.equal(span(7200), "2 h");
    assert.equal(span(172800), "2 days");
});

test("what lasts is told apart from what is past", () => {
    const then = new Date(Date.now() - 240000).toISOString();
    assert.equal(lasting(then), "for 4 min");
    assert.equal(ago(then), "4 min ago");
    assert.equal(ago(Date.now()), "just now");
    assert.equal(ago("never"), "\u2013");
});
