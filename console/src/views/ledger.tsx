// The log itself: head, supply, accounts, entries, roots, and proofs that this browser checks.

import { useEffect, useState } from "preact/hooks";
import { digest, hex } from "../lib/bytes.ts";
import { callText, enc, get, Problem } from "../lib/api.ts";
import { commits, followCommits } from "../lib/commits.ts";
import { ago, count, time } from "../lib/format.ts";
import { verifyConsistency } from "../lib/merkle.ts";
import { parseCheckpoint, verifyCheckpoint, type Verdict } from "../lib/note.ts";
import { checkLedgerProof, type Check, type LedgerProof } from "../lib/receipt.ts";
import { isFinal } from "../lib/repeat.ts";
import { go, link } from "../lib/router.ts";
import { token } from "../lib/session.ts";
import { useStore } from "../lib/store.ts";
import { Authorized, Card, Checks, Empty, Failure, Field, Form, Hash, Loading, Money, Page, Pill, Running, Show, Stat, useResource, type Resource } from "../ui/kit.tsx";

export interface Entry {
    id: string;
    kind: string;
    account: string;
    to?: string;
    asset: string;
    amount: string;
    nonce?: string;
    ref_id?: string;
    ts?: number;
}
interface EntryRow {
    seq: number;
    leaf_hash?: string;
    leaf?: string;
    entry?: Entry;
    ledger_ms?: number;
    unit?: { idem_id: string; seq_start: number; seq_end: number };
    remaining?: string;
    open?: boolean;
    reversed?: string;
}
interface Account {
    account: string;
    balances: { asset: string; available: string; held: string }[];
    nonces: { lane: number; last: string }[];
    as_of_seq: number;
    root: string;
}
interface Key {
    origin: string;
    vkey: string;
}

export const entryOf = (row: EntryRow): Entry => row.entry ?? (row.leaf ? (JSON.parse(row.leaf) as Entry) : (row as unknown as Entry));

export async function ledgerKey(): Promise<string | undefined> {
    try {
        return (await get<Key>("ledger", "/v1/key")).vkey;
    } catch {
        return undefined;
    }
}

const SEEN = "ron.ledger.seen";
interface Seen {
    size: number;
    root: string;
}

interface Head {
    size: number;
    root: string;
    origin: string;
    signature: Verdict;
    /** against the head this tab saw before: did the log only grow? */
    growth: "first" | "same" | "grown" | "forked";
    from: number;
}

async function readHead(): Promise<Head | undefined> {
    let note: string;
    try {
        note = await callText("ledger", "/v1/checkpoint");
    } catch (e) {
        if (e instanceof Problem && e.status === 404) return undefined; // nothing committed yet
        throw e;
    }
    const checkpoint = parseCheckpoint(note);
    const key = await ledgerKey();
    const signature = key ? await verifyCheckpoint(checkpoint, key) : "unsupported";
    const root = "sha256:" + hex(checkpoint.root);
    const head: Head = { size: checkpoint.size, root, origin: checkpoint.origin, signature, growth: "first", from: 0 };
    const seen = JSON.parse(sessionStorage.getItem(SEEN) ?? "null") as Seen | null;
    if (seen && seen.size > 0) {
        head.from = seen.size;
        if (seen.size === head.size) head.growth = seen.root === root ? "same" : "forked";
        else if (seen.size > head.size) head.growth = "forked";
        else {
            const p = await get<{ proof: string[] }>("ledger", `/v1/proof/consistency?from=${seen.size}&to=${head.size}`);
            const good = await verifyConsistency(seen.size, head.size, digest(seen.root), checkpoint.root, p.proof.map(digest));
            head.growth = good ? "grown" : "forked";
        }
    }
    if (head.growth !== "forked" && signature !== "bad") sessionStorage.setItem(SEEN, JSON.stringify({ size: head.size, root }));
    return head;
}

const QUIET_MS = 20000; // asked now and then even when the stream says nothing: it may have been cut

/** What is shown of the ledger is asked for again whenever the ledger tells of a commit. */
function useCommitted<T>(fetcher: (signal: AbortSignal) => Promise<T>, deps: unknown[]): Resource<T> {
    const resource = useResource(fetcher, deps, QUIET_MS);
    useEffect(() => commits.watch(resource.reload), [resource.reload]);
    return resource;
}

function HeadCard() {
    const head = useCommitted(readHead, []);
    return (
        <Card title="Signed head" note="verified here, every time">
            {head.loading && !head.data ? (
                <Loading lines={4} />
            ) : head.error ? (
                <Failure error={head.error} retry={head.reload} />
            ) : !head.data || head.data.size === 0 ? (
                <Empty title="Nothing is committed yet">The first entry gives the log its first root.</Empty>
            ) : (
                <>
                    <dl class="figures">
                        <Stat label="entries">{count(head.data.size)}</Stat>
                        <Stat label="root">
                            <Hash value={head.data.root} keep={12} />
                        </Stat>
                    </dl>
                    <p class="pills">
                        <Pill tone={head.data.signature === "good" ? "ok" : head.data.signature === "bad" ? "bad" : "quiet"}>
                            {head.data.signature === "good" ? "signature good" : head.data.signature === "bad" ? "SIGNATURE BAD" : "no Ed25519 in this browser"}
                        </Pill>
                        <Pill tone={head.data.growth === "forked" ? "bad" : head.data.growth === "first" ? "quiet" : "ok"}>
                            {
                                {
                                    first: "first head this tab has seen",
                                    same: `unchanged since ${count(head.data.from)}`,
                                    grown: `only grew since ${count(head.data.from)}`,
                                    forked: "NOT a continuation of what this tab saw",
                                }[head.data.growth]
                            }
                        </Pill>
                    </p>
                    <p class="soft">{head.data.origin}</p>
                </>
            )}
        </Card>
    );
}

interface Supply {
    assets: { asset: string; minted: string; burned: string; circulating: string; held: string }[];
}

function SupplyCard() {
    const supply = useCommitted((s) => get<Supply>("ledger", "/v1/supply", s), []);
    return (
        <Card title="Supply">
            <Show from={supply}>
                {(s) =>
                    s.assets.length === 0 ? (
                        <Empty title="No asset was minted yet" />
                    ) : (
                        <div class="scroll">
                            <table>
                                <thead>
                                    <tr>
                                        <th>Asset</th>
                                        <th class="n">Circulating</th>
                                        <th class="n">Held</th>
                                        <th class="n">Minted</th>
                                        <th class="n">Burned</th>
                                    </tr>
                                </thead>
                                <tbody>
                                    {s.assets.map((a) => (
                                        <tr key={a.asset}>
                                            <td>{a.asset}</td>
                                            <td class="n">
                                                <Money units={a.circulating} />
                                            </td>
                                            <td class="n">
                                                <Money units={a.held} />
                                            </td>
                                            <td class="n">
                                                <Money units={a.minted} />
                                            </td>
                                            <td class="n">
                                                <Money units={a.burned} />
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

export function AccountLink(p: { name: string }) {
    return <a href={link("ledger", "account", p.name)}>{p.name}</a>;
}

export function EntryTable(p: { rows: EntryRow[] }) {
    return (
        <div class="scroll">
            <table class="entries">
                <thead>
                    <tr>
                        <th class="n">Seq</th>
                        <th>Kind</th>
                        <th>Account</th>
                        <th>To</th>
                        <th class="n">Amount</th>
                        <th>Id</th>
                        <th>Proof</th>
                    </tr>
                </thead>
                <tbody>
                    {p.rows.map((row) => {
                        const e = entryOf(row);
                        return (
                            <tr key={row.seq}>
                                <td class="n">{count(row.seq)}</td>
                                <td>
                                    <Pill tone={e.kind === "mint" ? "ok" : e.kind === "burn" ? "bad" : e.kind === "transfer" ? "accent" : "quiet"}>{e.kind}</Pill>
                                </td>
                                <td>
                                    <AccountLink name={e.account} />
                                </td>
                                <td>{e.to ? <AccountLink name={e.to} /> : <span class="zero">–</span>}</td>
                                <td class="n">
                                    <Money units={e.amount} asset={e.asset} />
                                </td>
                                <td>
                                    <Hash value={e.id} keep={16} />
                                </td>
                                <td>
                                    <a class="button small" href={link("ledger", "proof", String(row.seq))}>
                                        Verify
                                    </a>
                                </td>
                            </tr>
                        );
                    })}
                </tbody>
            </table>
        </div>
    );
}

interface Roots {
    roots: { seq: number; root: string; group_no: number; ledger_ms: number }[];
}

const PAGE = 25;

async function latest(before: number | undefined, signal: AbortSignal): Promise<{ rows: EntryRow[]; from: number; head: number }> {
    const probe = await get<{ as_of_seq: number }>("ledger", "/v1/entries?from=1&limit=1", signal);
    const last = Math.min(probe.as_of_seq, before ?? probe.as_of_seq);
    if (last < 1) return { rows: [], from: 0, head: 0 };
    const from = Math.max(1, last - PAGE + 1);
    const answer = await get<{ entries: EntryRow[] }>("ledger", `/v1/entries?from=${from}&limit=${last - from + 1}`, signal);
    return { rows: [...answer.entries].reverse(), from, head: probe.as_of_seq };
}

function Entries() {
    const [before, setBefore] = useState<number>();
    const page = useCommitted((s) => latest(before, s), [before]);
    return (
        <Card
            title="Entries"
            note="newest first"
            actions={
                <>
                    <button type="button" class="small" disabled={!before} onClick={() => setBefore(undefined)}>
                        Newest
                    </button>
                    <button type="button" class="small" disabled={!page.data || page.data.from <= 1} onClick={() => setBefore(page.data!.from - 1)}>
                        Older
                    </button>
                </>
            }
        >
            <Show from={page} lines={8}>
                {(d) => (d.rows.length ? <EntryTable rows={d.rows} /> : <Empty title="The log is empty">Issue something in the wallet, or run the demo.</Empty>)}
            </Show>
        </Card>
    );
}

function RootsCard() {
    const roots = useCommitted(
        async (s) => {
            const head = await get<{ as_of_seq: number }>("ledger", "/v1/entries?from=1&limit=1", s);
            const answer = await get<Roots>("ledger", `/v1/roots?since=${Math.max(0, head.as_of_seq - 200)}&limit=1000`, s);
            return answer.roots.slice(-8).reverse();
        },
        [],
    );
    return (
        <Card title="Roots" note="one for every commit">
            <Show from={roots} lines={5}>
                {(list) =>
                    list.length === 0 ? (
                        <Empty title="No root yet" />
                    ) : (
                        <div class="scroll">
                            <table>
                                <thead>
                                    <tr>
                                        <th class="n">Group</th>
                                        <th class="n">Up to seq</th>
                                        <th>Root</th>
                                        <th>When</th>
                                    </tr>
                                </thead>
                                <tbody>
                                    {list.map((r) => (
                                        <tr key={r.seq}>
                                            <td class="n">{count(r.group_no)}</td>
                                            <td class="n">{count(r.seq)}</td>
                                            <td>
                                                <Hash value={r.root} keep={16} />
                                            </td>
                                            <td class="soft">{ago(r.ledger_ms)}</td>
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

function AccountView(p: { name: string }) {
    const account = useCommitted((s) => get<Account>("ledger", `/v1/accounts/${enc(p.name)}`, s), [p.name]);
    return (
        <Card title={<code>{p.name}</code>} note="one snapshot of one account">
            <Show from={account}>
                {(a) => (
                    <>
                        {a.balances.length === 0 && <Empty title="Nothing here">An account exists once it has received something.</Empty>}
                        {a.balances.map((b) => (
                            <dl class="figures" key={b.asset}>
                                <Stat label={`available, ${b.asset}`}>
                                    <Money units={b.available} />
                                </Stat>
                                <Stat label="held">
                                    <Money units={b.held} />
                                </Stat>
                            </dl>
                        ))}
                        <p class="soft">
                            As of entry {count(a.as_of_seq)}.{" "}
                            {a.nonces.length > 0 && `Nonces: ${a.nonces.map((n) => `lane ${n.lane} at ${BigInt(n.last) & 0xffffffffffffn}`).join(", ")}.`}
                        </p>
                    </>
                )}
            </Show>
        </Card>
    );
}

export function ProofView(p: { seq: number }) {
    const [tampered, setTampered] = useState(false);
    const [checks, setChecks] = useState<Check[]>();
    const proof = useResource(
        async (s) => {
            const [inclusion, rows, vkey] = await Promise.all([
                get<LedgerProof & { seq: number }>("ledger", `/v1/proof/inclusion?seq=${p.seq}`, s),
                get<{ entries: EntryRow[] }>("ledger", `/v1/entries?from=${p.seq}&limit=1`, s),
                ledgerKey(),
            ]);
            const row = rows.entries[0];
            let leaf = row?.leaf;
            if (!leaf && row) leaf = (await get<EntryRow>("ledger", `/v1/entries/${enc(entryOf(row).id)}`, s)).leaf;
            return { inclusion: { ...inclusion, leaf }, row, vkey };
        },
        [p.seq],
    );
    useEffect(() => {
        setChecks(undefined);
        if (!proof.data) return;
        const { inclusion, vkey } = proof.data;
        const shown = tampered ? { ...inclusion, leaf: inclusion.leaf?.replace(/"amount":"(\d)/, (_, d: string) => `"amount":"${(Number(d) % 9) + 1}`) } : inclusion;
        void checkLedgerProof(shown, vkey).then(setChecks);
    }, [proof.data, tampered]);
    return (
        <Card title={`Proof of entry ${count(p.seq)}`} note="computed in this browser with WebCrypto">
            <Show from={proof} lines={6}>
                {({ inclusion, row }) => (
                    <div class="split">
                        <div>
                            <Checks checks={checks} />
                            <label class="check">
                                <input type="checkbox" checked={tampered} onChange={(e) => setTampered(e.currentTarget.checked)} />
                                Change one digit of the amount, to see it fail
                            </label>
                        </div>
                        <dl class="pairs">
                            {row && (
                                <>
                                    <dt>Entry</dt>
                                    <dd>
                                        {entryOf(row).kind} of <Money units={entryOf(row).amount} asset={entryOf(row).asset} />
                                    </dd>
                                    {entryOf(row).ts && (
                                        <>
                                            <dt>Time</dt>
                                            <dd>{time(entryOf(row).ts)}</dd>
                                        </>
                                    )}
                                </>
                            )}
                            <dt>Leaf</dt>
                            <dd>
                                <Hash value={inclusion.leaf_hash} keep={24} />
                            </dd>
                            {inclusion.proof.map((h, i) => (
                                <>
                                    <dt>Step {i + 1}</dt>
                                    <dd>
                                        <Hash value={h} keep={24} />
                                    </dd>
                                </>
                            ))}
                            <dt>Root</dt>
                            <dd>
                                <Hash value={inclusion.root} keep={24} />
                            </dd>
                            {inclusion.leaf && (
                                <>
                                    <dt>Bytes</dt>
                                    <dd>
                                        <code class="leaf">{inclusion.leaf}</code>
                                    </dd>
                                </>
                            )}
                        </dl>
                    </div>
                )}
            </Show>
        </Card>
    );
}

function Search() {
    return (
        <Form
            submit="Look up"
            class="inline"
            onSubmit={async (f) => {
                const q = String(f.get("q")).trim();
                if (!q) return;
                if (/^\d+$/.test(q)) return go("ledger", "proof", q);
                try {
                    const row = await get<EntryRow>("ledger", `/v1/entries/${enc(q)}`);
                    go("ledger", "proof", String(row.seq));
                } catch (e) {
                    if (!(e instanceof Problem && isFinal(e.status))) throw e;
                    go("ledger", "account", q); // there is no such entry, or it cannot be the id of one
                }
            }}
        >
            <Field label="Account, entry id or sequence number">
                <input name="q" placeholder="acct:alice" autocomplete="off" spellcheck={false} />
            </Field>
        </Form>
    );
}

export function Ledger(p: { rest: string[] }) {
    const [what, arg] = p.rest;
    const capability = useStore(token);
    useEffect(() => {
        const leave = new AbortController();
        void followCommits(leave.signal);
        return () => leave.abort();
    }, [capability]);
    return (
        <Page
            title="Ledger"
            sub="Append-only, totally ordered, provable: check it instead of believing it."
            actions={what ? <a class="button" href={link("ledger")}>All entries</a> : undefined}
        >
            <Running service="ledger">
                <Authorized what="Accounts and entries">
                    <Card>
                        <Search />
                    </Card>
                    {what === "account" && arg ? <AccountView key={arg} name={arg} /> : null}
                    {what === "proof" && arg ? <ProofView key={arg} seq={Number(arg)} /> : null}
                    <div class="two">
                        <HeadCard />
                        <SupplyCard />
                    </div>
                    <Entries />
                    <RootsCard />
                </Authorized>
            </Running>
        </Page>
    );
}
