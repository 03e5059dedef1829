// What an operator does: reload, log level, restart a task, safe mode, drain. All of it needs the admin capability.

import { useState } from "preact/hooks";
import { call, callText, get, post, SERVICES, type Service } from "../lib/api.ts";
import { count } from "../lib/format.ts";
import { live } from "../lib/live.ts";
import { token } from "../lib/session.ts";
import { useStore } from "../lib/store.ts";
import { Authorized, Card, Confirm, Empty, Failure, Loading, Page, Pill, Show, useResource } from "../ui/kit.tsx";
import { StatePill } from "./overview.tsx";

interface Task {
    name: string;
    kind: string;
    state: string;
    escalated: boolean;
    drain_step: number;
    spawned: number;
    restarts: number;
}

const LAST_STEP = 31; // event loops: they carry the answers of everybody else, so they end after them

const LEVELS = ["debug", "info", "warn", "error", "off"];

function LogLevel(p: { service: Service; say: (text: string) => void; fail: (e: unknown) => void }) {
    const level = useResource((s) => get<{ level: string }>(p.service, "/admin/log-level", s), [p.service]);
    const set = async (to: string) => {
        await call(p.service, `/admin/log-level?level=${to}`, { method: "PUT" });
        p.say(`logs from ${to} on`);
    };
    return (
        <label class="field row">
            <span>Log level</span>
            <select value={level.data?.level ?? ""} disabled={!level.data} onChange={(e) => void set(e.currentTarget.value).catch(p.fail).then(level.reload)}>
                {!level.data && <option value="">…</option>}
                {LEVELS.map((l) => (
                    <option key={l}>{l}</option>
                ))}
            </select>
        </label>
    );
}

function SafeMode(p: { say: (text: string) => void }) {
    const state = useResource((s) => get<{ state: string; cause?: string; head_seq: number }>("ledger", "/admin/recovery", s), [], 3000);
    const safe = /safe/i.test(state.data?.state ?? "");
    const act = async (action: "enter" | "ack") => {
        await post("ledger", "/admin/safe-mode", { action, reason: "by hand, in the console" });
        p.say(action === "enter" ? "reads only, from now on" : "writes again");
        state.reload();
    };
    if (!state.data) return null;
    return (
        <>
            {safe && <Pill tone="bad">safe mode{state.data.cause ? `: ${state.data.cause}` : ""}</Pill>}
            {safe ? (
                <Confirm action="End safe mode" title="End safe mode?" onYes={() => act("ack")}>
                    <p>The ledger verifies itself again and then accepts writes.</p>
                </Confirm>
            ) : (
                <Confirm action="Safe mode" title="Put the ledger into safe mode?" tone="danger" onYes={() => act("enter")}>
                    <p>Reads go on; every write is refused with 503 until safe mode is ended here or with `ron`.</p>
                </Confirm>
            )}
        </>
    );
}

function ConfigText(p: { service: Service }) {
    const config = useResource((s) => callText(p.service, "/admin/config", { signal: s }), [p.service]);
    return <Show from={config}>{(text) => <pre class="config">{text}</pre>}</Show>;
}

const troubled = (t: Task) => t.escalated || t.state !== "running";

function summary(tasks: Task[]): string {
    const running = tasks.filter((t) => !troubled(t)).length;
    const restarts = tasks.reduce((n, t) => n + t.restarts, 0);
    const state = running === tasks.length ? `${count(running)} tasks, all running` : `${count(running)} of ${count(tasks.length)} tasks running`;
    return restarts ? `${state}, ${count(restarts)} ${restarts === 1 ? "restart" : "restarts"}` : state;
}

function Tasks(p: { service: Service; say: (text: string) => void }) {
    const tasks = useResource((s) => get<{ tasks: Task[] }>(p.service, "/admin/tasks", s), [p.service], 2000);
    const [opened, setOpened] = useState(false); // trouble opens it, and it stays open
    const restart = async (name: string) => {
        await post(p.service, `/admin/tasks/${encodeURIComponent(name)}/restart`);
        p.say(`${name} is being restarted`);
        tasks.reload();
    };
    return (
        <Show from={tasks} lines={6}>
            {(d) => (
                <details class="tasks" open={opened || d.tasks.some(troubled)} onToggle={(e) => setOpened(e.currentTarget.open)}>
                    <summary>{summary(d.tasks)}</summary>
                    <div class="scroll">
                        <table>
                            <thead>
                                <tr>
                                    <th>Task</th>
                                    <th>State</th>
                                    <th class="n">Restarts</th>
                                    <th class="n">Drain step</th>
                                    <th />
                                </tr>
                            </thead>
                            <tbody>
                                {d.tasks.map((t) => (
                                    <tr key={t.name}>
                                        <td>
                                            <code>{t.name}</code>
                                        </td>
                                        <td>
                                            <Pill tone={t.escalated ? "bad" : troubled(t) ? "warn" : "ok"}>{t.escalated ? "gave up" : t.state}</Pill>
                                        </td>
                                        <td class={"n" + (t.restarts ? " warn" : " zero")}>{count(t.restarts)}</td>
                                        <td class="n">{t.drain_step === LAST_STEP ? "last" : t.drain_step}</td>
                                        <td class="end">
                                            <Confirm action="Restart" title={`Restart ${t.name}?`} small onYes={() => restart(t.name)}>
                                                <p>
                                                    The supervisor ends the task and starts it anew. What it was working on is answered; nothing that was acknowledged is lost.
                                                </p>
                                            </Confirm>
                                        </td>
                                    </tr>
                                ))}
                            </tbody>
                        </table>
                    </div>
                </details>
            )}
        </Show>
    );
}

function One(p: { service: Service }) {
    const [said, say] = useState<string>();
    const [error, setError] = useState<unknown>();
    const [open, setOpen] = useState(false);
    const view = useStore(live)[p.service];
    const reload = async () => {
        setError(undefined);
        try {
            const diff = await callText(p.service, "/admin/reload", { method: "POST" });
            say(diff.trim() && diff.trim() !== "{}" ? `reloaded: ${diff.trim().slice(0, 200)}` : "reloaded, nothing changed");
        } catch (e) {
            setError(e);
        }
    };
    return (
        <Card title={p.service} actions={<StatePill view={view} />} id={"ops-" + p.service}>
            {view.state === "asking" ? (
                <Loading lines={6} />
            ) : view.state === "absent" ? (
                <Empty title="Not running">Nothing to operate.</Empty>
            ) : (
                <>
                    <div class="toolbar">
                        <LogLevel service={p.service} say={say} fail={setError} />
                        <button type="button" onClick={() => void reload()}>
                            Reload configuration
                        </button>
                        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
                            {open ? "Hide configuration" : "Show configuration"}
                        </button>
                        {p.service === "ledger" && <SafeMode say={say} />}
                    </div>
                    <p class="done" role="status">
                        {said ?? "\u00a0"}
                    </p>
                    {error !== undefined && <Failure error={error} />}
                    {open && <ConfigText service={p.service} />}
                    <Tasks service={p.service} say={say} />
                </>
            )}
        </Card>
    );
}

export function Operations() {
    const services = useStore(live);
    const admin = useStore(token);
    const running = SERVICES.find((s) => services[s].state === "running");
    return (
        <Page
            title="Operations"
            sub="Every call here is logged with the key that made it."
            actions={
                admin &&
                running && (
                    <Confirm action="Drain and stop" title="Drain and stop everything?" tone="danger" onYes={() => post(running, "/admin/drain")}>
                        <p>
                            Readiness drops first, intake stops, what is under way is finished, then the process ends: all services that run in it, and this console.
                        </p>
                    </Confirm>
                )
            }
        >
            <Authorized what="Operations">
                {SERVICES.map((s) => (
                    <One key={s} service={s} />
                ))}
            </Authorized>
        </Page>
    );
}
