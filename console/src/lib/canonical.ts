// Canonical JSON: keys sorted bytewise, no white space, only `"` and `\` escaped, integers and strings.

export type Canonical = string | number | Canonical[] | { [key: string]: Canonical };

export function canonical(value: Canonical): string {
    if (typeof value === "string") return '"' + value.replace(/["\\]/g, "\\$&") + '"';
    if (typeof value === "number") {
        if (!Number.isSafeInteger(value)) throw new Error("only whole numbers are canonical");
        return String(value);
    }
    if (Array.isArray(value)) return "[" + value.map(canonical).join(",") + "]";
    const keys = Object.keys(value).sort(); // members are ASCII: code unit order is byte order
    return "{" + keys.map((k) => canonical(k) + ":" + canonical(value[k]!)).join(",") + "}";
}
