// Hash routes: #/<view>/<rest…>. Parts are percent-decoded.

import { createStore } from "./store.ts";

export interface Route {
    view: string;
    rest: string[];
}

/** As it stands when it is no percent-encoding: somebody may have typed it. */
function decoded(part: string): string {
    try {
        return decodeURIComponent(part);
    } catch {
        return part;
    }
}

function read(): Route {
    const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
    return { view: parts[0] ?? "overview", rest: parts.slice(1) };
}

export const route = createStore<Route>(read());
addEventListener("hashchange", () => route.set(read()));

export function link(view: string, ...rest: string[]): string {
    return "#/" + [view, ...rest].map(encodeURIComponent).join("/");
}

export function go(view: string, ...rest: string[]): void {
    location.hash = link(view, ...rest);
}
