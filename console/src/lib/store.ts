// A value that components can watch. Small enough to read, and all the state management the console needs.

import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
    get(): T;
    set(value: T): void;
    watch(fn: () => void): () => void;
}

export function createStore<T>(value: T): Store<T> {
    const watchers = new Set<() => void>();
    return {
        get: () => value,
        set(next) {
            value = next;
            for (const fn of [...watchers]) fn();
        },
        watch(fn) {
            watchers.add(fn);
            return () => void watchers.delete(fn);
        },
    };
}

export function useStore<T>(store: Store<T>): T {
    const [, redraw] = useState(0);
    useEffect(() => store.watch(() => redraw((n) => n + 1)), [store]);
    return store.get();
}
