"""kill -9 under load of every kind, again and again: nothing acknowledged is lost or moved, no gap, no duplicate, replays change
nothing. What it has in the end is left in DIR/recovery, for the verifier to compare.

usage: kill.py RON DIR ROUNDS SEED     (started by kill.test; ROUNDS in the environment sets how many)
"""
import http.client, json, random, sys, threading, time

from ledger import connect, start

ron, where, rounds, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
WORKERS, LANES, HOLD_MS = 4, 3, 400
FLAGS = "--checkpoint.entries=1024", f"--policy.file={where}/policy.json"
with open(where + "/policy.json", "w") as f:  # reverses are refused unless it says so
    json.dump({"kinds": ["mint", "burn", "transfer", "hold", "capture", "release", "reverse"]}, f)
acked, sent, roots = {}, {}, {}  # idem_id -> seq; idem_id -> unit as sent; tree_size -> root, as clients were told
nonces = [[0] * LANES for _ in range(WORKERS)]
holds, paid = ([[] for _ in range(WORKERS)] for _ in range(2))  # what a later unit may refer to
lock = threading.Lock()
counter = 0


def call(conn, method, path, token, body=None):
    conn.request(method, path, body, {"Authorization": "Bearer " + token})
    r = conn.getresponse()
    return r.status, json.loads(r.read() or b"{}")


def note(results):
    with lock:
        for r in results:
            if r["status"] == "rejected":
                continue
            first = acked.setdefault(r["idem_id"], r["seq_start"])
            if first != r["seq_start"]:
                raise SystemExit(f"{r['idem_id']} moved from {first} to {r['seq_start']}")
            if roots.setdefault(r["tree_size"], r["root"]) != r["root"]:
                raise SystemExit(f"two roots for size {r['tree_size']}")


def unit(me, kind):
    global counter
    with lock:
        n = counter
        counter += 1
    e = {"id": f"e{n}", "ts": 1760000000000 + n, "kind": kind, "account": f"acct:w{me}", "asset": "ron", "amount": str(1 + n % 50)}
    if kind in ("transfer", "hold", "burn"):
        lane = n % LANES
        nonces[me][lane] += 1
        e["nonce"] = str(lane << 48 | nonces[me][lane])
    if kind == "mint":
        e["amount"] = "1000000"
    elif kind == "transfer":
        e["to"] = f"acct:w{(me + 1) % WORKERS}"
        paid[me].append(e)
    elif kind == "hold":
        e["hold_until"] = int(time.time() * 1000) + rng.choice((HOLD_MS, 3600000))  # most end by themselves
        holds[me].append(e)
    elif kind in ("capture", "release"):
        of = rng.choice(holds[me])
        e.update(ref_id=of["id"], amount=str(rng.randint(1, int(of["amount"]))))
        if kind == "capture":
            e["to"] = f"acct:w{(me + 2) % WORKERS}"
    elif kind == "reverse":
        of = rng.choice(paid[me])
        e.update(ref_id=of["id"], to=of["to"], amount=str(rng.randint(1, int(of["amount"]))))
    u = {"idem_id": f"k:{n}", "entries": [e]}
    sent[u["idem_id"]] = u
    return u


def some(me):
    yield unit(me, "mint")
    for _ in range(rng.choice((0, 1, 3, 20))):
        yield unit(me, rng.choice(["transfer", "hold", "burn"] + ["capture", "release"] * bool(holds[me]) + ["reverse"] * bool(paid[me])))


def worker(me, token):
    try:
        conn = connect()
        while True:
            units = list(some(me))
            status, body = call(conn, "POST", "/v1/ingest", token, json.dumps({"units": units}))
            note(body.get("results") or body.get("details", {}).get("results", []))
    except (OSError, http.client.HTTPException, ValueError):
        pass  # the kill


checked = 0  # of the acknowledged, how many have been looked at after the kill that followed them


def check(token):
    """All that was acknowledged since the last look, and some of the rest; the replay at the end asks for everything again."""
    global checked
    conn = connect()
    known = list(acked.items())
    for idem, seq in known[checked:] + rng.sample(known[:checked], min(checked, 200)):
        status, body = call(conn, "GET", "/v1/units/" + idem, token)
        if status != 200 or body["seq_start"] != seq:
            raise SystemExit(f"acknowledged {idem} at {seq}: now {status} {body}")
    checked = len(known)
    head = call(conn, "GET", "/readyz", token)[1]["head_seq"]
    for size, root in sorted(roots.items())[-20:]:
        status, body = call(conn, "GET", f"/v1/proof/consistency?from={size}", token)
        if status != 200 or body["from_root"] != root:
            raise SystemExit(f"root of size {size} was {root}, now {body}")
    for me in range(WORKERS):  # what was sent and not answered may have committed: go on from the truth
        lanes = call(conn, "GET", f"/v1/accounts/acct:w{me}", token)[1].get("nonces", [])
        nonces[me] = [0] * LANES
        for one in lanes:
            nonces[me][one["lane"]] = int(one["last"]) & (1 << 48) - 1
    return head


last_head = 0
for i in range(rounds):
    ledger, token = start(ron, where, *FLAGS)
    last = check(token)
    if last < last_head:
        raise SystemExit(f"the head went back from {last_head} to {last}")
    threads = [threading.Thread(target=worker, args=(k, token)) for k in range(WORKERS)]
    for t in threads:
        t.start()
    time.sleep(rng.uniform(0.02, 0.35))
    ledger.kill()
    ledger.wait()
    for t in threads:
        t.join()
    last_head = max(roots, default=0)

ledger, token = start(ron, where, *FLAGS)
head = check(token)
conn = connect()
replay = list(sent.values())
known = 0
for at in range(0, len(replay), 200):  # the whole log of requests again: only what never arrived is new
    status, body = call(conn, "POST", "/v1/ingest", token, json.dumps({"units": replay[at:at + 200]}))
    for r in body.get("results") or body["details"]["results"]:
        if r["idem_id"] in acked:
            known += 1
            if r["status"] != "duplicate" or r["seq_start"] != acked[r["idem_id"]]:
                raise SystemExit(f"replay of {r['idem_id']}: {r}")
print(f"{rounds} kills, {len(acked)} acknowledged, {known} replayed as duplicates, head {head}")
assert known == len(acked) and known > rounds * 5
with open(where + "/recovery", "w") as f:
    json.dump(call(conn, "GET", "/admin/recovery?digest=1", token)[1], f)
ledger.terminate()
assert ledger.wait() == 0
