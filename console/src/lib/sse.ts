// Server-sent events, read from any stream of text: EventSource cannot send a capability.

export interface ServerEvent {
    event: string;
    data: string;
    id?: string;
}

/** Splits a stream of text into events, however it is cut into pieces (HTML standard, 9.2.6). */
export class EventReader {
    private rest = "";
    private lines: string[] = [];

    take(piece: string): ServerEvent[] {
        const found: ServerEvent[] = [];
        const parts = (this.rest + piece).split("\n");
        this.rest = parts.pop()!;
        for (const part of parts) {
            const line = part.endsWith("\r") ? part.slice(0, -1) : part;
            if (line !== "") this.lines.push(line);
            else {
                const event = this.finish();
                if (event) found.push(event);
            }
        }
        return found;
    }

    private finish(): ServerEvent | undefined {
        const event: ServerEvent = { event: "message", data: "" };
        const data: string[] = [];
        for (const line of this.lines) {
            const colon = line.indexOf(":");
            const name = colon < 0 ? line : line.slice(0, colon);
            const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
            if (name === "data") data.push(value);
            else if (name === "event") event.event = value;
            else if (name === "id") event.id = value;
        }
        this.lines = [];
        event.data = data.join("\n");
        return data.length ? event : undefined;
    }
}
