// What the five services say about themselves, asked every two seconds while somebody is looking.

import { request, SERVICES, type Service } from "./api.ts";
import { buckets, bucketsSince, parseMetrics, quantile, total, type Metrics } from "./prom.ts";
import { createStore } from "./store.ts";

const EVERY_MS = 2000;
const ABSENT_EVERY = 4; // a service that does not run is asked less often
const KEPT = 60;
const LATENCY_WINDOW = 15; // scrapes

export interface Readiness {
    ready: boolean;
    degraded?: boolean;
    missing?: string[];
    since?: string;
    [member: string]: unknown;
}

export interface Queue {
    name: string;
    depth: number;
    capacity?: number;
    dropped: number;
    rejected: number;
}

export interface Scrape {
    at: number;
    requests: number;
    latency: [number, number][];
    queues: Map<string, Queue>;
}

export interface ServiceView {
    state: "asking" | "running" | "absent";
    readiness?: Readiness;
    metrics?: Metrics;
    scrapes: Scrape[];
    /** requests per second between neighbouring scrapes */
    rates: number[];
    p50?: number;
    p99?: number;
}

export type Live = Record<Service, ServiceView>;

const blank = (): ServiceView => ({ state: "asking", scrapes: [], rates: [] });
export const live = createStore<Live>(Object.fromEntries(SERVICES.map((s) => [s, blank()])) as Live);

// The console's own questions are no traffic, and how long somebody listens to a stream is no latency.
const OWN = /^\/(metrics|readyz|healthz|version|admin)/;
const STREAM = /\/(stream|events)$/;

function latencyName(m: Metrics): string {
    if (m.has("request_latency_seconds_bucket")) return "request_latency_seconds";
    const other = [...m.keys()].find((k) => /latency_seconds_bucket$/.test(k));
    return other ? other.slice(0, -"_bucket".length) : "request_latency_seconds";
}

const queueLabel = (labels: Record<string, string>) => labels.queue ?? labels.q;

function readQueues(m: Metrics): Map<string, Queue> {
    const out = new Map<string, Queue>();
    const add = (metric: string, field: "depth" | "capacity" | "dropped" | "rejected") => {
        for (const s of m.get(metric) ?? []) {
            const name = queueLabel(s.labels);
            if (!name) continue;
            const q = out.get(name) ?? { name, depth: 0, dropped: 0, rejected: 0 };
            q[field] = (q[field] ?? 0) + s.value;
            out.set(name, q);
        }
    };
    add("queue_depth", "depth");
    add("queue_capacity", "capacity");
    add("queue_dropped_total", "dropped");
    add("drops_total", "dropped");
    add("queue_rejected_total", "rejected");
    add("busy_rejections_total", "rejected");
    return out;
}

function scrapeOf(m: Metrics): Scrape {
    return {
        at: performance.now(),
        requests: total(m, "http_requests_total", (l) => !OWN.test(l.route ?? "")),
        latency: buckets(m, latencyName(m), (l) => !OWN.test(l.route ?? "") && !STREAM.test(l.route ?? "")),
        queues: readQueues(m),
    };
}

function next(view: ServiceView, readiness: Readiness | undefined, m: Metrics): ServiceView {
    const now = scrapeOf(m);
    const before = view.scrapes.at(-1);
    const rate = before ? Math.max(0, (now.requests - before.requests) / ((now.at - before.at) / 1000)) : 0;
    const scrapes = [...view.scrapes, now].slice(-KEPT);
    const window = bucketsSince(now.latency, scrapes.at(-1 - LATENCY_WINDOW)?.latency ?? (scrapes.length > 1 ? scrapes[0]!.latency : undefined));
    const observed = (window.at(-1)?.[1] ?? 0) > 0 ? window : now.latency;
    return {
        state: "running",
        readiness,
        metrics: m,
        scrapes,
        rates: before ? [...view.rates, rate].slice(-KEPT) : [],
        p50: quantile(0.5, observed),
        p99: quantile(0.99, observed),
    };
}

async function ask(service: Service, view: ServiceView): Promise<ServiceView> {
    try {
        const [ready, metrics] = await Promise.all([
            request(service, "/readyz", { open: true }),
            request(service, "/metrics", { open: true }),
        ]);
        if (!metrics.ok) return { ...blank(), state: "absent" };
        const readiness = (await ready.json().catch(() => undefined)) as Readiness | undefined;
        return next(view, readiness && "ready" in readiness ? readiness : undefined, parseMetrics(await metrics.text()));
    } catch {
        return { ...blank(), state: "absent" };
    }
}

let round = 0;

async function askAll(): Promise<void> {
    const now = live.get();
    const asked = SERVICES.filter((s) => now[s].state !== "absent" || round % ABSENT_EVERY === 0);
    round++;
    const answers = await Promise.all(asked.map(async (s) => [s, await ask(s, now[s])] as const));
    live.set({ ...live.get(), ...Object.fromEntries(answers) });
}

/** Ask on, one round after the other, and pause while the tab is hidden. */
export async function watchServices(): Promise<never> {
    for (;;) {
        const began = performance.now();
        if (!document.hidden) await askAll();
        await new Promise((done) => setTimeout(done, Math.max(250, EVERY_MS - (performance.now() - began))));
    }
}

export function queueHistory(view: ServiceView, name: string): number[] {
    return view.scrapes.map((s) => s.queues.get(name)?.depth ?? 0);
}

export function series(view: ServiceView, of: (s: Scrape) => number): number[] {
    return view.scrapes.map(of);
}
