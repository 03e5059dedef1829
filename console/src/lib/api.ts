// Calls to the services, all through the console's own origin: /api/<service>/<path>.

import { token } from "./session.ts";
import { EventReader, type ServerEvent } from "./sse.ts";

export const SERVICES = ["ledger", "wallet", "mailbox", "rewarder", "edge"] as const;
export type Service = (typeof SERVICES)[number];

export class Problem extends Error {
    constructor(
        readonly status: number,
        readonly code: string,
        detail: string,
        readonly details: Record<string, unknown> = {},
    ) {
        super(detail);
    }
}

interface Options {
    method?: "GET" | "POST" | "PUT" | "DELETE";
    json?: unknown;
    body?: BodyInit;
    headers?: Record<string, string>;
    /** leave the capability out: the route is open */
    open?: boolean;
    signal?: AbortSignal;
}

async function problemOf(r: Response): Promise<Problem> {
    try {
        const p = (await r.json()) as { code?: string; detail?: string; title?: string; details?: Record<string, unknown> };
        return new Problem(r.status, p.code ?? "error", p.detail ?? p.title ?? r.statusText, p.details);
    } catch {
        return new Problem(r.status, "error", `HTTP ${r.status}`);
    }
}

export async function request(service: Service, path: string, o: Options = {}): Promise<Response> {
    const headers: Record<string, string> = { ...o.headers };
    const capability = token.get();
    if (capability && !o.open) headers.Authorization = "Bearer " + capability;
    if (o.json !== undefined) headers["Content-Type"] = "application/json";
    try {
        return await fetch(`/api/${service}${path}`, {
            method: o.method ?? "GET",
            headers,
            body: o.json !== undefined ? JSON.stringify(o.json) : o.body,
            signal: o.signal,
            cache: "no-store",
        });
    } catch (e) {
        if (e instanceof DOMException && e.name === "AbortError") throw e;
        throw new Problem(0, "unreachable", "the console's server does not answer");
    }
}

export async function call<T>(service: Service, path: string, o: Options = {}): Promise<T> {
    const r = await request(service, path, o);
    if (!r.ok) throw await problemOf(r);
    const text = await r.text();
    return (text ? JSON.parse(text) : {}) as T;
}

export async function callText(service: Service, path: string, o: Options = {}): Promise<string> {
    const r = await request(service, path, o);
    if (!r.ok) throw await problemOf(r);
    return r.text();
}

export const get = <T>(service: Service, path: string, signal?: AbortSignal) => call<T>(service, path, { signal });
export const post = <T>(service: Service, path: string, json: unknown = {}, headers?: Record<string, string>) =>
    call<T>(service, path, { method: "POST", json, headers });

/** The events of one connection; ends when it ends. */
export async function* events(service: Service, path: string, signal: AbortSignal): AsyncGenerator<ServerEvent> {
    const answer = await request(service, path, { headers: { Accept: "text/event-stream" }, signal });
    if (!answer.ok || !answer.body) return;
    const reader = answer.body.getReader();
    const text = new TextDecoder();
    const found = new EventReader();
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        yield* found.take(text.decode(value, { stream: true }));
    }
}

export const enc = encodeURIComponent;
