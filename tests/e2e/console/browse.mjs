// Drives the console in Chromium: browse.mjs URL TOKEN_FILE SCREENS PROFILE
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { open } from "./chromium.mjs";

const [url, tokenFile, screens, profile] = process.argv.slice(2);
const token = readFileSync(tokenFile, "utf8").trim();
const VIEWS = ["overview", "topology", "ledger", "wallet", "mailbox", "rewarder", "edge", "operations"];
const api = async (service, path, init = {}) =>
    fetch(`${url}/api/${service}${path}`, { ...init, headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json", ...init.headers } });

const { context, watch, complaints } = await open(profile);
const page = context.pages()[0] ?? (await context.newPage());
page.setDefaultTimeout(60000); // a busy machine is no bug
watch(page);

const runs = {};
for (const s of ["ledger", "wallet", "mailbox", "rewarder", "edge"]) runs[s] = (await api(s, "/metrics")).ok;
console.log("running:", Object.keys(runs).filter((s) => runs[s]).join(" "));

const settled = async (p) => {
    await p.waitForSelector("main h1");
    await p.waitForFunction(() => !document.querySelector(".skeleton"));
};
const visit = async (p, view) => {
    await p.goto(`${url}/#/${view}`);
    await p.waitForSelector(`main[data-view="${view.split("/")[0]}"]`);
    await settled(p);
};
const shoot = (p, name, fullPage = true) => p.screenshot({ path: `${screens}/${name}.png`, fullPage });

async function tokenIsAsked() {
    await visit(page, "operations");
    await page.getByText("need a capability").waitFor();
    await shoot(page, "no-capability");
}

async function tokenIsTakenFromTheLink() {
    await page.goto("about:blank");
    await page.goto(`${url}/#token=${token}`);
    await page.waitForSelector(".token.has");
    assert.ok(!page.url().includes("token"), "the token stays in the address bar");
    assert.equal(await page.evaluate(() => sessionStorage.getItem("ron.token")), token);
    assert.equal(await page.evaluate(() => JSON.stringify({ ...localStorage }).includes("MDA")), false, "the token is stored for good");
}

async function aWholeLifeInTheMailbox() {
    const fill = async (card, label, value) => card.getByLabel(label, { exact: false }).first().fill(value);
    await visit(page, "mailbox/orders");
    const send = page.locator(".card", { has: page.getByRole("heading", { name: "Send", exact: true }) });
    const receive = page.locator(".card", { has: page.getByRole("heading", { name: "Receive", exact: true }) });
    const dead = page.locator(".card", { has: page.getByRole("heading", { name: "Dead letters" }) });
    for (const [i, text] of ['{"order":1001,"total":"2500"}', "not what the consumer expects"].entries()) {
        await fill(send, "Payload", text);
        await fill(send, "Idempotency key", `order-${1001 + i}`);
        await send.getByRole("button", { name: "Send" }).click();
        await send.getByText(`message ${i + 1} of its topic`).waitFor();
    }
    await fill(receive, "Lease", "3600");
    await receive.getByRole("button", { name: "Receive" }).click();
    await receive.locator(".lease").nth(1).waitFor();
    await receive.locator(".lease", { hasText: "1001" }).getByRole("button", { name: "Ack", exact: true }).click();
    await receive.getByText("acked", { exact: true }).waitFor();
    await receive.locator(".lease", { hasText: "not what" }).getByRole("button", { name: "Dead" }).click();
    await dead.getByText("declared dead by hand").waitFor();
    await shoot(page, "mailbox-life");
    await dead.getByRole("button", { name: "Reprocess", exact: true }).click();
    await dead.getByText("on their way back").waitFor();
    await dead.getByText("None", { exact: true }).waitFor();
}

async function waitForFunds() {
    // An outcome is a receipt; nothing to wait for beyond it.
    const form = page.locator(".card", { has: page.getByRole("heading", { name: "Move money" }) });
    await form.getByRole("button", { name: "Issue", exact: true }).first().click();
    await form.getByLabel("To").fill("acct:alice");
    await form.getByLabel("Amount").fill("1 000 000");
    await form.locator(".form-end button").click();
    await page.locator('.checks[data-verdict="good"]').waitFor();
}

async function aTransferIsProvenInTheBrowser() {
    await visit(page, "wallet");
    await waitForFunds();
    const form = page.locator(".card", { has: page.getByRole("heading", { name: "Move money" }) });
    await form.getByRole("button", { name: "Transfer", exact: true }).first().click();
    await form.getByLabel("From").fill("acct:alice");
    await form.getByLabel("To").fill("acct:shop");
    await form.getByLabel("Amount").fill("250000");
    await form.getByLabel("Memo").fill("two chairs");
    await form.locator(".form-end button").click();
    await page.locator(".receipt", { hasText: "two chairs" }).waitFor();
    await page.locator('.checks[data-verdict="good"]').waitFor();
    assert.equal(await page.locator(".checks li.good").count(), await page.locator(".checks li").count(), "every check is done and good");
    await page.locator(".balance", { hasText: "acct:shop" }).getByText("250").waitFor();
    await page.locator(".balance", { hasText: "acct:alice" }).getByText("750").waitFor();
    await shoot(page, "wallet-receipt");

    await form.getByRole("button", { name: "Hold", exact: true }).first().click();
    await form.getByLabel("From").fill("acct:alice");
    await form.getByLabel("To").fill("acct:shop");
    await form.getByLabel("Amount").fill("9900");
    await form.locator(".form-end button").click();
    await page.getByRole("link", { name: "Capture or release it" }).click();
    await form.locator('input[name="hold"]').waitFor(); // until then "Amount" is the old form's
    await form.getByLabel("Amount").fill("9000");
    await form.locator(".form-end button").click();
    await page.locator(".receipt", { hasText: "Given back" }).waitFor();
    await page.locator('.checks[data-verdict="good"]').waitFor();

    await form.getByRole("button", { name: "Transfer", exact: true }).first().click();
    await form.getByLabel("From").fill("acct:shop");
    await form.getByLabel("To").fill("acct:alice");
    await form.getByLabel("Amount").fill("99999999");
    await form.locator(".form-end button").click();
    await page.getByText("The account has not enough available.").waitFor();
}

async function seedLedger() {
    const entry = (id, kind, account, amount, more = {}) => ({ id, ts: Date.now(), kind, account, asset: "ron", amount, ...more });
    const units = [
        { idem_id: "console:mint:1", entries: [entry("console-1", "mint", "acct:dora", "500000")] },
        { idem_id: "console:mint:2", entries: [entry("console-2", "mint", "pool:rewards", "100000")] },
        ...Array.from({ length: 6 }, (_, i) => ({
            idem_id: `console:pay:${i}`,
            entries: [entry(`console-pay-${i}`, "transfer", "acct:dora", String(1000 * (i + 1)), { to: `acct:shop-${i % 3}`, nonce: String(i + 1) })],
        })),
    ];
    for (const unit of units) {
        const r = await api("ledger", "/v1/ingest", { method: "POST", body: JSON.stringify({ units: [unit] }) });
        assert.equal(r.status, 200, await r.text());
    }
}

async function anEntryIsProvenAndATamperedOneIsNot() {
    await visit(page, "ledger");
    await page.getByText("signature good").waitFor();
    await shoot(page, "ledger");
    await page.locator(".entries").getByRole("link", { name: "Verify" }).nth(1).click();
    await page.locator('.checks[data-verdict="good"]').waitFor();
    await page.getByText("Proven in this browser").waitFor();
    await shoot(page, "ledger-proof");
    await page.getByLabel("Change one digit").check();
    await page.locator('.checks[data-verdict="bad"]').waitFor();
    await page.getByLabel("Change one digit").uncheck();
    await page.locator('.checks[data-verdict="good"]').waitFor();
}

/** Any id of an entry is found, whatever it begins with; what is no entry is looked for among the accounts. */
async function anEntryIsFoundByItsId() {
    await visit(page, "ledger");
    const look = async (text) => {
        await page.getByLabel("Account, entry id or sequence number").fill(text);
        await page.getByRole("button", { name: "Look up" }).click();
    };
    await look("console-pay-3");
    await page.getByRole("heading", { name: /^Proof of entry/ }).waitFor();
    await look("acct:dora");
    await page.getByText("one snapshot of one account").waitFor();
    await visit(page, "ledger/account/100%"); // typed, and no percent-encoding
    await page.getByRole("heading", { name: "100%" }).waitFor();
}

/** An answer that is lost, and the button again: the same request, not a second payment. */
async function aLostAnswerIsAskedForAgain() {
    const available = async () => (await (await api("wallet", "/v1/accounts/acct:lost")).json()).assets[0]?.available;
    await visit(page, "wallet");
    const form = page.locator(".card", { has: page.getByRole("heading", { name: "Move money" }) });
    await page.route("**/api/wallet/v1/transfer", async (route) => (await route.fetch(), route.abort()), { times: 1 });
    await form.getByLabel("From").fill("acct:alice");
    await form.getByLabel("To").fill("acct:lost");
    await form.getByLabel("Amount").fill("11");
    await form.locator(".form-end button").click();
    await page.getByRole("alert").getByText("unreachable").waitFor();
    assert.equal(await available(), "11", "it was carried out");
    await form.locator(".form-end button").click();
    await page.locator(".receipt", { hasText: "acct:lost" }).waitFor();
    assert.equal(await available(), "11", "it was carried out twice");
    await form.locator(".form-end button").click(); // said again after an answer, it is meant
    for (const end = Date.now() + 60000; (await available()) !== "22"; await new Promise((r) => setTimeout(r, 100))) assert.ok(Date.now() < end, "not paid again");
}

async function anEpochIsPaidAndExplained() {
    await visit(page, "rewarder");
    const rows = Array.from({ length: 40 }, (_, i) => `acct:worker-${String(i).padStart(2, "0")},${Math.round(5 + 400 * Math.abs(Math.sin(i * 1.7)) ** 3)}`);
    await page.getByLabel("Epoch").fill("2026-W41");
    await page.getByLabel("Usage").fill(["account,points", ...rows].join("\n"));
    await page.getByRole("button", { name: "Compute" }).click();
    await page.getByText("Pay-outs and dust add up to the pool exactly.").waitFor();
    await page.locator(".plot .column").first().waitFor();
    await page.locator(".rows button").first().click();
    await page.locator('.checks[data-verdict="good"]').waitFor();
    await page.locator(".card", { has: page.getByRole("heading", { name: "Epoch 2026-W41" }) }).getByText("settled", { exact: true }).waitFor();
    await shoot(page, "rewarder-epoch");
    // a manifest that nobody signed
    await page.route("**/artifacts/run.json", async (route) => {
        const answer = await route.fetch();
        await route.fulfill({ response: answer, body: (await answer.text()).replace('"2026-W41"', '"2026-W14"') });
    });
    await page.locator(".rows button").nth(1).click();
    await page.locator('.checks[data-verdict="bad"] li.bad', { hasText: "The manifest is signed by the rewarder" }).waitFor();
    assert.equal(await page.locator(".checks li.bad").count(), 1, "what is wrong is the signature");
    await page.unroute("**/artifacts/run.json");
    // more accounts than a call takes arguments
    const many = Array.from({ length: 200000 }, (_, i) => `acct:${i},${(i % 977) + 1}`).join("\n");
    await page.route("**/payouts.csv", (route) => route.fulfill({ contentType: "text/csv", body: `account,amount\n${many}\n` }));
    await page.reload();
    await page.locator(".plot .column").first().waitFor();
    await page.unroute("**/payouts.csv");
}

async function theMapIsDrawn() {
    await visit(page, "edge");
    await page.locator('.map[data-drawn="true"]').waitFor();
    await shoot(page, "edge-map");
}

// The ground in a corner of the map, where there is no button: it is of the page's colour, also after that changed.
async function theMapChangesItsDressWithThePage() {
    await page.locator(".map").scrollIntoViewIfNeeded();
    const box = await page.locator(".map").boundingBox();
    const ground = () => page.screenshot({ clip: { x: box.x + 40, y: box.y + box.height - 40, width: 8, height: 8 } });
    const before = await ground();
    await page.locator(".top button").last().click();
    for (const end = Date.now() + 60000; before.equals(await ground()); await new Promise((r) => setTimeout(r, 100)))
        assert.ok(Date.now() < end, "the map kept its colours");
    await page.locator(".top button").last().click();
    for (const end = Date.now() + 60000; !before.equals(await ground()); await new Promise((r) => setTimeout(r, 100)))
        assert.ok(Date.now() < end, "the map did not take its colours back");
    await page.evaluate(() => {
        localStorage.removeItem("ron.theme"); // the system's choice again
        delete document.documentElement.dataset.theme;
    });
}

// While messages are sent the queue before the workers shows how many pass; nothing passes the one of the reprocessor.
async function linesMoveWhereWorkDoes() {
    await visit(page, "topology/mailbox");
    const queue = (name) => page.locator(".drawing .queue", { has: page.locator(".name", { hasText: new RegExp(`^${name}$`) }) });
    await queue("work_tx").waitFor();
    for (let i = 0, end = Date.now() + 60000; !(await queue("work_tx").textContent()).endsWith("/s"); i++) {
        const body = JSON.stringify({ topic: "moving", idem_key: `moving-${i}`, payload_b64: "eA==" });
        assert.ok((await api("mailbox", "/v1/send", { method: "POST", body })).ok);
        assert.ok(Date.now() < end, "the queue shows no rate");
    }
    assert.ok((await page.locator(".drawing .moving").count()) > 0, "no line moves");
    assert.ok(!(await queue("reproc_tx").textContent()).endsWith("/s"), "a queue that nothing passes shows a rate");
    await shoot(page, "topology-moving");
}

async function theLogLevelIsSet() {
    await visit(page, "operations");
    const card = page.locator("#ops-mailbox");
    await card.getByLabel("Log level").selectOption("error");
    await card.getByText("logs from error on").waitFor();
    assert.equal((await (await api("mailbox", "/admin/log-level")).json()).level, "error");
}

const confirmed = async (scope, action, title) => {
    await scope.getByRole("button", { name: action, exact: true }).first().click();
    await page.getByRole("dialog", { name: title }).getByRole("button", { name: action, exact: true }).click();
};

/** What a button's call is refused with stands on the page; one long name does not push the others' numbers out of it. */
async function aRefusedButtonSaysSo() {
    const topic = "long-" + "x".repeat(240);
    await api("mailbox", "/v1/send", { method: "POST", body: JSON.stringify({ topic, idem_key: "1", payload_b64: "" }) });
    const got = await (await api("mailbox", "/v1/recv", { method: "POST", body: JSON.stringify({ topic }) })).json();
    await api("mailbox", `/v1/nack/${got.messages[0].msg_id}`, { method: "POST", body: JSON.stringify({ dead: true }) });
    const refuse = (route) =>
        route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ title: "Unavailable", status: 503, code: "unavailable", detail: "the disk is full" }) });
    await page.route("**/dlq/reprocess", refuse);
    await page.route("**/admin/packs/reload", refuse);
    await visit(page, `mailbox/${topic}`);
    await page.getByRole("button", { name: "Reprocess all" }).click();
    await page.getByRole("alert").getByText("the disk is full").waitFor();
    const table = page.locator(".card", { has: page.getByRole("heading", { name: "Topics" }) }).locator(".scroll");
    assert.ok(await table.evaluate((e) => e.scrollWidth <= e.clientWidth), "a long topic pushes its numbers out of the table");
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), "a long topic widens the page");
    await shoot(page, "refused");
    await visit(page, "edge");
    await page.getByRole("button", { name: "Reload" }).click();
    await page.getByRole("alert").getByText("the disk is full").waitFor();
    await page.unroute("**/dlq/reprocess");
    await page.unroute("**/admin/packs/reload");
}

/** What cannot be asked for any more stays, and says that it is old. */
async function whatIsOldSaysSo() {
    await visit(page, "mailbox");
    await page.route("**/v1/topics*", (route) =>
        route.fulfill({ status: 403, contentType: "application/problem+json", body: JSON.stringify({ title: "Forbidden", status: 403, code: "forbidden", detail: "the token has ended" }) }),
    );
    await page.getByText("not up to date: the token has ended").waitFor();
    await page.unroute("**/v1/topics*");
    await page.getByText("not up to date").waitFor({ state: "detached" });
}

/** A folder has no digest of its own and a refused archive will get none: nothing is "being sealed" there for ever. */
async function onlyArchivesAreSealed() {
    const pack = (name, kind, state) => ({ name, kind, state, bytes: 1, digest: null });
    const packs = [pack("files", "dir", "mounted"), pack("broken", "pmtiles", "rejected"), pack("fresh", "pmtiles", "mounted")];
    await page.route("**/admin/packs", (route) => route.fulfill({ json: { generation: 1, packs } }));
    await visit(page, "edge");
    const row = (name) => page.locator("tr", { has: page.getByText(name, { exact: true }) });
    await row("fresh").getByText("being sealed").waitFor();
    for (const name of ["files", "broken"]) assert.equal(await row(name).getByText("being sealed").count(), 0, name);
    await page.unroute("**/admin/packs");
}

async function deadLettersArePurged() {
    const send = await api("mailbox", "/v1/send", { method: "POST", body: JSON.stringify({ topic: "trash", idem_key: "poison-1", payload_b64: "eA==" }) });
    assert.ok(send.ok, await send.text());
    await visit(page, "mailbox/trash");
    const receive = page.locator(".card", { has: page.getByRole("heading", { name: "Receive", exact: true }) });
    const dead = page.locator(".card", { has: page.getByRole("heading", { name: "Dead letters" }) });
    await receive.getByLabel("Lease").fill("3600");
    await receive.getByRole("button", { name: "Receive" }).click();
    await receive.locator(".lease").getByRole("button", { name: "Dead" }).click();
    await dead.getByText("declared dead by hand").waitFor();
    await confirmed(dead, "Purge", "Remove these dead letters?");
    await dead.getByText("1 removed for good").waitFor();
    await dead.getByText("None", { exact: true }).waitFor();
}

async function theLedgerTellsTheViewOfACommit() {
    await visit(page, "ledger");
    const streaming = page.waitForResponse((r) => r.url().includes("/v1/roots/stream"));
    await page.reload();
    await streaming;
    await settled(page);
    const r = await api("ledger", "/v1/ingest", {
        method: "POST",
        body: JSON.stringify({ units: [{ idem_id: "console:told", entries: [{ id: "console-told", ts: Date.now(), kind: "mint", account: "acct:told", asset: "ron", amount: "1" }] }] }),
    });
    const text = await r.text();
    assert.equal(r.status, 200, text);
    const began = Date.now();
    // Without the stream the view asks every 20 seconds.
    const size = JSON.parse(text).results[0].tree_size;
    await page.waitForFunction((n) => document.querySelector("main .figures").innerText.replace(/\s/g, "").includes(`entries${n}`), size, { timeout: 15000 });
    console.log(`   told after ${Date.now() - began} ms`);
}

async function aTaskIsRestarted() {
    await visit(page, "operations");
    const card = page.locator("#ops-mailbox");
    const tasks = async () => (await (await api("mailbox", "/admin/tasks")).json()).tasks;
    const name = "scanner";
    const before = (await tasks()).find((t) => t.name === name).spawned;
    await card.getByText("tasks, all running").click();
    await confirmed(card.locator("tr", { has: page.locator("code", { hasText: new RegExp(`^${name}$`) }) }), "Restart", `Restart ${name}?`);
    await card.getByText(`${name} is being restarted`).waitFor();
    for (const end = Date.now() + 60000; ; await new Promise((r) => setTimeout(r, 100))) {
        const now = (await tasks()).find((t) => t.name === name);
        if (now.spawned > before && now.state === "running") break;
        assert.ok(Date.now() < end, `${name} was not started anew: ${JSON.stringify(now)}`);
    }
}

async function theConfigurationIsReloadedAndShown() {
    await visit(page, "operations");
    const card = page.locator("#ops-wallet");
    await card.getByRole("button", { name: "Reload configuration" }).click();
    await card.getByText("reloaded, nothing changed").waitFor();
    await card.getByRole("button", { name: "Show configuration" }).click();
    await card.locator("pre.config", { hasText: "max_inflight" }).waitFor();
}

// While the ledger refuses writes an epoch is computed and held: that one is quarantined. Then writes go on.
async function safeModeHoldsAnEpochThatIsQuarantined() {
    const card = page.locator("#ops-ledger");
    const funded = await api("wallet", "/v1/issue", { method: "POST", headers: { "Idempotency-Key": "pool-w42" }, body: JSON.stringify({ to: "pool:rewards", asset: "ron", amount: "7000" }) });
    assert.equal(funded.status, 200, await funded.text());
    await visit(page, "operations");
    await confirmed(card, "Safe mode", "Put the ledger into safe mode?");
    await card.getByText("reads only, from now on").waitFor();
    await card.getByText("safe mode: operator").waitFor();
    const refused = await api("wallet", "/v1/issue", { method: "POST", headers: { "Idempotency-Key": "in-safe-mode" }, body: JSON.stringify({ to: "acct:alice", asset: "ron", amount: "1" }) });
    assert.equal(refused.status, 503);
    await shoot(page, "operations-safe-mode");

    await visit(page, "rewarder");
    await page.getByLabel("Epoch").fill("2026-W42");
    await page.getByLabel("Usage").fill("account,points\nacct:worker-01,3\nacct:worker-02,4");
    await page.getByRole("button", { name: "Compute" }).click();
    const epoch = page.locator(".card", { has: page.getByRole("heading", { name: "Epoch 2026-W42" }) });
    await confirmed(epoch, "Quarantine", "Quarantine epoch 2026-W42?");
    await epoch.getByText("quarantined", { exact: true }).waitFor();

    await visit(page, "operations");
    await confirmed(card, "End safe mode", "End safe mode?");
    await card.getByRole("button", { name: "Safe mode", exact: true }).waitFor();
    // the wallet hears of it with the next answer of the ledger
    for (const end = Date.now() + 60000; ; await new Promise((r) => setTimeout(r, 100))) {
        const accepted = await api("wallet", "/v1/issue", { method: "POST", headers: { "Idempotency-Key": "after-safe-mode" }, body: JSON.stringify({ to: "acct:alice", asset: "ron", amount: "1" }) });
        if (accepted.status === 200) break;
        assert.ok(Date.now() < end, await accepted.text());
    }
}

// The last thing that happens: the caller of this program checks that the system ended in order.
async function drainingEndsEverything() {
    await visit(page, "operations");
    await confirmed(page, "Drain and stop", "Drain and stop everything?");
    for (const end = Date.now() + 60000; ; await new Promise((r) => setTimeout(r, 100))) {
        if (!(await fetch(`${url}/healthz`).then((r) => r.ok).catch(() => false))) break;
        assert.ok(Date.now() < end, "the system still answers");
    }
}

async function queuesShowWhatTheyHold() {
    await visit(page, "overview");
    await page.locator("td.depth .of").first().waitFor();
    const meters = await page.locator('td.depth [role="meter"]').evaluateAll((all) => all.map((m) => Number(m.getAttribute("aria-valuemax"))));
    assert.ok(meters.length > 5 && meters.every((max) => max > 0), `capacities: ${meters}`);
}

async function keyboardReachesEverything() {
    await visit(page, "overview");
    await page.reload();
    await settled(page);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement?.className), "skip", "the skip link comes first");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
    assert.equal(await page.evaluate(() => scrollY), 0, "skipping to the content hides its title under the bar");
    const unnamed = await page.evaluate(() =>
        [...document.querySelectorAll("button, a, input, select, textarea")]
            .filter((e) => !(e.textContent?.trim() || e.getAttribute("aria-label") || e.closest("label")))
            .map((e) => e.outerHTML.slice(0, 80)),
    );
    assert.deepEqual(unnamed, [], "controls without a name");
}

// On a small laptop nothing is cut off: tables are as wide as shown, figures end within their card.
async function overviewFitsALaptop() {
    for (const width of [1360, 1200, 1024, 900]) {
        await page.setViewportSize({ width, height: 800 });
        await visit(page, "overview");
        const cut = await page.evaluate(() => [
            ...[...document.querySelectorAll("main .scroll")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => `table ${e.scrollWidth - e.clientWidth} px`),
            ...[...document.querySelectorAll("main .stat")]
                .filter((e) => [...e.children].some((c) => c.getBoundingClientRect().left + c.scrollWidth > e.closest(".card").getBoundingClientRect().right))
                .map((e) => e.textContent),
        ]);
        assert.deepEqual(cut, [], `cut off at ${width} px`);
    }
    await page.setViewportSize({ width: 1360, height: 900 });
}

// Text whose contrast with what lies behind it is under WCAG 2.1 AA: 4.5, or 3 when it is large.
const faint = (p) =>
    p.evaluate(() => {
        const light = (c) => {
            const [r, g, b] = c.map((x) => ((x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const parse = (text) => {
            const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
            return text.startsWith("color(") ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
        };
        const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
        const up = (e) => (e ? [e, ...up(e.parentElement)] : []);
        const found = [];
        for (const e of document.querySelectorAll("body *")) {
            const said = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
            if (!said || !e.getClientRects().length || e.closest("svg, :disabled")) continue;
            const style = getComputedStyle(e);
            const size = parseFloat(style.fontSize);
            const behind = up(e)
                .map((x) => parse(getComputedStyle(x).backgroundColor))
                .reverse()
                .reduce((below, top) => over(top, below), [255, 255, 255]);
            const [r, g, b, a] = parse(style.color);
            const ink = over([r, g, b, a * up(e).reduce((o, x) => o * getComputedStyle(x).opacity, 1)], behind);
            const [low, high] = [light(ink), light(behind)].sort((x, y) => x - y);
            const ratio = (high + 0.05) / (low + 0.05);
            if (ratio < (size >= 24 || (size >= 18.6 && style.fontWeight >= 700) ? 3 : 4.5)) found.push(`${e.className || e.tagName} "${e.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
        }
        return [...new Set(found)];
    });

async function everyViewInEveryDress() {
    for (const scheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
        for (const view of VIEWS) {
            await visit(page, view);
            assert.deepEqual(await faint(page), [], `text of ${view} that is hard to read in ${scheme}`);
            await shoot(page, `${view}-${scheme}`);
        }
    }
    for (const s of Object.keys(runs).filter((s) => runs[s])) {
        await visit(page, `topology/${s}`);
        await page.locator(".drawing .task").first().waitFor();
        await shoot(page, `topology-${s}`);
    }
    await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
    await page.setViewportSize({ width: 390, height: 844 });
    for (const view of VIEWS) {
        await visit(page, view);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${view} is ${wide} px wider than a phone`);
        await shoot(page, `${view}-phone`);
    }
    await page.setViewportSize({ width: 1360, height: 900 });
}

const steps = [
    tokenIsAsked,
    tokenIsTakenFromTheLink,
    runs.mailbox && aWholeLifeInTheMailbox,
    runs.ledger && seedLedger,
    runs.ledger && anEntryIsProvenAndATamperedOneIsNot,
    runs.ledger && anEntryIsFoundByItsId,
    runs.wallet && runs.ledger && aTransferIsProvenInTheBrowser,
    runs.wallet && runs.ledger && aLostAnswerIsAskedForAgain,
    runs.rewarder && runs.ledger && anEpochIsPaidAndExplained,
    runs.edge && theMapIsDrawn,
    runs.edge && theMapChangesItsDressWithThePage,
    runs.mailbox && linesMoveWhereWorkDoes,
    runs.edge && onlyArchivesAreSealed,
    runs.mailbox && whatIsOldSaysSo,
    runs.mailbox && deadLettersArePurged,
    runs.mailbox && runs.edge && aRefusedButtonSaysSo,
    runs.ledger && theLedgerTellsTheViewOfACommit,
    runs.mailbox && theLogLevelIsSet,
    runs.mailbox && aTaskIsRestarted,
    runs.wallet && theConfigurationIsReloadedAndShown,
    runs.rewarder && runs.wallet && runs.ledger && safeModeHoldsAnEpochThatIsQuarantined,
    queuesShowWhatTheyHold,
    keyboardReachesEverything,
    overviewFitsALaptop,
    everyViewInEveryDress,
    drainingEndsEverything,
].filter(Boolean);
let status = 0;
for (const step of steps) {
    const began = Date.now();
    try {
        await step();
        console.log(`ok ${step.name} (${Date.now() - began} ms)`);
    } catch (e) {
        status = 1;
        await shoot(page, "failed-" + step.name).catch(() => {});
        console.log(`FAILED ${step.name}: ${e.message}`);
        break; // later ones build on it
    }
}
await context.close();
process.exit(complaints() ? 1 : status);
