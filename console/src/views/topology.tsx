// A service's tasks and queues, drawn from its own registry and kept moving by its counters.

import { useRef } from "preact/hooks";
import { get, SERVICES, type Service } from "../lib/api.ts";
import { count, rate, span } from "../lib/format.ts";
import { live, type ServiceView } from "../lib/live.ts";
import { link } from "../lib/router.ts";
import { useStore } from "../lib/store.ts";
import { Authorized, Card, Page, Pill, Running, Show, useResource } from "../ui/kit.tsx";

interface DeclaredTask {
    name: string;
    count: number;
    on_fail: string;
    drain_step: number;
    heartbeat_ms: number;
    does: string;
}
interface DeclaredQueue {
    name: string;
    kind: string;
    capacity: number;
    policy: string;
    from: string[];
    to: string[];
    on_full: string;
}
interface LiveQueue {
    name: string;
    depth: number;
    capacity: number;
    high_water: number;
    sent: number;
    received: number;
    rejected: number;
    dropped: number;
}
interface LiveTask {
    name: string;
    kind: string;
    state: string;
    escalated: boolean;
    restarts: number;
}
interface TopologyAnswer {
    declared: {
        tasks: DeclaredTask[];
        queues: DeclaredQueue[];
        locks: { name: string; rank: number; guards: string }[];
        timeouts: { name: string; ms: number; then: string }[];
    };
    queues: LiveQueue[];
    tasks: LiveTask[];
}

interface Flow {
    depth: number;
    capacity: number;
    rate: number;
    refused: number;
    dropped: number;
}

const TASK_W = 158;
const TASK_H = 54;
const QUEUE_W = 136;
const QUEUE_H = 48;
const GAP_X = 26;
const GAP_Y = 30;
const STEP_Y = TASK_H + QUEUE_H + 2 * GAP_Y;
const LANES = 44; // room at both sides for the ways round
const MARGIN = 24; // and above and below

interface Box {
    id: string;
    x: number;
    y: number;
    /** even for tasks, odd for queues, from the top */
    level: number;
}
interface Plan {
    tasks: Box[];
    queues: Box[];
    edges: { from: Box; to: Box; queue: string }[];
    width: number;
    height: number;
    apart: string[];
}

const ids = (list: string[], known: string[]) => list.filter((n) => n !== "all" && n !== "supervisor" && (known.includes(n) || n !== ""));

/** Tasks by the longest way the data takes to them; queues stand between. Ways back are found and do not count. */
function plan(tasks: DeclaredTask[], queues: DeclaredQueue[]): Plan {
    const names = tasks.map((t) => t.name);
    const drawn = queues.filter((q) => ids(q.from, names).length && ids(q.to, names).length && !q.to.includes("all"));
    const nodes = [...new Set(drawn.flatMap((q) => [...ids(q.from, names), ...ids(q.to, names)]))].sort((a, b) => order(a) - order(b));
    function order(n: string): number {
        const at = names.indexOf(n);
        return at < 0 ? -1 : at;
    }
    const next = new Map(nodes.map((n) => [n, new Set<string>()]));
    for (const q of drawn) for (const f of ids(q.from, names)) for (const t of ids(q.to, names)) if (f !== t) next.get(f)!.add(t);
    const back = new Set<string>();
    const seen = new Map<string, "open" | "done">();
    const visit = (n: string): void => {
        seen.set(n, "open");
        for (const m of next.get(n)!) {
            if (seen.get(m) === "open") back.add(n + ">" + m);
            else if (!seen.has(m)) visit(m);
        }
        seen.set(n, "done");
    };
    for (const n of nodes) if (!seen.has(n)) visit(n);
    const column = new Map(nodes.map((n) => [n, 0]));
    for (let i = 0; i < nodes.length; i++)
        for (const n of nodes) for (const m of next.get(n)!) if (!back.has(n + ">" + m)) column.set(m, Math.max(column.get(m)!, column.get(n)! + 1));

    const levels = Math.max(0, ...column.values()) + 1;
    const rows: string[][] = Array.from({ length: levels }, (_, c) => nodes.filter((n) => column.get(n) === c));
    const levelOf = (q: DeclaredQueue) => {
        const to = Math.min(...ids(q.to, names).map((n) => column.get(n)!));
        const from = Math.max(...ids(q.from, names).map((n) => column.get(n)!));
        return from < to ? from : Math.max(0, Math.min(from, levels - 2));
    };
    const queueRows: DeclaredQueue[][] = Array.from({ length: levels }, (_, c) => drawn.filter((q) => levelOf(q) === c));
    const wide = Math.max(520, ...rows.map((r) => r.length * (TASK_W + GAP_X)), ...queueRows.map((r) => r.length * (QUEUE_W + GAP_X)));
    const place = (n: number, i: number, w: number) => LANES + (wide * (i + 0.5)) / n - w / 2;
    const taskBox = new Map<string, Box>();
    rows.forEach((r, c) => r.forEach((id, i) => taskBox.set(id, { id, x: place(r.length, i, TASK_W), y: MARGIN + c * STEP_Y, level: 2 * c })));
    const middle = (q: DeclaredQueue) => {
        const ends = [...ids(q.from, names), ...ids(q.to, names)].map((n) => taskBox.get(n)!.x);
        return ends.reduce((a, b) => a + b, 0) / ends.length;
    };
    const queueBoxes: Box[] = [];
    const edges: Plan["edges"] = [];
    queueRows.forEach((r, c) =>
        [...r]
            .sort((a, b) => middle(a) - middle(b))
            .forEach((q, i) => {
                const box = { id: q.name, x: place(r.length, i, QUEUE_W), y: MARGIN + c * STEP_Y + TASK_H + GAP_Y, level: 2 * c + 1 };
                queueBoxes.push(box);
                for (const f of ids(q.from, names)) edges.push({ from: taskBox.get(f)!, to: box, queue: q.name });
                for (const t of ids(q.to, names)) edges.push({ from: box, to: taskBox.get(t)!, queue: q.name });
            }),
    );
    return {
        tasks: [...taskBox.values()],
        queues: queueBoxes,
        edges,
        width: wide + 2 * LANES,
        height: (levels - 1) * STEP_Y + TASK_H + 2 * MARGIN + (queueRows[levels - 1]?.length ? GAP_Y + QUEUE_H : 0),
        apart: names.filter((n) => !taskBox.has(n)),
    };
}

const sizeOf = (b: Box) => (b.level % 2 ? [QUEUE_W, QUEUE_H] : [TASK_W, TASK_H]) as [number, number];

/** Down to the next level as a curve; anything else goes round by a lane at the side, past the boxes between. */
function curve(from: Box, to: Box, width: number, lane: number): string {
    const [fw, fh] = sizeOf(from);
    const [tw] = sizeOf(to);
    const x1 = from.x + fw / 2;
    const x2 = to.x + tw / 2;
    if (to.level === from.level + 1) {
        const y1 = from.y + fh;
        const bend = (to.y - y1) / 2;
        return `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${to.y - bend} ${x2} ${to.y}`;
    }
    const right = x1 + x2 > width;
    const side = right ? width - LANES + 8 + lane * 9 : LANES - 8 - lane * 9;
    const off = (lane - 1.5) * 8; // several ways round do not lie on each other
    const below = from.y + fh + 8 + lane * 4;
    const above = to.y - 8 - lane * 4;
    return rounded([
        [x1 + off, from.y + fh],
        [x1 + off, below],
        [side, below],
        [side, above],
        [x2 + off, above],
        [x2 + off, to.y],
    ]);
}

/** A line through the points with its corners taken off. */
function rounded(points: [number, number][]): string {
    let d = `M${points[0]!.join(" ")}`;
    for (let i = 1; i < points.length - 1; i++) {
        const [before, at, after] = [points[i - 1]!, points[i]!, points[i + 1]!];
        const cut = (p: [number, number]): [number, number] => {
            const length = Math.hypot(p[0] - at[0], p[1] - at[1]) || 1;
            const r = Math.min(7, length / 2) / length;
            return [at[0] + (p[0] - at[0]) * r, at[1] + (p[1] - at[1]) * r];
        };
        d += `L${cut(before).join(" ")}Q${at.join(" ")} ${cut(after).join(" ")}`;
    }
    return d + `L${points.at(-1)!.join(" ")}`;
}

const bare = (name: string) => name.replace(/_(tx|rx)$/, "");

/** Depth and counters of a queue, from the registry when it has them, from the metrics otherwise. */
function flowOf(q: DeclaredQueue, answer: TopologyAnswer, before: TopologyAnswer | undefined, seconds: number, view: ServiceView): Flow {
    const mine = (a: TopologyAnswer) => a.queues.filter((l) => l.name === q.name || bare(l.name).replace(/[-[]\d+\]?$/, "") === bare(q.name));
    const now = mine(answer);
    const metric = view.scrapes.at(-1)?.queues;
    const counted = metric?.get(q.name) ?? metric?.get(bare(q.name));
    const sum = (of: (l: LiveQueue) => number, list = now) => list.reduce((n, l) => n + of(l), 0);
    const passed = before && seconds > 0 ? Math.max(0, sum((l) => l.received) - sum((l) => l.received, mine(before))) / seconds : 0;
    const depth = now.length ? sum((l) => l.depth) : counted?.depth ?? 0;
    return {
        depth,
        capacity: now.length ? sum((l) => l.capacity) : q.capacity,
        rate: passed,
        refused: Math.max(sum((l) => l.rejected), counted?.rejected ?? 0),
        dropped: Math.max(sum((l) => l.dropped), counted?.dropped ?? 0),
    };
}

function TaskNode(p: { box: Box; declared?: DeclaredTask; running: LiveTask[] }) {
    const bad = p.running.some((t) => t.escalated || (t.state !== "running" && t.state !== "stopped"));
    const restarts = p.running.reduce((n, t) => n + t.restarts, 0);
    return (
        <g class={"task" + (bad ? " bad" : "") + (p.declared ? "" : " outside")} transform={`translate(${p.box.x} ${p.box.y})`}>
            <title>{p.declared ? `${p.box.id}: ${p.declared.does}` : `${p.box.id}: outside this service`}</title>
            <rect width={TASK_W} height={TASK_H} rx="9" />
            <text x="14" y="23" class="name">
                {p.box.id}
            </text>
            <text x="14" y="41" class="small">
                {p.declared ? `${p.declared.count} thread${p.declared.count === 1 ? "" : "s"}` : "outside"}
                {restarts > 0 ? ` · ${restarts} restart${restarts === 1 ? "" : "s"}` : ""}
            </text>
            {p.declared && <circle cx={TASK_W - 15} cy="18" r="4" class={bad ? "bad" : "ok"} />}
        </g>
    );
}

function QueueNode(p: { box: Box; declared: DeclaredQueue; flow: Flow }) {
    const { flow } = p;
    const share = flow.capacity ? Math.min(1, flow.depth / flow.capacity) : 0;
    const lost = flow.dropped + flow.refused;
    return (
        <g class={"queue" + (share > 0.9 ? " bad" : share > 0.6 ? " warn" : "")} transform={`translate(${p.box.x} ${p.box.y})`}>
            <title>{`${p.declared.name} (${p.declared.kind}, ${p.declared.policy} when full): ${p.declared.on_full}`}</title>
            <rect width={QUEUE_W} height={QUEUE_H} rx={QUEUE_H / 2} />
            <text x={QUEUE_W / 2} y="19" text-anchor="middle" class="name">
                {p.declared.name}
            </text>
            <rect class="trough" x="18" y="25" width={QUEUE_W - 36} height="4" rx="2" />
            <rect class="fill" x="18" y="25" width={(QUEUE_W - 36) * share} height="4" rx="2" />
            <text x={QUEUE_W / 2} y="40" text-anchor="middle" class="small">
                {flow.capacity ? `${count(flow.depth)} of ${count(flow.capacity)}` : p.declared.kind}
                {flow.rate > 0 ? ` · ${rate(flow.rate)}/s` : ""}
            </text>
            {lost > 0 && (
                <g class="lost" transform={`translate(${QUEUE_W - 10} 2)`}>
                    <circle r="9" />
                    <text y="3.5" text-anchor="middle">
                        {lost > 99 ? "99+" : lost}
                    </text>
                </g>
            )}
        </g>
    );
}

function Drawing(p: { answer: TopologyAnswer; view: ServiceView }) {
    const past = useRef<{ answer: TopologyAnswer; at: number }[]>([]);
    const now = performance.now();
    if (past.current.at(-1)?.answer !== p.answer) past.current = [...past.current, { answer: p.answer, at: now }].slice(-3);
    const before = past.current.length > 1 ? past.current[0] : undefined;
    const seconds = before ? (past.current.at(-1)!.at - before.at) / 1000 : 0;
    const { declared } = p.answer;
    const layout = plan(declared.tasks, declared.queues);
    const flows = new Map(declared.queues.map((q) => [q.name, flowOf(q, p.answer, before?.answer, seconds, p.view)]));
    const task = new Map(declared.tasks.map((t) => [t.name, t]));
    const queue = new Map(declared.queues.map((q) => [q.name, q]));
    let lanes = -1;
    const running = (name: string) => p.answer.tasks.filter((t) => t.kind === name || t.name === name);
    return (
        <>
            <div class="drawing" tabIndex={0} role="group" aria-label="drawing, scrolls sideways">
                <svg
                    viewBox={`0 0 ${layout.width} ${layout.height}`}
                    style={{ width: `${layout.width}px` }}
                    role="img"
                    aria-label={`${declared.tasks.length} tasks and ${declared.queues.length} queues; the tables below say the same`}
                >
                    <defs>
                        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                            <path d="M0 0.8 7 4 0 7.2Z" />
                        </marker>
                    </defs>
                    {layout.edges.map((e, i) => {
                        const flow = flows.get(e.queue)!;
                        if (e.to.level !== e.from.level + 1) lanes++;
                        const d = curve(e.from, e.to, layout.width, lanes % 4);
                        return (
                            <g key={i} class="edge">
                                <path d={d} marker-end="url(#arrow)" />
                                {flow.rate > 0 && <path d={d} class="moving" style={{ animationDuration: `${Math.max(0.3, 2 / (1 + flow.rate / 20)).toFixed(2)}s` }} />}
                            </g>
                        );
                    })}
                    {layout.tasks.map((b) => (
                        <TaskNode key={b.id} box={b} declared={task.get(b.id)} running={running(b.id)} />
                    ))}
                    {layout.queues.map((b) => (
                        <QueueNode key={b.id} box={b} declared={queue.get(b.id)!} flow={flows.get(b.id)!} />
                    ))}
                </svg>
            </div>
            {layout.apart.length > 0 && (
                <p class="apart">
                    Work by themselves:{" "}
                    {layout.apart.map((n) => (
                        <span key={n} title={task.get(n)?.does}>
                            {n}
                        </span>
                    ))}
                </p>
            )}
        </>
    );
}

function Tables(p: { answer: TopologyAnswer; view: ServiceView }) {
    const { declared } = p.answer;
    return (
        <>
            <Card title="Queues">
                <div class="scroll">
                    <table>
                        <thead>
                            <tr>
                                <th>Queue</th>
                                <th>Kind</th>
                                <th>From</th>
                                <th>To</th>
                                <th class="n">Depth</th>
                                <th class="n">Capacity</th>
                                <th>When full</th>
                            </tr>
                        </thead>
                        <tbody>
                            {declared.queues.map((q) => {
                                const flow = flowOf(q, p.answer, undefined, 0, p.view);
                                return (
                                    <tr key={q.name}>
                                        <td>
                                            <code>{q.name}</code>
                                        </td>
                                        <td>{q.kind}</td>
                                        <td>{q.from.join(", ")}</td>
                                        <td>{q.to.join(", ")}</td>
                                        <td class="n">{count(flow.depth)}</td>
                                        <td class="n">{count(flow.capacity)}</td>
                                        <td class="soft long">{q.on_full}</td>
                                    </tr>
                                );
                            })}
                        </tbody>
                    </table>
                </div>
            </Card>
            <Card title="Tasks">
                <div class="scroll">
                    <table>
                        <thead>
                            <tr>
                                <th>Task</th>
                                <th class="n">Threads</th>
                                <th>On failure</th>
                                <th class="n">Drain step</th>
                                <th class="n">Heartbeat</th>
                                <th>What it does</th>
                            </tr>
                        </thead>
                        <tbody>
                            {declared.tasks.map((t) => (
                                <tr key={t.name}>
                                    <td>
                                        <code>{t.name}</code>
                                    </td>
                                    <td class="n">{t.count}</td>
                                    <td>
                                        <Pill tone={t.on_fail === "restart" ? "quiet" : "warn"}>{t.on_fail}</Pill>
                                    </td>
                                    <td class="n">{t.drain_step}</td>
                                    <td class="n">{t.heartbeat_ms ? span(t.heartbeat_ms / 1000) : "\u2013"}</td>
                                    <td class="soft long">{t.does}</td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            </Card>
        </>
    );
}

function One(p: { service: Service }) {
    const answer = useResource((signal) => get<TopologyAnswer>(p.service, "/admin/topology", signal), [p.service], 1500);
    const view = useStore(live)[p.service];
    return (
        <>
            <Card class="drawn">
                <Show from={answer} lines={8}>
                    {(a) => <Drawing answer={a} view={view} />}
                </Show>
            </Card>
            {answer.data && <Tables answer={answer.data} view={view} />}
        </>
    );
}

export function Topology(p: { rest: string[] }) {
    const services = useStore(live);
    const asked = SERVICES.find((s) => s === p.rest[0]);
    const shown = asked ?? SERVICES.find((s) => services[s].state === "running") ?? "mailbox";
    return (
        <Page title="Topology" sub="Every task and every queue, as the service declares them. Lines move where work does.">
            <nav class="tabs" aria-label="Services">
                {SERVICES.map((s) => (
                    <a key={s} href={link("topology", s)} aria-current={s === shown ? "page" : undefined}>
                        {s}
                    </a>
                ))}
            </nav>
            <Running service={shown}>
                <Authorized what="Admin calls">
                    <One key={shown} service={shown} />
                </Authorized>
            </Running>
        </Page>
    );
}
