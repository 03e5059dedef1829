// A request without an answer is repeated, not made anew: the same words keep the key they were sent with until their outcome is known.

export class Repeats<T> {
    private open?: { words: string; sent: T };

    /** What the same words were sent with before, when nobody knows yet what became of that; else what `make` makes. */
    async of(words: string, make: () => Promise<T>): Promise<T> {
        if (this.open?.words !== words) this.open = { words, sent: await make() };
        return this.open.sent;
    }

    /** Its outcome is known: who says the same again means it. */
    known(): void {
        this.open = undefined;
    }
}

/** Whether an answer with this status says that nothing was done, or nothing more will be. */
export const isFinal = (status: number): boolean => status >= 400 && status < 500 && status !== 408 && status !== 429;
