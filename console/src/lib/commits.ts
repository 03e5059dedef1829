// Counts the ledger's commits as its stream of roots tells of them, so that a view can ask anew when there is something new.

import { events, get } from "./api.ts";
import { createStore } from "./store.ts";

const AGAIN_MS = 3000;
const TOGETHER_MS = 200; // a burst of commits is one reason to look again

export const commits = createStore(0);

/** Follows until the signal; a stream that is cut or refused is tried again. */
export async function followCommits(signal: AbortSignal): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const told = () => {
        timer ??= setTimeout(() => {
            timer = undefined;
            commits.set(commits.get() + 1);
        }, TOGETHER_MS);
    };
    while (!signal.aborted) {
        try {
            const head = await get<{ as_of_seq: number }>("ledger", "/v1/entries?from=1&limit=1", signal);
            for await (const _ of events("ledger", `/v1/roots/stream?since=${head.as_of_seq}`, signal)) told();
        } catch {
            // not running, not allowed, or we are leaving
        }
        if (!signal.aborted) await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
    clearTimeout(timer);
}
