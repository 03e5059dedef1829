// Numbers for people, grouped as amounts are. Widths are steady: tabular digits do the rest.
import { formatMoney } from "./money.ts";

export function count(n: number | undefined): string {
    return n === undefined || !Number.isFinite(n) ? "\u2013" : formatMoney(n.toFixed(0));
}

export function rate(n: number | undefined): string {
    if (n === undefined) return "\u2013";
    return n === 0 ? "0" : n < 10 ? n.toFixed(1) : count(n);
}

export function duration(seconds: number | undefined): string {
    if (seconds === undefined) return "\u2013";
    const ms = seconds * 1000;
    if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
    if (ms < 10) return `${ms.toFixed(1)} ms`;
    if (ms < 1000) return `${ms.toFixed(0)} ms`;
    if (seconds < 120) return `${seconds.toFixed(1)} s`;
    if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
    return `${(seconds / 3600).toFixed(0)} h`;
}

export function bytes(n: number | undefined): string {
    if (n === undefined || !Number.isFinite(n)) return "\u2013";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
    return `${i === 0 ? n : n.toFixed(n < 10 ? 1 : 0)} ${units[i]}`;
}

export function time(value: string | number | undefined): string {
    if (value === undefined || value === "") return "\u2013";
    const d = new Date(value);
    return Number.isNaN(d.getTime()) ? String(value) : d.toISOString().replace("T", " ").replace(/\.\d+Z$/, "");
}

/** Whole seconds, minutes, hours or days. */
export function span(seconds: number): string {
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
    return `${Math.round(seconds / 86400)} days`;
}

const passed = (value: string | number) => (Date.now() - new Date(value).getTime()) / 1000;

export function ago(value: string | number | undefined): string {
    const s = value === undefined ? NaN : passed(value);
    if (!Number.isFinite(s)) return "\u2013";
    return s < 1.5 ? "just now" : `${span(s)} ago`;
}

/** How long something has lasted: "for 4 min". */
export function lasting(since: string | number): string {
    const s = passed(since);
    return Number.isFinite(s) ? `for ${span(Math.max(0, s))}` : "";
}

export function short(hash: string, keep = 10): string {
    const body = hash.replace(/^sha256:/, "");
    return body.length > keep + 4 ? `${body.slice(0, keep)}\u2026` : body;
}
