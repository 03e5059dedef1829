// A headless Chromium with a profile of its own. A page that is watched may log no error and ask nobody outside this machine.
import { chromium } from "playwright-core";

const FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--enable-unsafe-swiftshader",
];

export async function open(profile) {
    const context = await chromium.launchPersistentContext(profile, {
        executablePath: "/usr/bin/chromium",
        headless: true,
        args: FLAGS,
        viewport: { width: 1360, height: 900 },
        colorScheme: "light",
        reducedMotion: "reduce",
    });
    const wrong = [];
    const outside = new Set();
    const watch = (page) => {
        // What a refused or unreachable service answers is the view's business; everything else on the console is a bug.
        page.on("console", (m) => {
            if (m.type() === "error" && !m.text().startsWith("Failed to load resource")) wrong.push(`${page.url()}: ${m.text()}`);
        });
        page.on("pageerror", (e) => wrong.push(`${page.url()}: ${e.stack}`));
        page.on("request", (r) => {
            const { protocol, hostname } = new URL(r.url());
            if (!["data:", "blob:"].includes(protocol) && hostname !== "127.0.0.1") outside.add(r.url());
        });
    };
    const complaints = () => {
        for (const w of wrong) console.log("console:", w);
        for (const o of outside) console.log("outside request:", o);
        return wrong.length + outside.size;
    };
    return { context, watch, complaints };
}
