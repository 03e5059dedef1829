// Small drawings: sparklines and a bar histogram. Sizes are fixed, so nothing jumps when data comes.

export function Spark(p: { data: number[]; label: string; width?: number; height?: number; points?: number; tone?: string }) {
    const w = p.width ?? 160;
    const h = p.height ?? 34;
    const points = p.points ?? 60;
    const top = Math.max(1e-9, ...p.data);
    const x = (i: number) => w - ((p.data.length - 1 - i) * w) / (points - 1);
    const y = (v: number) => h - 2 - (v / top) * (h - 5);
    const line = p.data.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
    return (
        <svg class={"spark " + (p.tone ?? "")} viewBox={`0 0 ${w} ${h}`} preserveAspectRatio="none" role="img" aria-label={p.label}>
            <line class="base" x1="0" x2={w} y1={h - 1.5} y2={h - 1.5} />
            {p.data.length > 1 && (
                <>
                    <polygon points={`${x(0)},${h - 1.5} ${line} ${w},${h - 1.5}`} />
                    <polyline points={line} vector-effect="non-scaling-stroke" />
                </>
            )}
        </svg>
    );
}

export interface HistogramBar {
    label: string;
    count: number;
    detail: string;
}

export function Histogram(p: { bars: HistogramBar[]; label: string; xTitle: string; yTitle: string }) {
    const w = 640;
    const h = 240;
    const left = 44;
    const bottom = 46;
    const top = Math.max(1, ...p.bars.map((b) => b.count));
    const step = niceStep(top);
    const yMax = Math.ceil(top / step) * step;
    const y = (v: number) => 12 + (h - 12 - bottom) * (1 - v / yMax);
    const slot = (w - left - 8) / Math.max(1, p.bars.length);
    const ticks = Array.from({ length: Math.round(yMax / step) + 1 }, (_, i) => i * step);
    return (
        <svg class="plot" viewBox={`0 0 ${w} ${h}`} role="img" aria-label={p.label}>
            {ticks.map((t) => (
                <g key={t} class="tick">
                    <line x1={left} x2={w - 8} y1={y(t)} y2={y(t)} />
                    <text x={left - 8} y={y(t) + 4} text-anchor="end">
                        {t}
                    </text>
                </g>
            ))}
            {p.bars.map((b, i) => (
                <g key={i} class="column">
                    <title>{b.detail}</title>
                    <rect x={left + i * slot + slot * 0.1} width={slot * 0.8} y={y(b.count)} height={Math.max(0, y(0) - y(b.count))} rx="2" />
                    {(p.bars.length <= 12 || i % 2 === 0) && (
                        <text x={left + (i + 0.5) * slot} y={h - bottom + 16} text-anchor="middle">
                            {b.label}
                        </text>
                    )}
                </g>
            ))}
            <text class="axis" x={(w + left) / 2} y={h - 6} text-anchor="middle">
                {p.xTitle}
            </text>
            <text class="axis" x={12} y={h / 2 - 10} text-anchor="middle" transform={`rotate(-90 12 ${h / 2 - 10})`}>
                {p.yTitle}
            </text>
        </svg>
    );
}

export function niceStep(top: number): number {
    const rough = top / 4;
    const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
    return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? power * 10;
}
