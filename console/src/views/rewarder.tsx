// Epochs: what was paid to whom, how it spreads, and why one account got what it got.

import { useState } from "preact/hooks";
import { call, callText, enc, get, post, Problem, request } from "../lib/api.ts";
import { count, time } from "../lib/format.ts";
import { verifySumProof, type SumProof } from "../lib/merkle.ts";
import { formatMoney } from "../lib/money.ts";
import { verifyWithPem, type Verdict } from "../lib/note.ts";
import type { Check } from "../lib/receipt.ts";
import { go, link } from "../lib/router.ts";
import { Histogram, niceStep, type HistogramBar } from "../ui/charts.tsx";
import { Act, Authorized, Card, Checks, Confirm, Empty, Field, Form, Hash, Money, Page, Pill, Running, Show, Stat, useResource, type Tone } from "../ui/kit.tsx";

interface EpochRow {
    n: number;
    epoch: string;
    state: string;
    policy_id?: string;
    pool?: string;
    payouts?: string;
    dust?: string;
    paid?: number;
    sealed_at?: string;
    settled_at?: string;
}
interface Manifest {
    policy: { asset: string; id: string; rounding: string; funding_account: string };
    pool: { amount: string };
    totals: { score: string; payouts: string; dust: string; paid: number; unpaid: number };
    commitment: { scheme: string; root: string; sum: string; count: number };
    inputs: { rows: number; dims: string[]; digest: string };
}
interface Epoch {
    epoch: string;
    state: string;
    run_key?: string;
    manifest?: Manifest;
    manifest_digest?: string;
    signatures?: { kid: string }[];
    sealed_at?: string;
    settlement?: { chunks: number; done: number; seq_first?: number; seq_last?: number; settled_at?: string };
    held?: { cause: string; since: string };
    quarantine?: { kind: string; reason?: string };
    failure?: { code: string; detail: string };
    progress?: { phase: string; done: number; of: number };
}
interface Payout {
    account: string;
    amount: string;
    asset: string;
    state: string;
    entry_id?: string;
    ledger_seq?: number;
    proof?: SumProof;
    explain: {
        usage: Record<string, number>;
        weights: Record<string, string>;
        score: string;
        score_total: string;
        pool: string;
        floor: string;
        remainder: string;
        rounding: string;
        rank?: number;
        cut?: number;
        rounded?: string;
        why: string;
    };
}

const TONE: Record<string, Tone> = { settled: "ok", sealed: "accent", emitting: "accent", computing: "accent", queued: "quiet", sealing: "quiet", held: "warn", quarantined: "bad", failed: "bad" };
const WHY: Record<string, string> = {
    exact: "The share is a whole number.",
    rounded_up: "The share was rounded up: its remainder is among the largest.",
    rounded_down: "The share was rounded down: others had larger remainders.",
    adjusted_up: "One unit more, so that the pool is paid out exactly.",
    adjusted_down: "One unit less, so that the pool is not exceeded.",
    capped: "The policy caps what one account can get.",
    below_min: "The share is below what the policy pays out at all.",
    zero_score: "No usage that the policy weighs.",
    dust: "This account receives what rounding left over.",
};

function Epochs(p: { chosen?: string }) {
    const epochs = useResource((s) => get<{ epochs: EpochRow[]; next?: number }>("rewarder", "/rewarder/epochs?limit=100", s), [], 3000);
    return (
        <Card title="Epochs" note={epochs.data?.next === undefined ? "newest first" : `the newest ${count(epochs.data.epochs.length)}; ron rewarder list lists all`}>
            <Show from={epochs} lines={5}>
                {(list) =>
                    list.epochs.length === 0 ? (
                        <Empty title="No epoch yet">Compute one below, or with `ron rewarder compute`.</Empty>
                    ) : (
                        <div class="scroll">
                            <table>
                                <thead>
                                    <tr>
                                        <th>Epoch</th>
                                        <th>State</th>
                                        <th>Policy</th>
                                        <th class="n">Pool</th>
                                        <th class="n">Paid out</th>
                                        <th class="n">Dust</th>
                                        <th class="n">Accounts</th>
                                        <th>Sealed</th>
                                    </tr>
                                </thead>
                                <tbody>
                                    {list.epochs.map((e) => (
                                        <tr key={e.epoch} class={e.epoch === p.chosen ? "chosen" : ""}>
                                            <td>
                                                <a href={link("rewarder", e.epoch)} aria-current={e.epoch === p.chosen ? "true" : undefined}>
                                                    {e.epoch}
                                                </a>
                                            </td>
                                            <td>
                                                <Pill tone={TONE[e.state] ?? "quiet"}>{e.state}</Pill>
                                            </td>
                                            <td>{e.policy_id ?? "–"}</td>
                                            <td class="n">{e.pool ? <Money units={e.pool} /> : "–"}</td>
                                            <td class="n">{e.payouts ? <Money units={e.payouts} /> : "–"}</td>
                                            <td class="n">{e.dust ? <Money units={e.dust} /> : "–"}</td>
                                            <td class="n">{count(e.paid)}</td>
                                            <td class="soft">{time(e.sealed_at)}</td>
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

function Summary(p: { epoch: Epoch; reload: () => void }) {
    const { epoch: e } = p;
    const m = e.manifest;
    return (
        <Card
            title={`Epoch ${e.epoch}`}
            note={m ? `${m.policy.id}, ${m.policy.rounding.replace("_", " ")}` : undefined}
            actions={
                <>
                    {(e.state === "sealed" || e.state === "held") && (
                        <Act class="small primary" onPress={() => post("rewarder", `/rewarder/epochs/${enc(e.epoch)}/emit`).finally(p.reload)}>
                            Settle
                        </Act>
                    )}
                    {["sealed", "emitting", "held"].includes(e.state) && (
                        <Confirm
                            action="Quarantine"
                            title={`Quarantine epoch ${e.epoch}?`}
                            small
                            tone="danger"
                            onYes={() => post("rewarder", `/rewarder/epochs/${enc(e.epoch)}/quarantine`, { reason: "by hand, in the console" }).finally(p.reload)}
                        >
                            <p>No further payment of this epoch leaves until it is released.</p>
                        </Confirm>
                    )}
                </>
            }
        >
            <p class="pills">
                <Pill tone={TONE[e.state] ?? "quiet"}>{e.state}</Pill>
                {e.held && <Pill tone="warn">waits for {e.held.cause}</Pill>}
                {e.quarantine && <Pill tone="bad">{e.quarantine.kind}</Pill>}
                {e.failure && <span class="soft">{e.failure.detail}</span>}
                {e.progress && (
                    <span class="soft">
                        {e.progress.phase}: {count(e.progress.done)} of {count(e.progress.of)}
                    </span>
                )}
            </p>
            {m && (
                <>
                    <dl class="figures">
                        <Stat label={`pool, ${m.policy.asset}`}>
                            <Money units={m.pool.amount} />
                        </Stat>
                        <Stat label="paid out">
                            <Money units={m.totals.payouts} />
                        </Stat>
                        <Stat label="dust">
                            <Money units={m.totals.dust} />
                        </Stat>
                        <Stat label="accounts paid">{count(m.totals.paid)}</Stat>
                        <Stat label="unpaid">{count(m.totals.unpaid)}</Stat>
                    </dl>
                    <p class="soft">
                        {BigInt(m.totals.payouts) + BigInt(m.totals.dust) === BigInt(m.pool.amount)
                            ? "Pay-outs and dust add up to the pool exactly."
                            : "Pay-outs and dust do NOT add up to the pool."}{" "}
                        {e.settlement?.seq_first !== undefined && (
                            <>
                                Settled as ledger entries <a href={link("ledger", "proof", String(e.settlement.seq_first))}>{count(e.settlement.seq_first)}</a> to{" "}
                                {count(e.settlement.seq_last)}.
                            </>
                        )}
                    </p>
                    <p>
                        <span class="soft">Commitment </span>
                        <Hash value={m.commitment.root} keep={24} />
                    </p>
                </>
            )}
        </Card>
    );
}

interface Row {
    account: string;
    amount: bigint;
}

function parseCsv(text: string): Row[] {
    return text
        .split("\n")
        .slice(1)
        .filter(Boolean)
        .map((line) => {
            const [account = "", amount = "0"] = line.split(",");
            return { account, amount: BigInt(amount) };
        });
}

const LADDER = [1, 2, 5];

/** 1, 2, 5, 10, 20, … when amounts spread widely, equal steps when they do not. */
function edgesOf(low: number, high: number): number[] {
    if (high / Math.max(1, low) > 20) {
        const all = Array.from({ length: 120 }, (_, i) => LADDER[i % 3]! * 10 ** Math.floor(i / 3));
        const first = all.findLastIndex((e) => e <= low);
        return all.slice(Math.max(0, first), all.findIndex((e) => e > high) + 1);
    }
    const step = Math.max(1, niceStep((high - low) / 2.5));
    const from = Math.floor(low / step) * step;
    return Array.from({ length: Math.floor((high - from) / step) + 2 }, (_, i) => from + i * step);
}

function binsOf(rows: Row[]): HistogramBar[] {
    const amounts = rows.filter((r) => r.amount > 0n).map((r) => Number(r.amount));
    if (amounts.length === 0) return [];
    const [low, high] = amounts.reduce(([l, h], a) => [Math.min(l, a), Math.max(h, a)], [Infinity, 0]); // more than a call takes arguments
    const edges = edgesOf(low, high);
    const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
    return edges.slice(0, -1).map((from, i) => {
        const to = edges[i + 1]!;
        const n = amounts.filter((a) => a >= from && a < to).length;
        return { label: compact.format(from), count: n, detail: `${count(n)} accounts with ${count(from)} to ${count(to - 1)}` };
    });
}

function Distribution(p: { epoch: string; asset: string; onPick: (account: string) => void }) {
    const csv = useResource(async (s) => parseCsv(await callText("rewarder", `/rewarder/epochs/${enc(p.epoch)}/payouts.csv`, { signal: s })), [p.epoch]);
    return (
        <Card title="Distribution" note="accounts by what they were paid">
            <Show from={csv} lines={7}>
                {(rows) => {
                    const sorted = [...rows].sort((a, b) => (a.amount < b.amount ? 1 : a.amount > b.amount ? -1 : 0));
                    const top = sorted.slice(0, 8);
                    const all = rows.reduce((n, r) => n + r.amount, 0n);
                    const tenth = sorted.slice(0, Math.max(1, Math.round(rows.length / 10))).reduce((n, r) => n + r.amount, 0n);
                    const median = sorted[Math.floor(sorted.length / 2)]?.amount ?? 0n;
                    if (all === 0n) return <Empty title="Nobody was paid" />;
                    return (
                        <>
                            <Histogram bars={binsOf(rows)} label="how many accounts were paid how much" xTitle={`paid, ${p.asset}`} yTitle="accounts" />
                            <dl class="figures">
                                <Stat label="median">
                                    <Money units={String(median)} />
                                </Stat>
                                <Stat label="largest">
                                    <Money units={String(sorted[0]!.amount)} />
                                </Stat>
                                <Stat label="top tenth gets">{`${Number((tenth * 1000n) / all) / 10} %`}</Stat>
                            </dl>
                            <ul class="rows">
                                {top.map((r) => (
                                    <li key={r.account}>
                                        <button type="button" class="plain" onClick={() => p.onPick(r.account)}>
                                            <span class="grow">{r.account}</span>
                                            <Money units={String(r.amount)} asset={p.asset} />
                                        </button>
                                    </li>
                                ))}
                            </ul>
                        </>
                    );
                }}
            </Show>
        </Card>
    );
}

interface SignedRun {
    manifest: Manifest;
    verdict: Verdict;
    kid: string;
}

/** run.json as it was signed, with the key that the rewarder publishes. */
async function signedRun(epoch: string, kid: string, signal: AbortSignal): Promise<SignedRun> {
    const file = async (name: string) => {
        const answer = await request("rewarder", `/rewarder/epochs/${enc(epoch)}/artifacts/${name}`, { signal });
        if (!answer.ok) throw new Problem(answer.status, "no_manifest", `${name} of the run is not to be had.`);
        return new Uint8Array(await answer.arrayBuffer());
    };
    const [run, signature, { keys }] = await Promise.all([
        file("run.json"),
        file(`sigs/${enc(kid)}.sig`),
        get<{ keys: { kid: string; pem: string }[] }>("rewarder", "/rewarder/keys", signal),
    ]);
    const pem = keys.find((k) => k.kid === kid)?.pem ?? "";
    return { kid, manifest: JSON.parse(new TextDecoder().decode(run)) as Manifest, verdict: await verifyWithPem(pem, signature, run) };
}

async function checkPayout(p: Payout, run: SignedRun): Promise<Check[]> {
    const m = run.manifest;
    const { explain: x } = p;
    const score = Object.keys(x.usage).reduce((n, dim) => n + BigInt(x.usage[dim]!) * BigInt(x.weights[dim] ?? "0"), 0n);
    const exact = BigInt(x.pool) * BigInt(x.score);
    const total = BigInt(x.score_total);
    const checks: Check[] = [
        { what: "Usage times weights is the score", verdict: score === BigInt(x.score) ? "good" : "bad", detail: formatMoney(x.score) },
        {
            what: "Its share of the pool is right",
            verdict:
                x.pool === m.pool.amount &&
                x.score_total === m.totals.score &&
                (total === 0n || (exact / total === BigInt(x.floor) && exact % total === BigInt(x.remainder)))
                    ? "good"
                    : "bad",
            detail: `${formatMoney(x.floor)} and ${formatMoney(x.remainder)}/${formatMoney(x.score_total)}`,
        },
    ];
    if (!p.proof) return checks;
    checks.push({
        what: "The amount is in the committed tree, and the tree adds up",
        verdict: (await verifySumProof(p.account, p.amount, p.proof)) ? "good" : "bad",
        detail: `sum ${formatMoney(p.proof.sum)}`,
    });
    checks.push({
        what: "The manifest is signed by the rewarder",
        verdict: run.verdict === "unsupported" ? "skipped" : run.verdict,
        detail: run.verdict === "unsupported" ? "this browser has no Ed25519" : `key ${run.kid}`,
    });
    checks.push({
        what: "The signed manifest commits to this tree",
        verdict: p.proof.root === m.commitment.root && p.proof.sum === m.commitment.sum && p.proof.count === m.commitment.count ? "good" : "bad",
        detail: m.commitment.scheme,
    });
    return checks;
}

function Explain(p: { epoch: string; kid: string; account: string; onPick: (account: string) => void }) {
    const payout = useResource(
        async (s) => {
            if (!p.account) return null;
            const [paid, run] = await Promise.all([
                get<Payout>("rewarder", `/rewarder/epochs/${enc(p.epoch)}/payouts?account=${enc(p.account)}`, s),
                signedRun(p.epoch, p.kid, s),
            ]);
            return { ...paid, checks: await checkPayout(paid, run) };
        },
        [p.epoch, p.account],
    );
    return (
        <Card title="Explain" note="recomputed in this browser">
            <Form submit="Explain" class="inline" tone="" onSubmit={async (f) => p.onPick(String(f.get("account")).trim())}>
                <Field label="Account">
                    <input name="account" key={p.account} defaultValue={p.account} placeholder="acct:alice" spellcheck={false} autocomplete="off" />
                </Field>
            </Form>
            {!p.account ? (
                <Empty title="Whose pay-out?">Name an account, or pick one from the list.</Empty>
            ) : (
                <Show from={payout} lines={6}>
                    {(d) =>
                        d && (
                            <>
                                <p class="receipt-amount">
                                    <Money units={d.amount} asset={d.asset} />
                                </p>
                                <p>{WHY[d.explain.why] ?? d.explain.why}</p>
                                <table class="sum">
                                    <tbody>
                                        {Object.entries(d.explain.usage).map(([dim, used]) => (
                                            <tr key={dim}>
                                                <td>{dim}</td>
                                                <td class="n">{count(used)}</td>
                                                <td class="n soft">× {d.explain.weights[dim] ?? "0"}</td>
                                                <td class="n">{formatMoney(String(BigInt(used) * BigInt(d.explain.weights[dim] ?? "0")))}</td>
                                            </tr>
                                        ))}
                                        <tr class="total">
                                            <td>score</td>
                                            <td class="n soft" colSpan={2}>
                                                of {formatMoney(d.explain.score_total)}
                                            </td>
                                            <td class="n">{formatMoney(d.explain.score)}</td>
                                        </tr>
                                    </tbody>
                                </table>
                                <Checks checks={d.checks} />
                                {d.ledger_seq !== undefined && (
                                    <p>
                                        <a href={link("ledger", "proof", String(d.ledger_seq))}>Ledger entry {count(d.ledger_seq)}</a>
                                    </p>
                                )}
                            </>
                        )
                    }
                </Show>
            )}
        </Card>
    );
}

function OneEpoch(p: { id: string }) {
    const [account, setAccount] = useState("");
    const epoch = useResource((s) => get<Epoch>("rewarder", `/rewarder/epochs/${enc(p.id)}`, s), [p.id], 3000);
    const m = epoch.data?.manifest;
    if (!epoch.data)
        return (
            <Card title={`Epoch ${p.id}`}>
                <Show from={epoch}>{() => null}</Show>
            </Card>
        );
    return (
        <>
            <Summary epoch={epoch.data} reload={epoch.reload} />
            {m && (
                <div class="two">
                    <Distribution epoch={p.id} asset={m.policy.asset} onPick={setAccount} />
                    <Explain epoch={p.id} kid={epoch.data.signatures?.[0]?.kid ?? ""} account={account} onPick={setAccount} />
                </div>
            )}
        </>
    );
}

const SAMPLE = "account,points\nacct:alice,120\nacct:bob,75\nacct:carol,31";

function snapshotOf(csv: string, epoch: string): string {
    const [head = "", ...lines] = csv.trim().split(/\r?\n/).map((l) => l.trim()).filter(Boolean);
    const [first, ...dims] = head.split(",").map((c) => c.trim());
    if (first !== "account" || dims.length === 0) throw new Problem(0, "bad_csv", "The first line names the columns: account, then one or more dimensions.");
    const rows = lines.map((line, i) => {
        const [account = "", ...used] = line.split(",").map((c) => c.trim());
        if (used.length !== dims.length || !used.every((u) => /^\d+$/.test(u))) throw new Problem(0, "bad_csv", `Line ${i + 2}: an account and ${dims.length} whole number(s).`);
        return `[${JSON.stringify(account)},${used.join(",")}]`;
    });
    const header = JSON.stringify({ snapshot: 1, tenant: "default", epoch, dims, count: rows.length });
    return [header, ...rows].join("\n") + "\n";
}

function Compute() {
    const submit = async (f: FormData) => {
        const epoch = String(f.get("epoch")).trim();
        const sealed = await call<{ cid: string }>("rewarder", "/rewarder/inputs", {
            method: "PUT",
            body: snapshotOf(String(f.get("csv")), epoch),
            headers: { "Content-Type": "application/x-ndjson" },
        });
        const policy = String(f.get("policy")).trim();
        await post("rewarder", `/rewarder/epochs/${enc(epoch)}/compute`, {
            inputs_cid: sealed.cid,
            ...(policy ? { policy_id: policy } : {}),
        });
        go("rewarder", epoch);
    };
    return (
        <Card title="Compute an epoch" note="seals the usage, computes, and settles into the ledger">
            <Form submit="Compute" onSubmit={submit} class="grid">
                <Field label="Epoch">
                    <input name="epoch" required defaultValue={new Date().toISOString().slice(0, 10)} spellcheck={false} autocomplete="off" />
                </Field>
                <Field label="Policy" hint="the configured one when empty">
                    <input name="policy" spellcheck={false} autocomplete="off" />
                </Field>
                <Field label="Usage" hint="CSV: account, then one column for each dimension" wide>
                    <textarea name="csv" rows={5} defaultValue={SAMPLE} spellcheck={false} />
                </Field>
            </Form>
        </Card>
    );
}

export function Rewarder(p: { rest: string[] }) {
    const [id] = p.rest;
    return (
        <Page title="Rewarder" sub="Pay-outs that add up to the pool exactly, and can be explained to whoever got them.">
            <Running service="rewarder">
                <Authorized what="Epochs">
                    {id && <OneEpoch key={id} id={id} />}
                    <Epochs chosen={id} />
                    <Compute />
                </Authorized>
            </Running>
        </Page>
    );
}
