// The capability lives in sessionStorage: it ends with the tab and is never in the address bar.

import { createStore } from "./store.ts";

const KEY = "ron.token";

/** `#token=…` is taken once and removed from the address; `&to=/wallet` may follow. */
function takeFromAddress(): string | undefined {
    if (!location.hash.startsWith("#token=")) return undefined;
    const fields = new URLSearchParams(location.hash.slice(1));
    history.replaceState(null, "", location.pathname + "#" + (fields.get("to") ?? "/overview"));
    return fields.get("token")?.trim() || undefined;
}

const given = takeFromAddress();
if (given) sessionStorage.setItem(KEY, given);

export const token = createStore<string | undefined>(sessionStorage.getItem(KEY) ?? undefined);

export function setToken(value: string | undefined): void {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
    token.set(value);
}
