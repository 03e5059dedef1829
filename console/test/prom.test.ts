import assert from "node:assert/strict";
import { test } from "node:test";
import { buckets, bucketsSince, parseMetrics, quantile, total } from "../src/lib/prom.ts";

const TEXT = `# HELP http_requests_total Requests answered.
# TYPE http_requests_total counter
http_requests_total{service="mailbox",route="/v1/send",status="200"} 12
http_requests_total{service="mailbox",route="/a\\"b\\\\c",status="500"} 3 1700000000000
ready 1
this is no sample
lat_bucket{op="a",le="0.1"} 5
lat_bucket{op="a",le="+Inf"} 10
lat_bucket{op="b",le="0.1"} 5
lat_bucket{op="b",le="+Inf"} 10
`;

test("samples are read with their labels, escapes and time stamps", () => {
    const m = parseMetrics(TEXT);
    assert.equal(m.get("ready")![0]!.value, 1);
    assert.equal(m.get("http_requests_total")![1]!.labels.route, '/a"b\\c');
    assert.equal(m.get("http_requests_total")![1]!.value, 3);
});

test("a line that is no sample hides nothing", () => {
    assert.deepEqual([...parseMetrics(TEXT).keys()], ["http_requests_total", "ready", "lat_bucket"]);
});

test("totals take only what is wanted", () => {
    const m = parseMetrics(TEXT);
    assert.equal(total(m, "http_requests_total"), 15);
    assert.equal(total(m, "http_requests_total", (l) => l.status === "500"), 3);
    assert.equal(total(m, "absent"), 0);
});

test("buckets add up over labels and quantiles are linear inside one", () => {
    const b = buckets(parseMetrics(TEXT), "lat");
    assert.deepEqual(b, [[0.1, 10], [Infinity, 20]]);
    assert.deepEqual(buckets(parseMetrics(TEXT), "lat", (l) => l.op === "a"), [[0.1, 5], [Infinity, 10]]);
    assert.equal(quantile(0.25, b), 0.05);
    assert.equal(quantile(0.99, b), 0.1); // above the last bound: the bound is all that is known
});

test("nothing observed has no quantile", () => {
    assert.equal(quantile(0.5, []), undefined);
    assert.equal(quantile(0.5, [[0.1, 0], [Infinity, 0]]), undefined);
});

test("the difference of two scrapes starts anew after a restart", () => {
    const now: [number, number][] = [[1, 2], [Infinity, 3]];
    assert.deepEqual(bucketsSince(now, [[1, 1], [Infinity, 1]]), [[1, 1], [Infinity, 2]]);
    assert.deepEqual(bucketsSince(now, [[1, 9], [Infinity, 9]]), now);
    assert.deepEqual(bucketsSince(now, undefined), now);
});
