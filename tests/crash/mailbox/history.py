"""Load on a mailbox that is killed again and again; writes what producers and consumers saw, for `ron mailbox check-trace`.

usage: history.py RON DATA BASE_PORT OUT KILLS
"""
import base64
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

RON, DATA, BASE, OUT, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
PORT, TOPICS, VIS = BASE + 30, ["crash/a", "crash/b", "crash/c"], 400
events, lock, stop = [], threading.Lock(), threading.Event()
log = open(OUT + ".log", "ab")


def now():
    return int(time.time() * 1000)


def note(**e):
    with lock:
        events.append(e)


def start():
    p = subprocess.Popen([RON, "mailbox", "--data", DATA, "--base-port", str(BASE), "--max_attempts=100", "--t_replay=60s",
                          "--drills.enabled=true", "--backoff_base=5ms", "--backoff_max=20ms"], stdout=log, stderr=log)
    for _ in range(400):
        try:
            c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=2)
            c.request("GET", "/readyz")
            if c.getresponse().status == 200:
                return p
        except OSError:
            pass
        time.sleep(0.02)
    sys.exit("not ready")


class Client:
    def __init__(self):
        self.c = None

    def call(self, path, body, timeout=5):
        token = open(DATA + "/operator.token").read().strip()
        try:
            if not self.c:
                self.c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=timeout)
            self.c.request("POST", path, json.dumps(body), {"Authorization": "Bearer " + token})
            r = self.c.getresponse()
            return r.status, json.loads(r.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError):
            self.c = None
            return None, None


def millis(ts):
    return int(time.mktime(time.strptime(ts[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone) * 1000 + int(ts[20:23])


def produce(n):
    c, i = Client(), 0
    while not stop.is_set():
        i += 1
        topic, key = random.choice(TOPICS), "p%d-%d" % (n, i)
        body = {"topic": topic, "idem_key": key, "payload_b64": base64.b64encode(key.encode()).decode()}
        while True:  # the outcome of a lost answer is unknown: the same key tells
            st, r = c.call("/v1/send", body)
            if st == 200:
                break
            time.sleep(0.01)
            if stop.is_set() and st is None:
                time.sleep(0.05)
        note(event="sent", id=r["msg_id"], topic=topic, key=key, seq=r["topic_seq"], at_ms=millis(r["ts"]))
        if random.random() < 0.1:
            st, r2 = c.call("/v1/send", body)
            if st == 200:
                note(event="duplicate", id=r2["msg_id"], topic=topic, key=key, at_ms=now())
                assert r2["duplicate"]


def consume(_, drain=False):
    c, idle = Client(), 0
    while not stop.is_set() or drain:
        asked = now()
        topic = random.choice(TOPICS)
        st, r = c.call("/v1/recv", {"topic": topic, "max_messages": 16, "visibility_ms": VIS, "wait_ms": 50}, 3)
        if st != 200:
            time.sleep(0.01)
            continue
        idle = idle + 1 if not r["messages"] else 0
        if drain and idle > 40:
            return
        for m in r["messages"]:
            note(event="delivered", id=m["msg_id"], attempt=m["attempt"], at_ms=now(), until_ms=asked + VIS, asked=asked)
        for m in r["messages"]:
            what, at = random.random(), now()
            if drain or what < 0.8:
                st, _ = c.call("/v1/ack/" + m["msg_id"], {"attempt": m["attempt"]})
                if st == 200:
                    note(event="acked", id=m["msg_id"], attempt=m["attempt"], at_ms=at, until_ms=now())
                elif st is None:  # the server died over it: done or not, only a redelivery would tell
                    note(event="unsure", id=m["msg_id"], attempt=m["attempt"], at_ms=at)
            elif what < 0.9:
                st, _ = c.call("/v1/nack/" + m["msg_id"], {"attempt": m["attempt"], "reason": "chaos"})
                if st == 200:  # without an answer the server died over it, and leases died with it
                    note(event="nacked", id=m["msg_id"], attempt=m["attempt"], at_ms=at)


def until(what, holds):
    end = time.monotonic() + 30
    while not holds():
        if time.monotonic() > end:
            sys.exit("never came true: " + what)
        time.sleep(0.01)


def leased():
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
    c.request("GET", "/metrics")
    lines = c.getresponse().read().decode().splitlines()
    return sum(float(l.rsplit(" ", 1)[1]) for l in lines if l.startswith("queue_depth{") and 'queue="leased"' in l)


server = start()
threads = [threading.Thread(target=f, args=(n,)) for n in range(3) for f in (produce, consume)]
for t in threads:
    t.start()
for k in range(KILLS):
    time.sleep(random.uniform(0.15, 0.5))
    if k % 4 == 3:  # a single worker fails: nobody may notice
        Client().call("/admin/tasks/worker-%d/fail" % (k % 2), {})
        continue
    server.send_signal(signal.SIGKILL)
    server.wait()
    note(event="crash", at_ms=now())  # not before: until it is gone it answers
    server = start()
before = len(events)
until("the load goes on after the last kill", lambda: sum(e["event"] == "sent" for e in events[before:]) >= 20)
stop.set()
for t in threads:
    t.join()
until("every lease has ended", lambda: leased() == 0)
consume(0, drain=True)
server.send_signal(signal.SIGTERM)
code = server.wait()
# A delivery happened between the request and the note of it. A consumer that the machine held up notes it after its successor did:
# then it is moved back before that one, but not before its own request; and a delivery asked for before a crash was the dead
# server's, however late it was noted.
crashes = [e["at_ms"] for e in events if e["event"] == "crash"]
by_id = {}
for e in events:
    if e["event"] == "delivered":
        e["at_ms"] = min([e["at_ms"]] + [at for at in crashes if at >= e["asked"]])
        by_id.setdefault(e["id"], []).append(e)
for got in by_id.values():
    got.sort(key=lambda e: -e["attempt"])
    for later, earlier in zip(got, got[1:]):
        if later["attempt"] > earlier["attempt"] and earlier["at_ms"] > later["at_ms"] >= earlier["asked"]:
            earlier["at_ms"] = later["at_ms"]
    for e in got:
        del e["asked"]
order = {"sent": 0, "crash": 2, "delivered": 3, "acked": 4, "nacked": 4, "unsure": 4, "duplicate": 5}
events.sort(key=lambda e: (e["at_ms"], order[e["event"]], e.get("attempt", 0)))
with open(OUT, "w") as f:
    for e in events:
        f.write(json.dumps(e) + "\n")
sys.exit(code)
