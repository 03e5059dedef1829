// Topics, sending and receiving by hand, leases that run out, dead letters and their way back.

import { useEffect, useState } from "preact/hooks";
import { call, enc, get, post, Problem } from "../lib/api.ts";
import { fromBase64, toBase64, utf8 } from "../lib/bytes.ts";
import { ago, bytes, count } from "../lib/format.ts";
import { isFinal, Repeats } from "../lib/repeat.ts";
import { go, link } from "../lib/router.ts";
import { createStore, useStore } from "../lib/store.ts";
import { Act, Authorized, Card, Confirm, Empty, Failure, Field, Form, Hash, Page, Pill, Running, Show, useResource } from "../ui/kit.tsx";

interface Topic {
    topic: string;
    shard: number;
    ready: number;
    delayed: number;
    leased: number;
    dlq: number;
    enqueued: number;
    acked: number;
    redelivered: number;
    last_send?: string;
    head?: { topic_seq: number; hash_chain: string };
}
interface Topics {
    topics: Topic[];
    next?: string;
    missing?: { shard: number; detail: string }[];
}
interface Envelope {
    msg_id: string;
    topic: string;
    topic_seq: number;
    ts: string;
    idem_key: string;
    payload_b64: string;
    attrs: Record<string, string>;
    attempt: number;
    lease_ms: number;
    hash_chain: string;
}
interface Dead {
    msg_id: string;
    topic_seq: number;
    idem_key: string;
    size: number;
    attempt: number;
    cause: string;
    reason: string;
    moved_at: string;
    history: { attempt: number; at: string; cause: string; reason: string }[];
}

interface Lease {
    message: Envelope;
    endsAt: number;
    state: "held" | "acked" | "back" | "dead" | "over";
}

const leases = createStore<Lease[]>([]);
// Counts what was done here, so that the lists above and below follow at once.
const deeds = createStore(0);
const did = () => deeds.set(deeds.get() + 1);

function setLease(id: string, change: Partial<Lease>): void {
    did();
    leases.set(leases.get().map((l) => (l.message.msg_id === id ? { ...l, ...change } : l)));
}

function payload(b64: string): string {
    const raw = fromBase64(b64);
    try {
        return new TextDecoder("utf-8", { fatal: true }).decode(raw);
    } catch {
        return `${bytes(raw.length)} of binary data`;
    }
}

function useFollow(reload: () => void): void {
    useEffect(() => deeds.watch(reload), [reload]);
}

// What the list does not show, or nothing when it shows all.
function listed(t: Topics): string | undefined {
    const lacks = (t.missing ?? []).map((m) => `without shard ${m.shard}: ${m.detail}`);
    if (t.next !== undefined) lacks.unshift(`the first ${count(t.topics.length)}; ron mailbox topics lists all`);
    return lacks.length ? lacks.join("; ") : undefined;
}

function Topics(p: { chosen: string }) {
    const topics = useResource((s) => get<Topics>("mailbox", "/v1/topics?limit=200", s), [], 2000);
    useFollow(topics.reload);
    return (
        <Card title="Topics" note={topics.data && listed(topics.data)}>
            <Show from={topics} lines={5}>
                {(t) =>
                    t.topics.length === 0 ? (
                        <Empty title="No topic yet">A topic is made by the first message sent to it.</Empty>
                    ) : (
                        <div class="scroll">
                            <table>
                                <thead>
                                    <tr>
                                        <th>Topic</th>
                                        <th class="n">Ready</th>
                                        <th class="n">Delayed</th>
                                        <th class="n">Leased</th>
                                        <th class="n">Dead</th>
                                        <th class="n">Sent</th>
                                        <th class="n">Acked</th>
                                        <th>Chain head</th>
                                        <th>Last send</th>
                                    </tr>
                                </thead>
                                <tbody>
                                    {t.topics.map((x) => (
                                        <tr key={x.topic} class={x.topic === p.chosen ? "chosen" : ""}>
                                            <td class="name">
                                                <a href={link("mailbox", x.topic)} aria-current={x.topic === p.chosen ? "true" : undefined}>
                                                    {x.topic}
                                                </a>
                                            </td>
                                            <Num n={x.ready} />
                                            <Num n={x.delayed} />
                                            <Num n={x.leased} />
                                            <Num n={x.dlq} tone="bad" />
                                            <Num n={x.enqueued} />
                                            <Num n={x.acked} />
                                            <td>{x.head ? <Hash value={x.head.hash_chain} /> : "–"}</td>
                                            <td class="soft">{ago(x.last_send)}</td>
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

function Num(p: { n: number; tone?: string }) {
    return <td class={"n " + (p.n === 0 ? "zero" : p.tone ?? "")}>{count(p.n)}</td>;
}

const repeats = new Repeats<string>();

function Send(p: { topic: string }) {
    const [sent, setSent] = useState<{ topic_seq: number; duplicate: boolean }>();
    const submit = async (f: FormData) => {
        const topic = String(f.get("topic")).trim();
        const delay = Number(f.get("delay") || 0);
        const message = {
            topic,
            idem_key: String(f.get("key")).trim() || (await repeats.of(JSON.stringify([...f.entries()]), async () => "console-" + crypto.randomUUID())),
            payload_b64: toBase64(utf8(String(f.get("payload")))),
            ...(delay > 0 ? { delay_ms: Math.round(delay * 1000) } : {}),
        };
        const answer = await post<{ topic_seq: number; duplicate: boolean }>("mailbox", "/v1/send", message).catch((e) => {
            if (e instanceof Problem && isFinal(e.status)) repeats.known();
            throw e;
        });
        repeats.known();
        setSent(answer);
        did();
        if (topic !== p.topic) go("mailbox", topic);
    };
    return (
        <Card title="Send">
            <Form submit="Send" onSubmit={submit} class="grid">
                <Field label="Topic" wide>
                    <input name="topic" required defaultValue={p.topic || "orders"} spellcheck={false} autocomplete="off" />
                </Field>
                <Field label="Payload" wide>
                    <textarea name="payload" rows={3} defaultValue={'{"hello":"world"}'} spellcheck={false} />
                </Field>
                <Field label="Idempotency key" hint="made up when empty">
                    <input name="key" autocomplete="off" spellcheck={false} />
                </Field>
                <Field label="Delay" hint="seconds">
                    <input name="delay" type="number" min="0" step="any" placeholder="0" autocomplete="off" />
                </Field>
            </Form>
            {sent && (
                <p class="done" role="status">
                    {sent.duplicate ? "Known already: " : "Durable: "}message {count(sent.topic_seq)} of its topic.
                </p>
            )}
        </Card>
    );
}

function useClock(): number {
    const [now, setNow] = useState(performance.now());
    useEffect(() => {
        const timer = setInterval(() => setNow(performance.now()), 250);
        return () => clearInterval(timer);
    }, []);
    return now;
}

function LeaseRow(p: { lease: Lease; now: number }) {
    const [error, setError] = useState<unknown>();
    const { message: m } = p.lease;
    const left = Math.max(0, p.lease.endsAt - p.now);
    const held = p.lease.state === "held" && left > 0;
    const settle = (path: string, body: Record<string, unknown>, change: (answer: { state?: string; lease_ms?: number }) => Partial<Lease>) => async () => {
        try {
            setError(undefined);
            setLease(m.msg_id, change(await post("mailbox", `/v1/${path}/${m.msg_id}`, { attempt: m.attempt, ...body })));
        } catch (e) {
            setError(e);
        }
    };
    const said = { held: left > 0 ? `${(left / 1000).toFixed(1)} s left` : "lease over", acked: "acked", back: "given back", dead: "dead letter", over: "lease over" }[p.lease.state];
    return (
        <li class="lease">
            <p class="lease-head">
                <Pill tone={held ? "accent" : p.lease.state === "acked" ? "ok" : p.lease.state === "dead" ? "bad" : "quiet"}>{said}</Pill>
                <code>{m.topic}</code>
                <span class="soft">
                    message {count(m.topic_seq)}, attempt {m.attempt}
                </span>
            </p>
            <pre>{payload(m.payload_b64)}</pre>
            {held && (
                <div class="actions">
                    <button type="button" class="small primary" onClick={settle("ack", {}, () => ({ state: "acked" }))}>
                        Ack
                    </button>
                    <button type="button" class="small" onClick={settle("nack", { reason: "given back by hand" }, (a) => ({ state: a.state === "dlq" ? "dead" : "back" }))}>
                        Nack
                    </button>
                    <button type="button" class="small" onClick={settle("extend", { visibility_ms: 30000 }, (a) => ({ endsAt: performance.now() + (a.lease_ms ?? 0) }))}>
                        Extend 30 s
                    </button>
                    <button type="button" class="small danger" onClick={settle("nack", { reason: "declared dead by hand", dead: true }, () => ({ state: "dead" }))}>
                        Dead
                    </button>
                </div>
            )}
            {error !== undefined && <Failure error={error} />}
        </li>
    );
}

function Receive(p: { topic: string }) {
    const held = useStore(leases);
    const now = useClock();
    const [empty, setEmpty] = useState(false);
    const submit = async (f: FormData) => {
        const answer = await post<{ messages: Envelope[] }>("mailbox", "/v1/recv", {
            topic: String(f.get("topic")).trim(),
            visibility_ms: Number(f.get("visibility")) * 1000,
            max_messages: 5,
        });
        const at = performance.now();
        setEmpty(answer.messages.length === 0);
        did();
        leases.set([...answer.messages.map((message) => ({ message, endsAt: at + message.lease_ms, state: "held" as const })), ...leases.get()].slice(0, 12));
    };
    return (
        <Card title="Receive" note="up to five, under a lease">
            <Form submit="Receive" onSubmit={submit} class="grid">
                <Field label="Topic">
                    <input name="topic" required defaultValue={p.topic || "orders"} spellcheck={false} autocomplete="off" />
                </Field>
                <Field label="Lease" hint="seconds">
                    <input name="visibility" type="number" min="1" max="43200" defaultValue="30" required />
                </Field>
            </Form>
            {empty && (
                <p class="done" role="status">
                    Nothing is ready in this topic.
                </p>
            )}
            {held.length > 0 && (
                <ul class="leases">
                    {held.map((l) => (
                        <LeaseRow key={l.message.msg_id + l.message.attempt} lease={l} now={now} />
                    ))}
                </ul>
            )}
        </Card>
    );
}

const REPROCESS_MAX = 100000; // as many as one run takes

function DeadLetters(p: { topic: string }) {
    const [job, setJob] = useState<string>();
    const dead = useResource(
        (s) => get<{ count: number; entries: Dead[] }>("mailbox", `/v1/dlq?topic=${enc(p.topic)}&limit=50`, s),
        [p.topic],
        2000,
    );
    useFollow(dead.reload);
    const reprocess = async (ids?: string[]) => {
        const answer = await post<{ job: string; matched: number }>("mailbox", "/v1/dlq/reprocess", { topic: p.topic, ...(ids ? { ids } : { limit: REPROCESS_MAX }) });
        setJob(`${count(answer.matched)} on their way back`);
        dead.reload();
    };
    const purge = async () => {
        const answer = await call<{ purged: number }>("mailbox", "/v1/dlq/purge", { method: "POST", json: { topic: p.topic, all: true } });
        setJob(`${count(answer.purged)} removed for good`);
        dead.reload();
    };
    const some = (dead.data?.entries.length ?? 0) > 0;
    return (
        <Card
            title="Dead letters"
            note={dead.data && dead.data.entries.length < dead.data.count ? `${p.topic}, ${count(dead.data.entries.length)} of ${count(dead.data.count)}` : p.topic}
            actions={
                some && (
                    <>
                        <Act class="small primary" onPress={() => reprocess()}>
                            Reprocess all
                        </Act>
                        <Confirm action="Purge" title="Remove these dead letters?" small tone="danger" onYes={purge}>
                            <p>
                                All {count(dead.data?.count)} dead letters of <code>{p.topic}</code> are removed. This cannot be undone.
                            </p>
                        </Confirm>
                    </>
                )
            }
        >
            {job && (
                <p class="done" role="status">
                    {job}
                </p>
            )}
            <Show from={dead}>
                {(d) =>
                    d.entries.length === 0 ? (
                        <Empty title="None">Messages that fail too often end here, with their history, and can be sent back.</Empty>
                    ) : (
                        <div class="scroll">
                            <table>
                                <thead>
                                    <tr>
                                        <th class="n">Message</th>
                                        <th>Key</th>
                                        <th>Cause</th>
                                        <th>Last reason</th>
                                        <th class="n">Attempts</th>
                                        <th class="n">Size</th>
                                        <th>Moved</th>
                                        <th />
                                    </tr>
                                </thead>
                                <tbody>
                                    {d.entries.map((e) => (
                                        <tr key={e.msg_id}>
                                            <td class="n">{count(e.topic_seq)}</td>
                                            <td>
                                                <Hash value={e.idem_key} keep={18} />
                                            </td>
                                            <td>
                                                <Pill tone="bad">{e.cause}</Pill>
                                            </td>
                                            <td class="soft" title={e.history.map((h) => `${h.attempt}: ${h.cause} ${h.reason}`).join("\n")}>
                                                {e.reason || "–"}
                                            </td>
                                            <td class="n">{e.attempt}</td>
                                            <td class="n">{bytes(e.size)}</td>
                                            <td class="soft">{ago(e.moved_at)}</td>
                                            <td>
                                                <Act class="small" onPress={() => reprocess([e.msg_id])}>
                                                    Reprocess
                                                </Act>
                                            </td>
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

export function Mailbox(p: { rest: string[] }) {
    const topic = p.rest[0] ?? "";
    return (
        <Page title="Mailbox" sub="Kept until acknowledged, delivered at least once, never twice under one key.">
            <Running service="mailbox">
                <Authorized what="Mailbox calls">
                    <Topics chosen={topic} />
                    <div class="two">
                        <Send key={"s" + topic} topic={topic} />
                        <Receive key={"r" + topic} topic={topic} />
                    </div>
                    {topic ? (
                        <DeadLetters key={topic} topic={topic} />
                    ) : (
                        <Card title="Dead letters">
                            <Empty title="Choose a topic">Its dead letters are listed here.</Empty>
                        </Card>
                    )}
                </Authorized>
            </Running>
        </Page>
    );
}
