// Shows archives of an edge in Chromium with maplibre-gl and the npm package pmtiles, from a page of another origin.
// map.mjs EDGE PORT MAPLIBRE DIR   A swap of the pack w is asked for by DIR/swap-now and told by DIR/swapped.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { open } from "./chromium.mjs";

const [edge, port, maplibre, dir] = process.argv.slice(2);
const PAGE = `<!doctype html><title>map</title><link rel="icon" href="data:,"><body style="margin:0"><div id="map" style="height:600px"></div>
<script src="pmtiles.js"></script><script type="module">
import { Map, addProtocol, setWorkerUrl } from "./maplibre-gl.mjs";
setWorkerUrl(new URL("maplibre-gl-worker.mjs", location.href).href);
addProtocol("pmtiles", new pmtiles.Protocol().tile);
const archive = (name) => ({ type: "vector", url: "pmtiles://${edge}/edge/packs/" + name + ".pmtiles" });
const land = { source: "demo", "source-layer": "land" };
window.failed = [];
window.map = new Map({
    container: "map", center: [0, 0], zoom: 1, renderWorldCopies: false, fadeDuration: 0, attributionControl: false,
    style: { version: 8, sources: { w: archive("w"), demo: archive("demo") }, layers: [
        { id: "w", type: "fill", source: "w", "source-layer": "tile", paint: { "fill-antialias": false,
            "fill-color": ["match", ["slice", ["get", "text"], 0, 5], "first", "#f0c040", "secon", "#4080c0", "#000000"] } },
        { id: "land", type: "fill", ...land, paint: { "fill-color": "#406040" } },
    ] },
});
map.on("error", (e) => failed.push(String(e.error)));
map.on("idle", () => (window.idle = true));
</script>`;
const files = { "/pmtiles.js": `${dir}/node_modules/pmtiles/dist/pmtiles.js` };
for (const part of ["", "-shared", "-worker"]) files[`/maplibre-gl${part}.mjs`] = `${maplibre}/maplibre-gl${part}.mjs`;
const server = createServer((rq, rs) => {
    if (rq.url === "/") return rs.setHeader("Content-Type", "text/html").end(PAGE);
    if (!files[rq.url]) return rs.writeHead(404).end();
    rs.setHeader("Content-Type", "text/javascript").end(readFileSync(files[rq.url]));
}).listen(port);

const { context, watch, complaints } = await open(`${dir}/profile`);
const visit = async (host, watched) => {
    const page = await context.newPage();
    page.setDefaultTimeout(60000);
    if (watched) watch(page);
    await page.goto(`http://${host}:${port}/`);
    await page.waitForFunction(() => window.idle || window.failed?.length);
    return page;
};
// What the map shows: the errors it told, what the tiles of w say, the land at a place, and the colour of the sea.
const shown = (page) =>
    page.evaluate(() => {
        const pixel = new Uint8Array(4);
        const { x, y } = map.project([-25, 0]);
        const gl = map.getCanvas().getContext("webgl2");
        map.redraw();
        gl.readPixels(x, gl.drawingBufferHeight - 1 - y, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
        const texts = map.queryRenderedFeatures({ layers: ["w"] }).map((f) => f.properties.text.replaceAll(".", ""));
        const lands = map.queryRenderedFeatures(map.project([20, 5]), { layers: ["land"] }).map((f) => f.properties.name);
        return { failed, texts: [...new Set(texts)].sort(), land: lands[0], sea: [...pixel.slice(0, 3)] };
    });
const rows = (text, z, first, last) => {
    const said = [];
    for (let x = 0; x < 2 ** z; x++) for (let y = first; y <= last; y++) said.push(`${text} ${z}/${x}/${y}`);
    return said;
};

const page = await visit("127.0.0.1", true);
assert.deepEqual(await shown(page), { failed: [], texts: rows("first", 1, 0, 1), land: "Africa", sea: [0xf0, 0xc0, 0x40] });
await page.screenshot({ path: `${dir}/map.png` });
console.log("shown");

// What a script of that origin may read and send. If-None-Match is asked about before it is sent.
const seen = await page.evaluate(async (url) => {
    const part = await fetch(url, { headers: { Range: "bytes=0-6" }, cache: "no-store" });
    const again = await fetch(url, { headers: { "If-None-Match": part.headers.get("ETag") }, cache: "no-store" });
    return [part.status, part.headers.get("Content-Range").split("/")[0], await part.text(), again.status];
}, `${edge}/edge/packs/w.pmtiles`);
assert.deepEqual(seen, [206, "bytes 0-6", "PMTiles", 304]);
console.log("read");

// The client keeps header and directories of the archive; it learns from the next ETag that they are another's.
writeFileSync(`${dir}/swap-now`, "");
while (!existsSync(`${dir}/swapped`)) await new Promise((r) => setTimeout(r, 50));
await page.evaluate(() => {
    window.idle = false;
    map.jumpTo({ center: [0, 0], zoom: 2 });
});
await page.waitForFunction(() => window.idle);
const after = await shown(page);
assert.deepEqual([after.failed, after.texts, after.sea], [[], rows("second", 2, 1, 2), [0x40, 0x80, 0xc0]]);
await page.screenshot({ path: `${dir}/map-after.png` });
console.log("healed");

const stranger = await visit("localhost", false);
const refused = await shown(stranger);
assert.deepEqual([refused.texts, refused.land], [[], undefined]);
assert.match(refused.failed.join(), /Failed to fetch/);
console.log("refused");
await context.close();
server.close();
process.exit(complaints() ? 1 : 0);
