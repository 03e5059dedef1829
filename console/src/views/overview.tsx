// Health, traffic and queues of everything on one page.

import { SERVICES, type Service } from "../lib/api.ts";
import { count, duration, lasting, rate } from "../lib/format.ts";
import { live, queueHistory, type Live, type ServiceView } from "../lib/live.ts";
import { total } from "../lib/prom.ts";
import { link } from "../lib/router.ts";
import { useStore } from "../lib/store.ts";
import { Spark } from "../ui/charts.tsx";
import { Bar, Card, Empty, Loading, Page, Pill, Stat } from "../ui/kit.tsx";

const SAYS: Record<Service, string> = {
    ledger: "The one durable truth about value",
    wallet: "The front door for money",
    mailbox: "Messages under leases, deduplicated",
    rewarder: "Epoch pay-outs that add up",
    edge: "Map packs and content by digest",
};

export function StatePill(p: { view: ServiceView }) {
    const { state, readiness } = p.view;
    if (state === "asking") return <Pill tone="quiet">asking…</Pill>;
    if (state === "absent") return <Pill tone="quiet">not running</Pill>;
    if (!readiness) return <Pill tone="warn">running</Pill>;
    if (!readiness.ready) return <Pill tone="bad" title={(readiness.missing ?? []).join(", ")}>{`waits for ${(readiness.missing ?? ["?"])[0]}`}</Pill>;
    return readiness.degraded ? <Pill tone="warn">degraded</Pill> : <Pill tone="ok">ready</Pill>;
}

function ServiceCard(p: { service: Service; view: ServiceView }) {
    const { view } = p;
    const depth = [...(view.scrapes.at(-1)?.queues.values() ?? [])].filter((q) => /_tx|_rx|^work|^ingress|^commit|^preval|^read/.test(q.name));
    const waiting = depth.reduce((n, q) => n + q.depth, 0);
    const running = view.state === "running";
    return (
        <a class={"card service" + (running ? "" : " dim")} href={link("topology", p.service)}>
            <header class="card-head">
                <h2>{p.service}</h2>
                <StatePill view={view} />
            </header>
            <p class="says">{SAYS[p.service]}</p>
            <Spark data={view.rates} label={`requests per second of the ${p.service}`} height={40} />
            <dl class="stats">
                <Stat label="requests" unit="/s">
                    {rate(running ? view.rates.at(-1) ?? 0 : undefined)}
                </Stat>
                <Stat label="p50">{duration(view.p50)}</Stat>
                <Stat label="p99">{duration(view.p99)}</Stat>
                <Stat label="queued">{count(running ? waiting : undefined)}</Stat>
            </dl>
            <p class="since">{view.readiness?.since ? `${view.readiness.ready ? "ready" : "waiting"} ${lasting(view.readiness.since)}` : "\u00a0"}</p>
        </a>
    );
}

const one = (view: ServiceView, ...names: string[]): number | undefined => {
    const found = names.find((n) => view.metrics?.has(n));
    return found ? total(view.metrics!, found) : undefined;
};

function Figures(p: { live: Live }) {
    const { ledger, wallet, mailbox, rewarder, edge } = p.live;
    const queue = (name: string) => (mailbox.state === "running" ? mailbox.scrapes.at(-1)?.queues.get(name)?.depth : undefined);
    const answered = (view: ServiceView) => view.scrapes.at(-1)?.requests;
    return (
        <dl class="figures">
            <Stat label="ledger entries">{count(one(ledger, "ledger_head_seq", "head_seq", "ledger_entries_total", "commits_total"))}</Stat>
            <Stat label="wallet calls">{count(wallet.state === "running" ? answered(wallet) : undefined)}</Stat>
            <Stat label="messages ready">{count(queue("ready"))}</Stat>
            <Stat label="under lease">{count(queue("leased"))}</Stat>
            <Stat label="dead letters">{count(queue("dlq"))}</Stat>
            <Stat label="rewarder calls">{count(rewarder.state === "running" ? answered(rewarder) : undefined)}</Stat>
            <Stat label="edge hits">{count(one(edge, "edge_cache_hits_total"))}</Stat>
        </dl>
    );
}

// These are amounts of messages in a state, or permits that lie ready, not queues between tasks.
const NO_QUEUE = new Set(["ready", "delayed", "leased", "dlq", "done", "io_permits"]);

function Queues(p: { live: Live; of: readonly Service[] }) {
    const rows = p.of.flatMap((s) => [...(p.live[s].scrapes.at(-1)?.queues.values() ?? [])].filter((q) => !NO_QUEUE.has(q.name)).map((q) => ({ s, q })));
    if (p.of.every((s) => p.live[s].state === "asking")) return <Loading lines={6} />;
    return (
        <div class="scroll">
            <table>
                <thead>
                    <tr>
                        <th>Service</th>
                        <th>Queue</th>
                        <th class="n">Depth</th>
                        <th class="wide-only">Two minutes</th>
                        <th class="n">Refused</th>
                        <th class="n">Dropped</th>
                    </tr>
                </thead>
                <tbody>
                    {rows.map(({ s, q }) => (
                        <tr key={s + q.name}>
                            <td>{s}</td>
                            <td>
                                <code>{q.name}</code>
                            </td>
                            <td class="n depth">
                                {count(q.depth)}
                                {q.capacity !== undefined && <span class="of"> / {count(q.capacity)}</span>}
                                {q.capacity !== undefined && <Bar value={q.depth} max={q.capacity} label={`${q.name} fill`} />}
                            </td>
                            <td class="wide-only">
                                <Spark data={queueHistory(p.live[s], q.name)} label={`depth of ${q.name}`} height={22} tone="thin" />
                            </td>
                            <td class={"n" + (q.rejected ? " warn" : " zero")}>{count(q.rejected)}</td>
                            <td class={"n" + (q.dropped ? " bad" : " zero")}>{count(q.dropped)}</td>
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

// Of about the same length, side by side where there is room.
const HALVES: readonly (readonly Service[])[] = [
    ["ledger", "wallet"],
    ["mailbox", "rewarder", "edge"],
];

export function Overview() {
    const now = useStore(live);
    const halves = HALVES.filter((of) => of.some((s) => now[s].state !== "absent"));
    return (
        <Page title="Overview" sub="Five services on one machine, asked every two seconds.">
            <div class="services">
                {SERVICES.map((s) => (
                    <ServiceCard key={s} service={s} view={now[s]} />
                ))}
                <Card title="In numbers" class="numbers">
                    <Figures live={now} />
                </Card>
            </div>
            <Card title="Queues" note="bounded, every one; full ones refuse or drop, and count it">
                {halves.length === 0 && <Empty title="No queues to show">Queues appear as soon as a service runs.</Empty>}
                <div class={halves.length > 1 ? "two halves" : "halves"}>
                    {halves.map((of) => (
                        <Queues key={of[0]} live={now} of={of} />
                    ))}
                </div>
            </Card>
        </Page>
    );
}
