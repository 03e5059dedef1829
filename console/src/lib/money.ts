// Amounts are decimal strings of minor units, up to 2^128-1: never a number on the way.

const MONEY = /^(0|[1-9][0-9]{0,38})$/;
const MAX = (1n << 128n) - 1n;
const GROUP = "\u2009"; // thin space

export function isMoney(text: string): boolean {
    return MONEY.test(text) && BigInt(text) <= MAX;
}

/** "1234567" -> "1 234 567", digits kept exactly. */
export function formatMoney(units: string): string {
    if (!/^-?[0-9]+$/.test(units)) return units;
    return units.replace(/\B(?=(\d{3})+(?!\d))/g, GROUP);
}

/** What a person typed: digits with spaces or separators between groups. Undefined when it is no amount above zero. */
export function parseMoney(typed: string): string | undefined {
    const digits = typed.trim().replace(/[\s\u2009_']/g, "").replace(/^0+(?=\d)/, "");
    return isMoney(digits) && digits !== "0" ? digits : undefined;
}

export function sumMoney(amounts: string[]): string {
    return amounts.reduce((sum, a) => sum + BigInt(a), 0n).toString();
}
