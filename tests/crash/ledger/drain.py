"""SIGTERM under load, again and again: everybody is answered for certain, what is in the log was acknowledged, nothing is left behind.

usage: drain.py RON DIR ROUNDS SEED     (started by drain.test; DRAINS in the environment sets how many)
"""
import http.client, json, random, re, sys, threading, time

from ledger import connect, start

ron, where, rounds, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
WORKERS = 4
acked, answers = set(), {}  # idem_ids; how often which answer
lock = threading.Lock()
counter = 0


def said(results):
    with lock:
        for r in results:
            what = r["status"] if r["status"] != "rejected" else r["reason"]
            answers[what] = answers.get(what, 0) + 1
            if r["status"] != "rejected":
                acked.add(r["idem_id"])
            elif what == "outcome_unknown":
                raise SystemExit(f"a drain left the outcome of {r['idem_id']} open")


def worker(me, token, failed):
    global counter
    try:
        conn = connect()
        while True:
            units = []
            with lock:
                for _ in range(rng.choice((1, 1, 4, 20))):
                    counter += 1
                    units.append({"idem_id": f"d:{counter}", "entries": [{"id": f"d-{counter}", "ts": counter, "kind": "mint",
                                                                          "account": f"acct:{me}", "asset": "ron", "amount": "1"}]})
            conn.request("POST", "/v1/ingest", json.dumps({"units": units}), {"Authorization": "Bearer " + token})
            reply = conn.getresponse()
            body = json.loads(reply.read() or b"{}")
            results = body.get("results") or body.get("details", {}).get("results")
            if not results:  # refused as a whole
                results = [{"idem_id": u["idem_id"], "status": "rejected", "reason": body.get("code", str(reply.status))} for u in units]
            said(results)
    except (OSError, http.client.HTTPException):
        pass  # the door is closed; what it did not take must not be there
    except BaseException as e:
        failed.append(e)
        raise


def entries(token):
    conn = connect()
    conn.request("GET", "/readyz", headers={"Authorization": "Bearer " + token})
    return json.loads(conn.getresponse().read())["head_seq"]


for i in range(rounds):
    ledger, token = start(ron, where)
    if entries(token) != len(acked):
        raise SystemExit(f"round {i}: {len(acked)} acknowledged, {entries(token)} in the log")
    failed = []
    threads = [threading.Thread(target=worker, args=(k, token, failed)) for k in range(WORKERS)]
    for t in threads:
        t.start()
    time.sleep(rng.uniform(0.01, 0.2))
    ledger.terminate()
    code = ledger.wait()
    for t in threads:
        t.join()
    text = open(where + "/log").read().splitlines()[-1]
    if failed or code != 0 or not re.search(r'"event":"drain_end".*"leaked":0\b', text):
        raise SystemExit(f"round {i}: exit code {code}, {failed}: {text}")

ledger, token = start(ron, where)
assert entries(token) == len(acked) and len(acked) > rounds, f"{len(acked)} acknowledged, {entries(token)} in the log"
ledger.terminate()
assert ledger.wait() == 0
print(f"{rounds} drains, {len(acked)} acknowledged and nothing else in the log; answers: {answers}")
