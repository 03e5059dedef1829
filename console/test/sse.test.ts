import assert from "node:assert/strict";
import { test } from "node:test";
import { EventReader } from "../src/lib/sse.ts";

const text = ': hello\n\nid: 7\nevent: root\ndata: {"seq":7}\n\nevent: lagged\r\ndata: one\r\ndata:two\r\n\r\nid: 9\n\ndata\n\n';
const want = [
    { event: "root", id: "7", data: '{"seq":7}' },
    { event: "lagged", data: "one\ntwo" },
    { event: "message", data: "" },
];

test("events are the same however the stream is cut", () => {
    for (let size = 1; size <= text.length; size++) {
        const reader = new EventReader();
        const got = [];
        for (let at = 0; at < text.length; at += size) got.push(...reader.take(text.slice(at, at + size)));
        assert.deepEqual(got, want, `pieces of ${size}`);
    }
});

test("an event that is not finished is not told", () => {
    assert.deepEqual(new EventReader().take("data: half\n"), []);
});
