// Packs on a map, fills under way, and what the store holds.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Map as MapLibre, StyleSpecification } from "maplibre-gl";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?url";
import { get, post } from "../lib/api.ts";
import { ago, bytes, count, duration } from "../lib/format.ts";
import { live } from "../lib/live.ts";
import { total } from "../lib/prom.ts";
import { useStore } from "../lib/store.ts";
import { token } from "../lib/session.ts";
import { Act, Card, Confirm, Empty, Failure, Hash, Loading, Page, Pill, Running, Show, Stat, Tabs, useResource } from "../ui/kit.tsx";

interface Pack {
    name: string;
    kind: "pmtiles" | "mbtiles" | "dir";
    bytes: number;
    digest: string | null;
    state: string;
    tiles?: number;
    tile_type?: string;
    minzoom?: number;
    maxzoom?: number;
    since?: string;
    error?: string | null;
}
interface TileJson {
    name?: string;
    tiles: string[];
    minzoom: number;
    maxzoom: number;
    bounds?: [number, number, number, number];
    center?: [number, number, number];
    attribution?: string;
    vector_layers?: { id: string }[];
}
interface Fills {
    queue_depth: number;
    active: { name: string; origin: string; state: string; try: number; bytes: number; waiters: number; age_ms: number }[];
    recent: { name: string; origin: string; result: string; reason?: string; bytes: number; tries: number; ms: number; at: string }[];
    breakers: { origin: string; state: string }[];
}

const css = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Tiles by way of this origin: the page may talk to nobody else. */
function sameOrigin(url: string): string {
    return location.origin + "/api/edge" + url.replace(/^https?:\/\/[^/]+/, "");
}

function styleOf(t: TileJson): StyleSpecification {
    const tiles = t.tiles.map(sameOrigin);
    const raster = !/\.(mvt|pbf)$/.test(t.tiles[0] ?? "");
    const paint = [css("--accent"), css("--series-2"), css("--series-3"), css("--series-4"), css("--series-5")];
    const layers: StyleSpecification["layers"] = [{ id: "ground", type: "background", paint: { "background-color": css("--map-ground") } }];
    if (raster) layers.push({ id: "raster", type: "raster", source: "pack" });
    (raster ? [] : t.vector_layers ?? []).forEach((l, i) => {
        const color = paint[i % paint.length]!;
        const on = { source: "pack", "source-layer": l.id } as const;
        layers.push(
            { id: l.id + ":fill", type: "fill", ...on, filter: ["==", ["geometry-type"], "Polygon"], paint: { "fill-color": color, "fill-opacity": 0.28 } },
            { id: l.id + ":line", type: "line", ...on, filter: ["!=", ["geometry-type"], "Point"], paint: { "line-color": color, "line-width": 1.2 } },
            {
                id: l.id + ":point",
                type: "circle",
                ...on,
                filter: ["==", ["geometry-type"], "Point"],
                paint: { "circle-color": color, "circle-radius": 4, "circle-stroke-color": css("--surface"), "circle-stroke-width": 1 },
            },
        );
    });
    return {
        version: 8,
        sources: {
            pack: raster
                ? { type: "raster", tiles, minzoom: t.minzoom, maxzoom: t.maxzoom, tileSize: 256 }
                : { type: "vector", tiles, minzoom: t.minzoom, maxzoom: t.maxzoom },
        },
        layers,
    };
}

function MapOf(p: { pack: string }) {
    const box = useRef<HTMLDivElement>(null);
    const [error, setError] = useState<unknown>();
    const [drawn, setDrawn] = useState(false);
    const tilejson = useResource((s) => get<TileJson>("edge", `/edge/tiles/${encodeURIComponent(p.pack)}.json`, s), [p.pack]);
    useEffect(() => {
        const t = tilejson.data;
        if (!t || !box.current) return;
        let map: MapLibre | undefined;
        let gone = false;
        const start = async () => {
            const [{ Map, NavigationControl, setWorkerUrl }] = await Promise.all([import("maplibre-gl"), import("maplibre-gl/dist/maplibre-gl.css")]);
            if (gone || !box.current) return;
            setWorkerUrl(new URL(workerUrl, location.href).href);
            map = new Map({
                container: box.current,
                style: styleOf(t),
                attributionControl: t.attribution ? { customAttribution: t.attribution } : false,
                renderWorldCopies: false,
                minZoom: 0,
                maxZoom: t.maxzoom + 3,
                ...(t.bounds ? { bounds: t.bounds, fitBoundsOptions: { padding: 12 } } : { center: [0, 0], zoom: t.minzoom }),
            });
            map.addControl(new NavigationControl({ showCompass: false }), "top-right");
            map.on("idle", () => setDrawn(true));
            map.on("error", (e) => setError(e.error));
        };
        start().catch(setError);
        // Its colours are the page's, so they change with it.
        const dress = () => map?.setStyle(styleOf(t));
        const chosen = new MutationObserver(dress);
        chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
        const system = matchMedia("(prefers-color-scheme: dark)");
        system.addEventListener("change", dress);
        return () => {
            gone = true;
            chosen.disconnect();
            system.removeEventListener("change", dress);
            map?.remove();
        };
    }, [tilejson.data]);
    if (tilejson.error && !tilejson.data) return <Failure error={tilejson.error} retry={tilejson.reload} />;
    return (
        <>
            <div class="map" ref={box} data-drawn={drawn} role="application" aria-label={`map of the pack ${p.pack}`}>
                {!tilejson.data && <Loading lines={6} />}
            </div>
            {error !== undefined && <Failure error={error} />}
            {tilejson.data && (
                <p class="soft">
                    Zoom {tilejson.data.minzoom} to {tilejson.data.maxzoom}
                    {tilejson.data.vector_layers?.length ? `, layers ${tilejson.data.vector_layers.map((l) => l.id).join(", ")}` : ""}
                </p>
            )}
        </>
    );
}

function Packs(p: { onPick: (name: string) => void; chosen: string }) {
    const packs = useResource((s) => get<{ generation: number; published_at?: string; packs: Pack[] }>("edge", "/admin/packs", s), [], 5000);
    useEffect(() => {
        const first = packs.data?.packs.find((k) => k.kind !== "dir" && k.state === "mounted");
        if (first && !packs.data!.packs.some((k) => k.name === p.chosen)) p.onPick(first.name);
    }, [packs.data]);
    return (
        <Card
            title="Packs"
            note={packs.data ? `generation ${packs.data.generation}` : undefined}
            actions={
                <Act class="small" onPress={() => post("edge", "/admin/packs/reload").finally(packs.reload)}>
                    Reload
                </Act>
            }
        >
            <Show from={packs}>
                {(d) =>
                    d.packs.length === 0 ? (
                        <Empty title="No pack is mounted">Put a .pmtiles or .mbtiles file into the packs folder and reload.</Empty>
                    ) : (
                        <div class="scroll">
                            <table>
                                <thead>
                                    <tr>
                                        <th>Pack</th>
                                        <th>Kind</th>
                                        <th>State</th>
                                        <th class="n">Tiles</th>
                                        <th>Zoom</th>
                                        <th class="n">Size</th>
                                        <th>Digest</th>
                                    </tr>
                                </thead>
                                <tbody>
                                    {d.packs.map((k) => (
                                        <tr key={k.name} class={k.name === p.chosen ? "chosen" : ""}>
                                            <td>
                                                {k.kind === "dir" ? (
                                                    k.name
                                                ) : (
                                                    <button type="button" class="plain link" onClick={() => p.onPick(k.name)}>
                                                        {k.name}
                                                    </button>
                                                )}
                                            </td>
                                            <td>{k.kind}</td>
                                            <td>
                                                <Pill tone={k.state === "mounted" ? "ok" : "bad"} title={k.error ?? undefined}>
                                                    {k.state}
                                                </Pill>
                                            </td>
                                            <td class="n">{count(k.tiles)}</td>
                                            <td>{k.minzoom !== undefined ? `${k.minzoom}–${k.maxzoom}` : "–"}</td>
                                            <td class="n">{bytes(k.bytes)}</td>
                                            <td>{k.digest ? <Hash value={k.digest} /> : k.kind === "dir" || k.state !== "mounted" ? "–" : <span class="soft">being sealed</span>}</td>
                                        </tr>
                                    ))}
                                </tbody>
                            </table>
                        </div>
                    )
                }
            </Show>
        </Card>
    );
}

function FillsCard() {
    const fills = useResource((s) => get<Fills>("edge", "/admin/fills", s), [], 2000);
    const [tab, setTab] = useState("Recent");
    return (
        <Card title="Fills" actions={<Tabs label="Fills" tabs={["Recent", "Active"]} value={tab} onPick={setTab} />}>
            <Show from={fills}>
                {(f) => (
                    <>
                        {f.breakers.some((b) => b.state !== "closed") && (
                            <p class="pills">
                                {f.breakers.filter((b) => b.state !== "closed").map((b) => (
                                    <Pill key={b.origin} tone="bad">{`${b.origin}: breaker ${b.state}`}</Pill>
                                ))}
                            </p>
                        )}
                        {tab === "Active" &&
                            (f.active.length === 0 ? (
                                <Empty title="Nothing is being fetched" />
                            ) : (
                                <ul class="rows">
                                    {f.active.map((a) => (
                                        <li key={a.name}>
                                            <span>
                                                <Pill tone="accent">{a.state}</Pill>
                                                <span class="grow">{a.name}</span>
                                                <span class="n">{bytes(a.bytes)}</span>
                                                <span class="n soft">{count(a.waiters)} wait</span>
                                            </span>
                                        </li>
                                    ))}
                                </ul>
                            ))}
                        {tab === "Recent" &&
                            (f.recent.length === 0 ? (
                                <Empty title="No fills yet">Offline, or nothing was missing: everything came from packs and the store.</Empty>
                            ) : (
                                <ul class="rows">
                                    {f.recent.slice(0, 12).map((r) => (
                                        <li key={r.at + r.name}>
                                            <span>
                                                <Pill tone={r.result === "ok" || r.result === "stored" ? "ok" : "bad"}>{r.result}</Pill>
                                                <span class="grow">{r.name}</span>
                                                <span class="n">{bytes(r.bytes)}</span>
                                                <span class="n">{duration(r.ms / 1000)}</span>
                                                <span class="soft">{ago(r.at)}</span>
                                            </span>
                                        </li>
                                    ))}
                                </ul>
                            ))}
                    </>
                )}
            </Show>
        </Card>
    );
}

function StoreCard() {
    const m = useStore(live).edge.metrics;
    const [verified, setVerified] = useState<string>();
    const hits = m ? total(m, "edge_cache_hits_total") : 0;
    const misses = m ? total(m, "edge_cache_misses_total") : 0;
    return (
        <Card
            title="Store"
            actions={
                useStore(token) && (
                    <Confirm
                        action="Verify"
                        title="Hash every stored object again?"
                        small
                        onYes={async () => {
                            const r = await post<{ state: string; objects: number; corrupt: string[] }>("edge", "/admin/cas/verify", { wait_ms: 5000 });
                            setVerified(r.state === "done" ? `${count(r.objects)} objects checked, ${count(r.corrupt.length)} corrupt` : "under way");
                        }}
                    >
                        <p>Reads the whole store once. Serving goes on meanwhile.</p>
                    </Confirm>
                )
            }
        >
            <dl class="figures">
                <Stat label="objects">{count(m && total(m, "edge_cas_objects"))}</Stat>
                <Stat label="stored">{bytes(m && total(m, "edge_cas_bytes"))}</Stat>
                <Stat label="hits">{count(hits)}</Stat>
                <Stat label="misses">{count(misses)}</Stat>
                <Stat label="evicted">{count(m && total(m, "edge_cas_evictions_total"))}</Stat>
            </dl>
            {verified && (
                <p class="done" role="status">
                    {verified}
                </p>
            )}
        </Card>
    );
}

export function Edge(p: { rest: string[] }) {
    const [pack, setPack] = useState(p.rest[0] ?? "demo");
    const admin = useStore(token);
    return (
        <Page title="Edge" sub="Maps and files by digest, straight from packs; missing ones fetched once and verified.">
            <Running service="edge">
                <Card title={`Pack ${pack}`} class="mapcard">
                    <MapOf key={pack} pack={pack} />
                </Card>
                {admin ? (
                    <>
                        <Packs chosen={pack} onPick={setPack} />
                        <div class="two">
                            <FillsCard />
                            <StoreCard />
                        </div>
                    </>
                ) : (
                    <StoreCard />
                )}
            </Running>
        </Page>
    );
}
