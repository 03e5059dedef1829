"""Plays requests against a running system and holds every answer against docs/openapi/<service>.yaml."""
import base64, json, os, sys, time, urllib.error, urllib.request

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests/lib"))
from openapi_doc import find, judge  # noqa: E402

BASE, TOKEN = int(os.environ["BASE"]), os.environ["TOKEN"]
PORTS = {"ledger": 10, "wallet": 20, "mailbox": 30, "rewarder": 40, "edge": 50}
failures, seen = [], set()


def ask(service, method, target, body=None, want=None, headers=None, token=TOKEN, kind="application/json"):
    """The parsed answer, after holding status and body against the document."""
    url = f"http://127.0.0.1:{BASE + PORTS[service]}{target}"
    all_headers = {**({"Authorization": "Bearer " + token} if token else {}), **({"Content-Type": kind} if body is not None else {}), **(headers or {})}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, headers=all_headers, method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=15)
    except urllib.error.HTTPError as e:
        answer = e
    raw, status, media = answer.read(), answer.status, answer.headers.get_content_type()
    name = f"{method} {target} ({service})"
    template, operation = find(service, method, target.split("?")[0])
    seen.add((service, method, template))
    if not operation:
        failures.append(f"{name}: not documented")
        return None
    if want and status != want:
        failures.append(f"{name}: {status} instead of {want}: {raw[:200]!r}")
    failures.extend(f"{name}: {m}" for m in judge(operation, status, dict(answer.headers), raw))
    return json.loads(raw) if media.endswith("json") and raw else None


def until(state, call):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        answer = call()
        if not answer or answer.get("state") == state:
            return answer
        time.sleep(0.02)
    failures.append(f"never became {state}")


def ledger():
    mint = {"units": [{"idem_id": "o:1", "entries": [{"id": "o1", "ts": 1760000000000, "kind": "mint", "account": "o:alice", "asset": "ron", "amount": "1000"}]}]}
    pay = lambda n, amount: {"idem_id": f"o:p{n}", "entries": [{"id": f"op{n}", "ts": 1760000000001, "kind": "transfer", "account": "o:alice", "to": "o:bob", "asset": "ron", "amount": amount, "nonce": str(n)}]}
    ask("ledger", "POST", "/v1/ingest?balances=1&proof=1", mint, 200)
    ask("ledger", "POST", "/v1/ingest", mint, 200)
    ask("ledger", "POST", "/v1/ingest", {"units": [pay(1, "250"), pay(2, "99999")]}, 207)
    ask("ledger", "POST", "/v1/ingest", {"units": [pay(3, "1")]}, 409)
    ask("ledger", "POST", "/v1/ingest", {"units": "none"}, 400)
    ask("ledger", "POST", "/v1/ingest", mint, 401, token=None)
    ask("ledger", "GET", "/v1/units/o:1", want=200)
    ask("ledger", "GET", "/v1/units/o:none", want=404)
    ask("ledger", "GET", "/v1/accounts/o:alice", want=200)
    ask("ledger", "GET", "/v1/entries?from=1&limit=2", want=200)
    ask("ledger", "GET", "/v1/entries/o1", want=200)
    ask("ledger", "GET", "/v1/supply", want=200)
    ask("ledger", "GET", "/v1/roots?since=0", want=200, token=None)
    ask("ledger", "GET", "/v1/proof/inclusion?seq=1", want=200, token=None)
    ask("ledger", "GET", "/v1/proof/consistency?from=1", want=200, token=None)
    ask("ledger", "GET", "/v1/checkpoint", want=200, token=None)
    ask("ledger", "GET", "/v1/key", want=200, token=None)
    ask("ledger", "GET", "/admin/recovery?digest=1", want=200)
    ask("ledger", "POST", "/admin/snapshot", want=201)
    ask("ledger", "GET", "/admin/journal", want=200)


def wallet():
    key = lambda k: {"Idempotency-Key": k}
    ask("wallet", "POST", "/v1/issue", {"to": "w:alice", "asset": "ron", "amount": "1000"}, 200, key("w1"))
    pay = {"from": "w:alice", "to": "w:bob", "asset": "ron", "amount": "250", "nonce": 1, "memo": "tea"}
    receipt = ask("wallet", "POST", "/v1/transfer", pay, 200, key("w2"))
    ask("wallet", "POST", "/v1/transfer", pay, 200, key("w2"))
    ask("wallet", "POST", "/v1/transfer", dict(pay, amount="251"), 422, key("w2"))
    ask("wallet", "POST", "/v1/transfer", dict(pay, amount="9999", nonce=2), 409, key("w3"))
    ask("wallet", "POST", "/v1/transfer", dict(pay, extra=1), 400, key("w4"))
    ask("wallet", "POST", "/v1/transfer", pay, 401, key("w5"), token="nonsense")
    hold = ask("wallet", "POST", "/v1/hold", {"from": "w:alice", "to": "w:bob", "asset": "ron", "amount": "100", "nonce": 2}, 200, key("w6"))
    ask("wallet", "POST", "/v1/capture", {"hold": hold["txid"], "amount": "60"}, 200, key("w7"))
    ask("wallet", "POST", "/v1/release", {"hold": hold["txid"]}, 409, key("w8"))
    ask("wallet", "POST", "/v1/burn", {"from": "w:alice", "asset": "ron", "amount": "1", "nonce": 3}, 200, key("w9"))
    ask("wallet", "POST", "/v1/simulate", dict(pay, op="transfer", nonce=4), 200, key("w10"))
    ask("wallet", "GET", "/v1/balance?account=w:alice&asset=ron", want=200)
    ask("wallet", "GET", "/v1/accounts/w:alice", want=200)
    ask("wallet", "GET", "/v1/nonce?account=w:alice", want=200)
    ask("wallet", "GET", "/v1/tx/" + receipt["txid"], want=200)
    ask("wallet", "GET", "/v1/tx/" + receipt["txid"] + "/proof", want=200)
    ask("wallet", "GET", "/admin/in-doubt", want=200)


def mailbox():
    send = {"topic": "o", "idem_key": "1", "payload_b64": base64.b64encode(b"hello").decode()}
    first = ask("mailbox", "POST", "/v1/send", send, 200)
    ask("mailbox", "POST", "/v1/send", send, 200)
    ask("mailbox", "POST", "/v1/send", dict(send, payload_b64="eA=="), 409)
    ask("mailbox", "POST", "/v1/send", {"messages": [dict(send, idem_key="2"), dict(send, idem_key="3")]}, 200)
    ask("mailbox", "POST", "/v1/send", {"topic": "o"}, 400)
    got = ask("mailbox", "POST", "/v1/recv", {"topic": "o", "max_messages": 3}, 200)["messages"]
    ask("mailbox", "POST", f"/v1/extend/{got[0]['msg_id']}", {"visibility_ms": 30000}, 200)
    ask("mailbox", "POST", f"/v1/ack/{got[0]['msg_id']}", {}, 200)
    ask("mailbox", "POST", "/v1/ack", {"acks": [{"msg_id": got[1]["msg_id"]}]}, 200)
    ask("mailbox", "POST", f"/v1/nack/{got[2]['msg_id']}", {"dead": True, "reason": "no"}, 200)
    ask("mailbox", "POST", f"/v1/ack/{got[2]['msg_id']}", {}, 409)
    ask("mailbox", "GET", "/v1/dlq?topic=o&payload=1", want=200)
    job = ask("mailbox", "POST", "/v1/dlq/reprocess", {"topic": "o"}, 202)["job"]
    until("done", lambda: ask("mailbox", "GET", "/v1/dlq/jobs/" + job, want=200))
    ask("mailbox", "POST", "/v1/dlq/purge", {"topic": "o", "all": True}, 200)
    ask("mailbox", "GET", "/v1/topics", want=200)
    ask("mailbox", "GET", "/v1/topics/o", want=200)
    ask("mailbox", "GET", "/v1/topics/none", want=404)
    ask("mailbox", "GET", "/v1/topics/o/chain", want=200)
    assert first["msg_id"] == got[0]["msg_id"]


def rewarder():
    ask("wallet", "POST", "/v1/issue", {"to": "pool:rewards", "asset": "ron", "amount": "100"}, 200, {"Idempotency-Key": "pool"})
    usage = {"snapshot": 1, "tenant": "default", "epoch": "o-1", "dims": ["points"], "count": 2, "rows": [["o:ada", 2], ["o:bob", 1]]}
    cid = ask("rewarder", "PUT", "/rewarder/inputs", usage, 201)["cid"]
    ask("rewarder", "PUT", "/rewarder/inputs", usage, 200)
    ask("rewarder", "PUT", "/rewarder/inputs", dict(usage, count=3), 422)
    ask("rewarder", "GET", f"/rewarder/inputs/{cid}?view=meta", want=200)
    ask("rewarder", "POST", "/rewarder/epochs/o-1/compute", {"inputs_cid": cid}, 202)
    until("settled", lambda: ask("rewarder", "GET", "/rewarder/epochs/o-1", want=200))
    ask("rewarder", "POST", "/rewarder/epochs/o-1/compute", {"inputs_cid": cid}, 200)
    ask("rewarder", "GET", "/rewarder/epochs", want=200)
    ask("rewarder", "GET", "/rewarder/epochs/none", want=404)
    ask("rewarder", "GET", "/rewarder/epochs/o-1/payouts?account=o:ada", want=200)
    ask("rewarder", "GET", "/rewarder/epochs/o-1/payouts.csv", want=200)
    ask("rewarder", "POST", "/rewarder/epochs/o-1/emit", {}, 200)
    ask("rewarder", "GET", "/rewarder/policies", want=200)
    ask("rewarder", "GET", "/rewarder/keys", want=200, token=None)


def edge():
    ask("edge", "GET", "/edge/tiles/demo/0/0/0.mvt", want=200, token=None)
    ask("edge", "GET", "/edge/tiles/demo/0/9/0.mvt", want=400, token=None)
    ask("edge", "GET", "/edge/tiles/none/0/0/0.mvt", want=404, token=None)
    ask("edge", "GET", "/edge/tiles/demo.json", want=200, token=None)
    ask("edge", "GET", "/edge/cas/" + "0" * 64, want=404, token=None)
    ask("edge", "GET", "/edge/assets/none.txt", token=None)
    ask("edge", "GET", "/admin/packs", want=200)
    ask("edge", "GET", "/admin/fills", want=200)
    ask("edge", "GET", "/admin/packs", want=401, token=None)


def admin(service):
    """What the frame answers for each of them."""
    level = ask(service, "GET", "/admin/log-level", want=200)["level"]
    ask(service, "PUT", "/admin/log-level?level=" + level, want=200)
    ask(service, "PUT", "/admin/log-level?level=loud", want=400)
    ask(service, "GET", "/admin/topology", want=200)
    ask(service, "GET", "/admin/topology?format=mermaid", want=200)
    ask(service, "GET", "/admin/topology", want=401, token=None)
    ask(service, "GET", "/admin/tasks", want=200)
    ask(service, "POST", "/admin/tasks/none/restart", want=404)
    ask(service, "POST", "/admin/tasks/none/fail", want=403)
    ask(service, "GET", "/admin/config", want=200)
    ask(service, "POST", "/admin/reload", want=200)


for service in sys.argv[1:] or PORTS:
    for path in ("/healthz", "/readyz", "/version", "/metrics"):
        ask(service, "GET", path, want=200, token=None)
    globals()[service]()
    admin(service)
print("\n".join(failures) or f"{len(seen)} operations answer as documented")
sys.exit(1 if failures else 0)
