// Prometheus text format 0.0.4, and the little arithmetic the console does on it.

export interface Sample {
    labels: Record<string, string>;
    value: number;
}

export type Metrics = Map<string, Sample[]>;

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*,?\s*/y;

function unescape(text: string): string {
    return text.replace(/\\(.)/g, (_, c: string) => (c === "n" ? "\n" : c));
}

function number(text: string): number {
    if (text === "+Inf") return Infinity;
    if (text === "-Inf") return -Infinity;
    return Number(text);
}

function parseLabels(text: string): Record<string, string> | undefined {
    const labels: Record<string, string> = {};
    LABEL.lastIndex = 0;
    while (LABEL.lastIndex < text.length) {
        const match = LABEL.exec(text);
        if (!match) return undefined;
        labels[match[1]!] = unescape(match[2]!);
    }
    return labels;
}

/** Lines that are no samples are passed over: one bad line must not hide the rest. */
export function parseMetrics(text: string): Metrics {
    const out: Metrics = new Map();
    for (const line of text.split("\n")) {
        if (line === "" || line.startsWith("#")) continue;
        const match = LINE.exec(line.trimEnd());
        const labels = match && parseLabels(match[2] ?? "");
        if (!match || !labels) continue;
        const sample = { labels, value: number(match[3]!) };
        const list = out.get(match[1]!);
        if (list) list.push(sample);
        else out.set(match[1]!, [sample]);
    }
    return out;
}

export function total(metrics: Metrics, name: string, want: (labels: Record<string, string>) => boolean = () => true): number {
    return (metrics.get(name) ?? []).reduce((sum, s) => (want(s.labels) ? sum + s.value : sum), 0);
}

/** Cumulative buckets summed over every other label: [upper bound, count], bounds ascending. */
export function buckets(metrics: Metrics, histogram: string, of: (labels: Record<string, string>) => boolean = () => true): [number, number][] {
    const byBound = new Map<number, number>();
    for (const s of metrics.get(histogram + "_bucket") ?? []) {
        if (!of(s.labels)) continue;
        const bound = number(s.labels.le ?? "NaN");
        byBound.set(bound, (byBound.get(bound) ?? 0) + s.value);
    }
    return [...byBound].sort((a, b) => a[0] - b[0]);
}

/** What fell into the buckets between two scrapes; everything when there is no earlier one or the counter began anew. */
export function bucketsSince(now: [number, number][], before: [number, number][] | undefined): [number, number][] {
    if (!before || before.length !== now.length || (before.at(-1)?.[1] ?? 0) > (now.at(-1)?.[1] ?? 0)) return now;
    return now.map(([bound, count], i) => [bound, count - before[i]![1]]);
}

/** Linear inside the bucket, as Prometheus does it. Undefined when nothing was observed. */
export function quantile(q: number, cumulative: [number, number][]): number | undefined {
    const all = cumulative.at(-1)?.[1] ?? 0;
    if (all <= 0) return undefined;
    const rank = q * all;
    let lower = 0;
    let below = 0;
    for (const [bound, count] of cumulative) {
        if (count >= rank && count > below) {
            if (bound === Infinity) return lower;
            return lower + (bound - lower) * ((rank - below) / (count - below));
        }
        lower = bound;
        below = count;
    }
    return lower;
}
