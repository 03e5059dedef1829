// The parts every view is made of.

import { Component, type ComponentChildren } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Problem, type Service } from "../lib/api.ts";
import { short } from "../lib/format.ts";
import { live } from "../lib/live.ts";
import { formatMoney } from "../lib/money.ts";
import type { Check } from "../lib/receipt.ts";
import { token } from "../lib/session.ts";
import { useStore } from "../lib/store.ts";

type Children = { children?: ComponentChildren };
export type Tone = "ok" | "warn" | "bad" | "quiet" | "accent";

export function Page(p: { title: string; sub?: ComponentChildren; actions?: ComponentChildren } & Children) {
    useEffect(() => {
        document.title = `${p.title} · RON`;
    }, [p.title]);
    return (
        <>
            <header class="page-head">
                <div>
                    <h1>{p.title}</h1>
                    {p.sub && <p class="sub">{p.sub}</p>}
                </div>
                {p.actions && <div class="actions">{p.actions}</div>}
            </header>
            {p.children}
        </>
    );
}

export function Card(p: { title?: ComponentChildren; note?: ComponentChildren; actions?: ComponentChildren; class?: string; id?: string } & Children) {
    return (
        <section class={"card " + (p.class ?? "")} id={p.id}>
            {(p.title || p.actions) && (
                <header class="card-head">
                    <h2>{p.title}</h2>
                    {p.note && <span class="note">{p.note}</span>}
                    {p.actions && <div class="actions">{p.actions}</div>}
                </header>
            )}
            {p.children}
        </section>
    );
}

export function Pill(p: { tone: Tone; title?: string } & Children) {
    return (
        <span class={"pill " + p.tone} title={p.title}>
            {p.children}
        </span>
    );
}

export function Stat(p: { label: string; unit?: string } & Children) {
    return (
        <div class="stat">
            <dt>{p.label}</dt>
            <dd>
                {p.children}
                {p.unit && <small>{p.unit}</small>}
            </dd>
        </div>
    );
}

export function Money(p: { units: string; asset?: string }) {
    return (
        <span class="money">
            {formatMoney(p.units)}
            {p.asset && <small>{p.asset}</small>}
        </span>
    );
}

export function Hash(p: { value: string; keep?: number; full?: boolean }) {
    const [copied, setCopied] = useState(false);
    const copy = async () => {
        await navigator.clipboard?.writeText(p.value).catch(() => undefined);
        setCopied(true);
        setTimeout(() => setCopied(false), 1200);
    };
    return (
        <button type="button" class={"hash" + (p.full ? " full" : "")} title={`${p.value}\nclick to copy`} onClick={copy} aria-label={`copy ${p.value}`}>
            {copied ? "copied" : p.full ? p.value : short(p.value, p.keep)}
        </button>
    );
}

export function Bar(p: { value: number; max: number | undefined; label: string }) {
    const share = p.max ? Math.min(1, p.value / p.max) : 0;
    const tone = share > 0.9 ? "bad" : share > 0.6 ? "warn" : "ok";
    return (
        <span class="bar" role="meter" aria-label={p.label} aria-valuenow={p.value} aria-valuemin={0} aria-valuemax={p.max}>
            <span class={tone} style={{ width: `${share > 0 ? Math.max(2, share * 100) : 0}%` }} />
        </span>
    );
}

export function Loading(p: { lines?: number }) {
    return (
        <div class="skeleton" role="status" aria-label="loading">
            {Array.from({ length: p.lines ?? 3 }, (_, i) => (
                <span key={i} style={{ width: `${92 - ((i * 23) % 40)}%` }} />
            ))}
        </div>
    );
}

export function Empty(p: { title: string } & Children) {
    return (
        <div class="empty">
            <strong>{p.title}</strong>
            {p.children && <p>{p.children}</p>}
        </div>
    );
}

const EXPLAINED: Record<string, string> = {
    unauthenticated: "The capability is missing, expired or revoked. Paste another one above.",
    forbidden: "This capability does not cover the call.",
    unavailable: "The service cannot do this now.",
    unreachable: "The console's server does not answer. Is `ron up` still running?",
    insufficient_funds: "The account has not enough available.",
    nonce_conflict: "Another transfer of this account came first. Try again.",
    safe_mode: "The service is in safe mode and only reads.",
    busy: "The service sheds load. Try again in a moment.",
    draining: "The service is shutting down.",
    outcome_pending: "Its outcome is not known yet. Press again to ask for it: nothing is done twice.",
};

export function Failure(p: { error: unknown; retry?: () => void }) {
    const e = p.error;
    const code = e instanceof Problem ? e.code : "error";
    return (
        <div class="failure" role="alert">
            <strong>{EXPLAINED[code] ?? (e instanceof Error ? e.message : String(e))}</strong>
            <p>
                <code>{code}</code>
                {e instanceof Problem && EXPLAINED[code] && <span>{e.message}</span>}
            </p>
            {p.retry && (
                <button type="button" class="small" onClick={p.retry}>
                    Try again
                </button>
            )}
        </div>
    );
}

/** Children only when the service runs; says so otherwise. */
export function Running(p: { service: Service } & Children) {
    const view = useStore(live)[p.service];
    if (view.state === "asking")
        return (
            <Card>
                <Loading lines={5} />
            </Card>
        );
    if (view.state === "absent")
        return (
            <Card>
                <Empty title={`The ${p.service} is not running`}>
                    <span>
                        Start it with <code>ron up</code>; this page fills itself as soon as it answers.
                    </span>
                </Empty>
            </Card>
        );
    return <>{p.children}</>;
}

/** Children only with a capability at hand. */
export function Authorized(p: { what: string } & Children) {
    const has = useStore(token);
    if (has) return <>{p.children}</>;
    return (
        <Card>
            <Empty title={`${p.what} need a capability`}>
                <span>
                    Open the link that <code>ron console link</code> prints, or paste the content of <code>operator.token</code> with the key button above.
                </span>
            </Empty>
        </Card>
    );
}

export interface Resource<T> {
    data: T | undefined;
    error: unknown;
    loading: boolean;
    reload: () => void;
}

/** Fetches when the dependencies change, and every so often; what is shown stays until its successor is there. */
export function useResource<T>(fetcher: (signal: AbortSignal) => Promise<T>, deps: unknown[], everyMs?: number): Resource<T> {
    const [state, setState] = useState<{ data?: T; error?: unknown; loading: boolean }>({ loading: true });
    const [again, setAgain] = useState(0);
    const capability = useStore(token);
    const fresh = useRef<string>("");
    const key = JSON.stringify(deps) + capability;
    useEffect(() => {
        const abort = new AbortController();
        let timer: ReturnType<typeof setTimeout> | undefined;
        if (fresh.current !== key) setState({ loading: true });
        fresh.current = key;
        const run = async () => {
            try {
                const data = await fetcher(abort.signal);
                if (!abort.signal.aborted) setState({ data, loading: false });
            } catch (error) {
                if (!abort.signal.aborted) setState((s) => ({ data: s.data, error, loading: false }));
            }
            if (everyMs && !abort.signal.aborted) timer = setTimeout(() => (document.hidden ? (timer = setTimeout(run, everyMs)) : void run()), everyMs);
        };
        void run();
        return () => {
            abort.abort();
            clearTimeout(timer);
        };
    }, [key, again]);
    const reload = useCallback(() => setAgain((n) => n + 1), []);
    return { data: state.data, error: state.error, loading: state.loading, reload };
}

/** One of loading, failure, empty or the thing itself. */
export function Show<T>(p: { from: Resource<T>; lines?: number; children: (data: T) => ComponentChildren }) {
    if (p.from.data !== undefined)
        return (
            <>
                {p.from.error !== undefined && (
                    <p class="pills" role="status">
                        <Pill tone="warn">{`not up to date: ${p.from.error instanceof Error ? p.from.error.message : String(p.from.error)}`}</Pill>
                    </p>
                )}
                {p.children(p.from.data)}
            </>
        );
    if (p.from.error) return <Failure error={p.from.error} retry={p.from.reload} />;
    return <Loading lines={p.lines} />;
}

export function Field(p: { label: string; hint?: string; error?: string; wide?: boolean } & Children) {
    return (
        <label class={"field" + (p.wide ? " wide" : "")}>
            <span>{p.label}</span>
            {p.children}
            {p.error ? <em class="wrong">{p.error}</em> : p.hint ? <em>{p.hint}</em> : null}
        </label>
    );
}

/** A form that is busy while it works and says what went wrong below its buttons. */
export function Form(p: { submit: string; onSubmit: (form: FormData) => Promise<void>; tone?: string; class?: string } & Children) {
    const [state, setState] = useState<{ busy: boolean; error?: unknown }>({ busy: false });
    const submit = async (e: SubmitEvent) => {
        e.preventDefault();
        if (state.busy) return;
        setState({ busy: true });
        try {
            await p.onSubmit(new FormData(e.target as HTMLFormElement));
            setState({ busy: false });
        } catch (error) {
            setState({ busy: false, error });
        }
    };
    return (
        <form class={"form " + (p.class ?? "")} onSubmit={submit}>
            {p.children}
            <div class="form-end">
                <button class={p.tone ?? "primary"} disabled={state.busy} aria-busy={state.busy}>
                    {p.submit}
                </button>
            </div>
            {state.error !== undefined && <Failure error={state.error} />}
        </form>
    );
}

export function Tabs(p: { label: string; tabs: string[]; value: string; onPick: (tab: string) => void }) {
    return (
        <div class="tabs" role="group" aria-label={p.label}>
            {p.tabs.map((t) => (
                <button type="button" key={t} aria-pressed={t === p.value} onClick={() => p.onPick(t)}>
                    {t}
                </button>
            ))}
        </div>
    );
}

export function Checks(p: { checks: Check[] | undefined }) {
    if (!p.checks) return <Loading lines={4} />;
    const bad = p.checks.filter((c) => c.verdict === "bad").length;
    const skipped = p.checks.filter((c) => c.verdict === "skipped").length;
    return (
        <div class="checks" data-verdict={bad ? "bad" : "good"}>
            <p class={"verdict " + (bad ? "bad" : "ok")} role="status">
                {bad ? `${bad} of ${p.checks.length} checks failed` : skipped ? "Proven, with something left unchecked" : "Proven in this browser"}
            </p>
            <ol>
                {p.checks.map((c) => (
                    <li key={c.what} class={c.verdict}>
                        <span>{c.what}</span>
                        {c.detail && <code>{c.detail}</code>}
                    </li>
                ))}
            </ol>
        </div>
    );
}

/** Asks before it does what cannot be undone. */
export function Confirm(p: { action: string; title: string; small?: boolean; tone?: string; onYes: () => Promise<unknown> } & Children) {
    const dialog = useRef<HTMLDialogElement>(null);
    const [error, setError] = useState<unknown>();
    const yes = async () => {
        try {
            setError(undefined);
            await p.onYes();
            dialog.current?.close();
        } catch (e) {
            setError(e);
        }
    };
    return (
        <>
            <button type="button" class={(p.small ? "small " : "") + (p.tone ?? "")} onClick={() => dialog.current?.showModal()}>
                {p.action}
            </button>
            <dialog ref={dialog} aria-label={p.title}>
                <h2>{p.title}</h2>
                <div class="prose">{p.children}</div>
                {error !== undefined && <Failure error={error} />}
                <div class="form-end">
                    <button type="button" onClick={() => dialog.current?.close()} autofocus>
                        Cancel
                    </button>
                    <button type="button" class={p.tone === "danger" ? "danger" : "primary"} onClick={yes}>
                        {p.action}
                    </button>
                </div>
            </dialog>
        </>
    );
}

/** A button that does something at once; what went wrong stands below it, and a second press waits for the first. */
export function Act(p: { class?: string; onPress: () => Promise<unknown> } & Children) {
    const [error, setError] = useState<unknown>();
    const busy = useRef(false);
    const press = async () => {
        if (busy.current) return;
        busy.current = true;
        setError(undefined);
        try {
            await p.onPress();
        } catch (e) {
            setError(e);
        }
        busy.current = false;
    };
    return (
        <>
            <button type="button" class={p.class} onClick={() => void press()}>
                {p.children}
            </button>
            {error !== undefined && <Failure error={error} />}
        </>
    );
}

/** A view that breaks says so and leaves the rest of the console alone. */
export class Guard extends Component<Children & { of: string }, { error?: unknown }> {
    static getDerivedStateFromError(error: unknown) {
        return { error };
    }
    componentDidUpdate(before: { of: string }) {
        if (before.of !== this.props.of && this.state.error) this.setState({ error: undefined });
    }
    render() {
        return this.state.error ? <Failure error={this.state.error} /> : this.props.children;
    }
}
