// Money by hand: issue, transfer, burn, hold, capture, release; every receipt with its proof.

import { useEffect, useState } from "preact/hooks";
import { enc, get, post, Problem } from "../lib/api.ts";
import { count, time } from "../lib/format.ts";
import { isMoney, parseMoney } from "../lib/money.ts";
import { isFinal, Repeats } from "../lib/repeat.ts";
import { checkReceipt, type Check, type Receipt, type ReceiptProof } from "../lib/receipt.ts";
import { go, link } from "../lib/router.ts";
import { createStore, useStore } from "../lib/store.ts";
import { Authorized, Card, Checks, Empty, Field, Form, Hash, Money, Page, Pill, Running, Show, Stat, Tabs, useResource } from "../ui/kit.tsx";
import { AccountLink, ledgerKey } from "./ledger.tsx";

interface AccountView {
    account: string;
    assets: { asset: string; available: string; held: string }[];
    as_of_seq: number;
    stale_ms: number;
    degraded: boolean;
}

const OPS = ["Transfer", "Issue", "Hold", "Capture", "Release", "Burn"];

// What this tab did, newest first. The ledger keeps the truth; this is only a list to click on.
const MADE = "ron.wallet.made";
const made = createStore<Receipt[]>(JSON.parse(sessionStorage.getItem(MADE) ?? "[]") as Receipt[]);
function remember(r: Receipt): void {
    const list = [r, ...made.get().filter((m) => m.txid !== r.txid)].slice(0, 20);
    sessionStorage.setItem(MADE, JSON.stringify(list));
    made.set(list);
}

const repeats = new Repeats<{ key: string; body: Record<string, unknown> }>();

const text = (f: FormData, name: string) => String(f.get(name) ?? "").trim();

function amountOf(f: FormData): string {
    const units = parseMoney(text(f, "amount"));
    if (!units) throw new Problem(0, "bad_amount", "An amount is a whole number of minor units above zero.");
    return units;
}

async function bodyOf(op: string, f: FormData): Promise<Record<string, unknown>> {
    const memo = text(f, "memo");
    const body: Record<string, unknown> = memo ? { memo } : {};
    if (op === "capture" || op === "release") {
        body.hold = text(f, "hold");
        if (op === "capture" && text(f, "amount")) body.amount = amountOf(f);
        return body;
    }
    body.asset = text(f, "asset") || "ron";
    body.amount = amountOf(f);
    if (op !== "burn") body.to = text(f, "to");
    if (op === "issue") return body;
    body.from = text(f, "from");
    body.nonce = (await get<{ next: number }>("wallet", `/v1/nonce?account=${enc(String(body.from))}`)).next;
    if (op === "hold" && text(f, "expires_in")) body.expires_in = Number(text(f, "expires_in"));
    return body;
}

function Operation(p: { hold?: string }) {
    const [op, setOp] = useState(p.hold ? "Capture" : "Transfer");
    const name = op.toLowerCase();
    const settles = name === "capture" || name === "release";
    const submit = async (f: FormData) => {
        const words = JSON.stringify([name, ...f.entries()]);
        const { key, body } = await repeats.of(words, async () => ({ key: "console-" + crypto.randomUUID(), body: await bodyOf(name, f) }));
        const receipt = await post<Receipt>("wallet", `/v1/${name}`, body, { "Idempotency-Key": key }).catch((e) => {
            if (e instanceof Problem && isFinal(e.status)) repeats.known();
            throw e;
        });
        repeats.known();
        remember(receipt);
        go("wallet", "tx", receipt.txid);
    };
    return (
        <Card title="Move money" actions={<Tabs label="Operation" tabs={OPS} value={op} onPick={setOp} />}>
            <Form submit={op} onSubmit={submit} class="grid thirds" key={op}>
                {settles ? (
                    <>
                        <Field label="Hold" hint="the id of the hold's receipt" wide>
                            <input name="hold" required pattern="tx_[0-9a-f]{32}" defaultValue={p.hold} spellcheck={false} autocomplete="off" />
                        </Field>
                        {name === "capture" && (
                            <Field label="Amount" hint="all of it when empty">
                                <input name="amount" inputMode="numeric" autocomplete="off" />
                            </Field>
                        )}
                    </>
                ) : (
                    <>
                        {name !== "issue" && (
                            <Field label="From">
                                <input name="from" required placeholder="acct:alice" spellcheck={false} autocomplete="off" />
                            </Field>
                        )}
                        {name !== "burn" && (
                            <Field label="To">
                                <input name="to" required placeholder={name === "issue" ? "acct:alice" : "acct:shop"} spellcheck={false} autocomplete="off" />
                            </Field>
                        )}
                        <Field label="Amount" hint="minor units">
                            <input name="amount" required inputMode="numeric" placeholder="2500" autocomplete="off" />
                        </Field>
                        <Field label="Asset">
                            <input name="asset" defaultValue="ron" spellcheck={false} autocomplete="off" />
                        </Field>
                        {name === "hold" && (
                            <Field label="Expires in" hint="seconds">
                                <input name="expires_in" type="number" min="1" placeholder="3600" autocomplete="off" />
                            </Field>
                        )}
                    </>
                )}
                <Field label="Memo" hint="optional" wide={settles}>
                    <input name="memo" maxLength={160} autocomplete="off" />
                </Field>
            </Form>
        </Card>
    );
}

function ReceiptView(p: { txid: string }) {
    const [checks, setChecks] = useState<Check[]>();
    useEffect(() => scrollTo({ top: 0 }), []);
    const proof = useResource(
        async (s) => {
            const [answer, vkey] = await Promise.all([get<ReceiptProof>("wallet", `/v1/tx/${enc(p.txid)}/proof`, s), ledgerKey()]);
            remember(answer.receipt);
            return { ...answer, vkey };
        },
        [p.txid],
    );
    useEffect(() => {
        setChecks(undefined);
        if (proof.data) void checkReceipt(proof.data, proof.data.vkey).then(setChecks);
    }, [proof.data]);
    return (
        <Card title="Receipt" note="with everything a stranger needs to check it">
            <Show from={proof} lines={7}>
                {({ receipt: r }) => (
                    <div class="split">
                        <div class="receipt">
                            <p class="receipt-op">
                                <Pill tone="accent">{r.op}</Pill>
                                <span class="soft">{time(String(r.ts ?? ""))}</span>
                            </p>
                            <p class="receipt-amount">
                                <Money units={r.amount} asset={r.asset} />
                            </p>
                            <dl class="pairs">
                                {r.from && (
                                    <>
                                        <dt>From</dt>
                                        <dd>
                                            <AccountLink name={String(r.from)} />
                                        </dd>
                                    </>
                                )}
                                {r.to && (
                                    <>
                                        <dt>To</dt>
                                        <dd>
                                            <AccountLink name={String(r.to)} />
                                        </dd>
                                    </>
                                )}
                                {r.memo && (
                                    <>
                                        <dt>Memo</dt>
                                        <dd>{r.memo}</dd>
                                    </>
                                )}
                                {r.released && isMoney(String(r.released)) && (
                                    <>
                                        <dt>Given back</dt>
                                        <dd>
                                            <Money units={String(r.released)} asset={r.asset} />
                                        </dd>
                                    </>
                                )}
                                {r.expires_at && (
                                    <>
                                        <dt>Held until</dt>
                                        <dd>{time(String(r.expires_at))}</dd>
                                    </>
                                )}
                                <dt>Id</dt>
                                <dd>
                                    <Hash value={r.txid} full />
                                </dd>
                                <dt>Ledger</dt>
                                <dd>
                                    <a href={link("ledger", "proof", String(r.seq))}>entry {count(r.seq)}</a> of {count(r.tree_size)}
                                </dd>
                                <dt>Root</dt>
                                <dd>
                                    <Hash value={r.root} keep={20} />
                                </dd>
                            </dl>
                            {r.op === "hold" && (
                                <p>
                                    <a class="button small" href={link("wallet", "settle", r.txid)}>
                                        Capture or release it
                                    </a>
                                </p>
                            )}
                        </div>
                        <Checks checks={checks} />
                    </div>
                )}
            </Show>
        </Card>
    );
}

function Balances() {
    const recent = useStore(made);
    const [name, setName] = useState("");
    const known = [...new Set(recent.flatMap((r) => [r.from, r.to]).filter((a): a is string => typeof a === "string"))].slice(0, 6);
    const shown = name ? [name, ...known.filter((k) => k !== name)] : known;
    return (
        <Card title="Balances">
            <Form submit="Show" class="inline" tone="" onSubmit={async (f) => setName(text(f, "account"))}>
                <Field label="Account">
                    <input name="account" placeholder="acct:alice" spellcheck={false} autocomplete="off" />
                </Field>
            </Form>
            {shown.length === 0 ? (
                <Empty title="No account yet">Issue something to an account, or name one.</Empty>
            ) : (
                shown.map((a) => <Balance key={a} account={a} />)
            )}
        </Card>
    );
}

function Balance(p: { account: string }) {
    const balance = useResource((s) => get<AccountView>("wallet", `/v1/accounts/${enc(p.account)}`, s), [p.account], 3000);
    useEffect(() => made.watch(balance.reload), [balance.reload]);
    return (
        <div class="balance">
            <AccountLink name={p.account} />
            <Show from={balance} lines={1}>
                {(b) =>
                    b.assets.length === 0 ? (
                        <span class="soft">nothing</span>
                    ) : (
                        <>
                            {b.assets.map((a) => (
                                <dl class="stats" key={a.asset}>
                                    <Stat label="available">
                                        <Money units={a.available} asset={a.asset} />
                                    </Stat>
                                    <Stat label="held">
                                        <Money units={a.held} />
                                    </Stat>
                                </dl>
                            ))}
                        </>
                    )
                }
            </Show>
        </div>
    );
}

function Recent() {
    const recent = useStore(made);
    return (
        <Card title="Made in this tab" note="newest first">
            {recent.length === 0 ? (
                <Empty title="Nothing yet">Receipts of what you do here are listed until the tab closes.</Empty>
            ) : (
                <ul class="rows">
                    {recent.map((r) => (
                        <li key={r.txid}>
                            <a href={link("wallet", "tx", r.txid)}>
                                <Pill tone="accent">{r.op}</Pill>
                                <span class="grow">{[r.from, r.to].filter(Boolean).join(" → ")}</span>
                                <Money units={r.amount} asset={r.asset} />
                            </a>
                        </li>
                    ))}
                </ul>
            )}
        </Card>
    );
}

export function Wallet(p: { rest: string[] }) {
    const [what, arg] = p.rest;
    return (
        <Page title="Wallet" sub="Every operation has a key, a nonce, a receipt and a proof.">
            <Running service="wallet">
                <Authorized what="Wallet calls">
                    {what === "tx" && arg && <ReceiptView key={arg} txid={arg} />}
                    <Operation key={what === "settle" ? arg : "op"} hold={what === "settle" ? arg : undefined} />
                    <div class="two">
                        <Balances />
                        <Recent />
                    </div>
                </Authorized>
            </Running>
        </Page>
    );
}
