"""Producers and consumers on a mailbox of one node or several, and what they saw, for `ron mailbox check-trace`.

A client asks one node and goes where it is sent (307); whoever does not answer is left for the next one. What was answered is
written down, and written() puts it in the order in which it happened.
"""
import base64
import collections
import http.client
import json
import random
import threading
import time
import urllib.parse


def now():
    return int(time.time() * 1000)


def millis(ts):
    return int(time.mktime(time.strptime(ts[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone) * 1000 + int(ts[20:23])


def bucket(msg_id):
    return int(msg_id[15:18], 16)


class Client:
    """One connection at a time; None for no answer."""

    def __init__(self, load):
        self.load, self.c, self.port, self.asked = load, None, random.choice(load.ports), None

    def away(self, port=None):
        if self.c:
            self.c.close()
        self.c = None
        ports = self.load.ports
        self.port = port or ports[(ports.index(self.port) + 1) % len(ports) if self.port in ports else 0]

    def call(self, path, body, timeout=None, method="POST"):
        try:
            for _ in range(5):
                if not self.c:
                    self.c = self.load.connect(self.port, timeout or self.load.patience_s)
                self.asked = self.port
                self.c.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": "Bearer " + self.load.token()})
                r = self.c.getresponse()
                data = r.read()
                if r.status != 307:
                    answer = json.loads(data or b"{}")
                    if r.status == 503:
                        self.away()
                    return r.status, answer
                self.away(urllib.parse.urlsplit(r.getheader("Location")).port)
        except (OSError, http.client.HTTPException, ValueError):
            self.away()
            return None, None
        return 503, {}


def by_port(port, timeout):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


class Load:
    """`ports`: where nodes listen. `token`: a function, since the first node makes it. `connect`: how a node is reached by its port."""

    def __init__(self, ports, token, topics=("crash/a", "crash/b", "crash/c"), visibility_ms=400, patience_s=5, shards=1, connect=by_port):
        self.connect = connect
        self.ports, self.token, self.topics, self.visibility_ms, self.patience_s = list(ports), token, list(topics), visibility_ms, patience_s
        self.shards = shards
        self.events, self.lock, self.stopping, self.threads = [], threading.Lock(), threading.Event(), []
        self.links = {}  # (topic, seq): (id, link), as acknowledged

    def note(self, **e):
        with self.lock:
            self.events.append(e)

    def count(self, kind):
        with self.lock:
            return sum(e["event"] == kind for e in self.events)

    def start(self, pairs=3):
        self.threads = [threading.Thread(target=f, args=(n,), daemon=True) for n in range(pairs) for f in (self.produce, self.consume)]
        for t in self.threads:
            t.start()

    def stop(self, seconds=60):
        self.stopping.set()
        end = time.monotonic() + seconds
        for t in self.threads:
            t.join(max(0.1, end - time.monotonic()))
            assert not t.is_alive(), "a client is not answered"

    def send(self, c, topic, key, payload=None):
        """Until it is taken: the outcome of a lost answer is unknown, the same key tells."""
        body = {"topic": topic, "idem_key": key, "payload_b64": base64.b64encode(payload or key.encode()).decode()}
        while True:
            st, r = c.call("/v1/send", body)
            if st == 200:
                break
            time.sleep(0.01)
            if self.stopping.is_set() and st is None:
                time.sleep(0.05)
        self.note(event="sent", id=r["msg_id"], topic=topic, key=key, seq=r["topic_seq"], at_ms=millis(r["ts"]))
        self.links[topic, r["topic_seq"]] = r["msg_id"], r.get("hash_chain")
        return body

    def produce(self, n):
        c, i = Client(self), 0
        while not self.stopping.is_set():
            i += 1
            topic, key = random.choice(self.topics), "p%d-%d" % (n, i)
            body = self.send(c, topic, key)
            if random.random() < 0.1:
                st, r2 = c.call("/v1/send", body)
                if st == 200:
                    self.note(event="duplicate", id=r2["msg_id"], topic=topic, key=key, at_ms=now())
                    assert r2["duplicate"]

    def consume(self, _):
        c = Client(self)
        while not self.stopping.is_set():
            st, messages = self.receive(c, random.choice(self.topics))
            if st != 200:
                time.sleep(0.01)
            for m in messages:
                self.settle(c, m, random.random())

    def receive(self, c, topic):
        asked = now()
        st, r = c.call("/v1/recv", {"topic": topic, "max_messages": 16, "visibility_ms": self.visibility_ms, "wait_ms": 50})
        messages = r["messages"] if st == 200 else []
        for m in messages:
            self.note(event="delivered", id=m["msg_id"], attempt=m["attempt"], at_ms=now(), until_ms=asked + self.visibility_ms, asked=asked)
        return st, messages

    def drain(self, seconds=60):
        """Takes out what is left. A topic is done when it had nothing to give and counts nothing that is still to come. One that does
        not answer, or that keeps what it counts, is not drained: that is no verdict on its messages, and has a name of its own. Returns
        how often a receive was answered with something else than 200, by topic and answer."""
        refused = collections.Counter()
        c, end, left = Client(self), time.monotonic() + seconds, {topic: "not asked" for topic in self.topics}
        while left:
            for topic in list(left):
                st, messages = self.receive(c, topic)
                for m in messages:
                    self.settle(c, m, 0)
                left[topic] = "receive: %s, %d messages" % (st, len(messages))
                refused[topic, st] += st != 200
                if st == 200 and not messages:
                    left[topic] = self.still_in(c, topic)
                if left[topic] is None:
                    del left[topic]
                assert time.monotonic() < end, "not drained within %d s: %s" % (seconds, left)
        return +refused

    @staticmethod
    def still_in(c, topic):
        st, r = c.call("/v1/topics/" + topic.replace("/", "%2F"), None, method="GET")
        if st == 404:
            return None
        counts = {k: r.get(k) for k in ("ready", "delayed", "leased", "dlq")} if st == 200 else None
        return None if counts and not any(counts.values()) else "topic: %s %s" % (st, counts)

    def settle(self, c, m, what):
        at = now()
        if what < 0.8:
            st, _ = c.call("/v1/ack/" + m["msg_id"], {"attempt": m["attempt"]})
            if st == 200:
                self.note(event="acked", id=m["msg_id"], attempt=m["attempt"], at_ms=at, until_ms=now())
            elif st is None or st == 503:  # the server died over it: done or not, only a redelivery would tell
                self.note(event="unsure", id=m["msg_id"], attempt=m["attempt"], at_ms=at)
        elif what < 0.9:
            st, _ = c.call("/v1/nack/" + m["msg_id"], {"attempt": m["attempt"], "reason": "chaos"})
            if st == 200:  # without an answer the server died over it, and leases died with it
                self.note(event="nacked", id=m["msg_id"], attempt=m["attempt"], at_ms=at)

    def leased(self):
        total = 0
        for port in self.ports:
            c = self.connect(port, 30)
            c.request("GET", "/metrics")
            lines = c.getresponse().read().decode().splitlines()
            c.close()
            total += sum(float(l.rsplit(" ", 1)[1]) for l in lines if l.startswith("queue_depth{") and 'queue="leased"' in l)
        return total

    def written(self, path):
        """A delivery happened between the request and the note of it. A consumer that the machine held up notes it after its successor
        did: then it is moved back before that one, but not before its own request; and a delivery asked for before a crash was the
        dead server's, however late it was noted."""
        ends = [(e["at_ms"], e.pop("shard", None)) for e in self.events if e["event"] in ("crash", "restart")]
        by_id, sent = {}, {e["id"]: e["at_ms"] for e in self.events if e["event"] == "sent"}
        for e in self.events:
            if e["event"] == "delivered":
                begin, shard = max(e["asked"], sent.get(e["id"], 0)), bucket(e["id"]) % self.shards
                e["at_ms"] = min([e["at_ms"]] + [at for at, of in ends if at >= begin and of in (None, shard)])
                by_id.setdefault(e["id"], []).append(e)
        for got in by_id.values():
            got.sort(key=lambda e: -e["attempt"])
            for later, earlier in zip(got, got[1:]):
                if later["attempt"] > earlier["attempt"] and earlier["at_ms"] > later["at_ms"] >= earlier["asked"]:
                    earlier["at_ms"] = later["at_ms"]
            for e in got:
                del e["asked"]
        # within a millisecond: a lease and its end, then the next lease
        stage = {"sent": 0, "crash": 1, "restart": 1, "delivered": 2, "acked": 2, "nacked": 2, "unsure": 2, "duplicate": 3}
        self.events.sort(key=lambda e: (e["at_ms"], stage[e["event"]], e.get("attempt", 0), e["event"] != "delivered"))
        with open(path, "w") as f:
            for e in self.events:
                f.write(json.dumps(e) + "\n")
