import { render, type ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { SERVICES, type Service } from "./lib/api.ts";
import { live, watchServices, type ServiceView } from "./lib/live.ts";
import { link, route } from "./lib/router.ts";
import { setToken, token } from "./lib/session.ts";
import { useStore } from "./lib/store.ts";
import "./style.css";
import { Guard, type Tone } from "./ui/kit.tsx";
import { Edge } from "./views/edge.tsx";
import { Ledger } from "./views/ledger.tsx";
import { Mailbox } from "./views/mailbox.tsx";
import { Operations } from "./views/operations.tsx";
import { Overview } from "./views/overview.tsx";
import { Rewarder } from "./views/rewarder.tsx";
import { Topology } from "./views/topology.tsx";
import { Wallet } from "./views/wallet.tsx";

const VIEWS: { id: string; title: string; view: ComponentType<{ rest: string[] }>; service?: Service }[] = [
    { id: "overview", title: "Overview", view: Overview },
    { id: "topology", title: "Topology", view: Topology },
    { id: "ledger", title: "Ledger", view: Ledger, service: "ledger" },
    { id: "wallet", title: "Wallet", view: Wallet, service: "wallet" },
    { id: "mailbox", title: "Mailbox", view: Mailbox, service: "mailbox" },
    { id: "rewarder", title: "Rewarder", view: Rewarder, service: "rewarder" },
    { id: "edge", title: "Edge", view: Edge, service: "edge" },
    { id: "operations", title: "Operations", view: Operations },
];

export function toneOf(view: ServiceView): Tone {
    if (view.state !== "running") return "quiet";
    if (!view.readiness?.ready) return "bad";
    return view.readiness.degraded ? "warn" : "ok";
}

type Theme = "light" | "dark" | "";

function ThemeButton() {
    const [theme, setTheme] = useState<Theme>((localStorage.getItem("ron.theme") as Theme | null) ?? "");
    useEffect(() => {
        if (theme) {
            document.documentElement.dataset.theme = theme;
            localStorage.setItem("ron.theme", theme);
        }
    }, [theme]);
    const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    return (
        <button type="button" class="icon" onClick={() => setTheme(dark ? "light" : "dark")} aria-label={dark ? "use light colours" : "use dark colours"}>
            <svg viewBox="0 0 20 20" aria-hidden="true">
                {dark ? (
                    <path d="M10 3v2m0 10v2M3 10h2m10 0h2M5 5l1.4 1.4m7.2 7.2L15 15M5 15l1.4-1.4m7.2-7.2L15 5M13 10a3 3 0 1 1-6 0 3 3 0 0 1 6 0Z" />
                ) : (
                    <path d="M16 11.5A6.5 6.5 0 0 1 8.5 4a6.5 6.5 0 1 0 7.5 7.5Z" />
                )}
            </svg>
        </button>
    );
}

function TokenButton() {
    const has = useStore(token);
    const dialog = useRef<HTMLDialogElement>(null);
    const use = (e: SubmitEvent) => {
        e.preventDefault();
        const text = String(new FormData(e.target as HTMLFormElement).get("token") ?? "").trim();
        if (text) setToken(text);
        (e.target as HTMLFormElement).reset();
        dialog.current?.close();
    };
    return (
        <>
            <button type="button" class={"token" + (has ? " has" : "")} onClick={() => dialog.current?.showModal()}>
                <svg viewBox="0 0 20 20" aria-hidden="true">
                    <path d="M12.5 11a4 4 0 1 0-3.7-2.5L3 14.3V17h2.7v-1.8h1.8v-1.8h1.8l1.2-1.2c.6.5 1.3.8 2 .8ZM13.5 6.5h0" />
                </svg>
                <span>{has ? "Capability set" : "Set capability"}</span>
            </button>
            <dialog ref={dialog} aria-label="Capability">
                <form class="form" onSubmit={use}>
                    <h2>Capability</h2>
                    <p class="prose">
                        Paste a token, such as the content of <code>operator.token</code>. It stays in this tab, is sent only to this server and is
                        forgotten when the tab closes.
                    </p>
                    <label class="field wide">
                        <span>Token</span>
                        <textarea name="token" rows={4} autocomplete="off" spellcheck={false} />
                    </label>
                    <div class="form-end">
                        {has && (
                            <button
                                type="button"
                                onClick={() => {
                                    setToken(undefined);
                                    dialog.current?.close();
                                }}
                            >
                                Forget it
                            </button>
                        )}
                        <button type="button" onClick={() => dialog.current?.close()}>
                            Cancel
                        </button>
                        <button class="primary">Use it</button>
                    </div>
                </form>
            </dialog>
        </>
    );
}

function App() {
    const at = useStore(route);
    const services = useStore(live);
    const main = useRef<HTMLElement>(null);
    const shown = VIEWS.find((v) => v.id === at.view) ?? VIEWS[0]!;
    useEffect(() => {
        scrollTo(0, 0);
        document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    }, [shown.id]);
    const up = SERVICES.filter((s) => services[s].readiness?.ready).length;
    const View = shown.view;
    return (
        <>
            <a
                class="skip"
                href="#main"
                onClick={(e) => {
                    e.preventDefault();
                    main.current?.focus();
                }}
            >
                Skip to content
            </a>
            <header class="top">
                <a class="brand" href={link("overview")} aria-label="RON, overview">
                    <img src="./icon.svg" alt="" width="26" height="26" />
                    <span>RON</span>
                </a>
                <span class="top-health" role="status">
                    {up === SERVICES.length ? "all five ready" : `${up} of five ready`}
                </span>
                <div class="top-end">
                    <TokenButton />
                    <ThemeButton />
                </div>
            </header>
            <nav aria-label="Views">
                {VIEWS.map((v) => (
                    <a key={v.id} href={link(v.id)} aria-current={v.id === shown.id ? "page" : undefined}>
                        {v.title}
                        {v.service && <i class={"dot " + toneOf(services[v.service])} title={services[v.service].state} />}
                    </a>
                ))}
            </nav>
            <main id="main" tabIndex={-1} ref={main} data-view={shown.id}>
                <Guard of={shown.id}>
                    <View key={shown.id} rest={at.rest} />
                </Guard>
            </main>
        </>
    );
}

void watchServices();
render(<App />, document.getElementById("app")!);
