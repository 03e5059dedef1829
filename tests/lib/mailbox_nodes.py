"""Mailbox nodes that share their shards through a PostgreSQL cluster, a load with a recorded history, faults, and the judge.

The judge (check) compares what was answered with what is there:

  - `ron mailbox check-trace`: every acknowledged message was delivered and acked, none twice for a key, attempts rise
  - every acknowledged send is a link of its topic's one chain, at the number and with the hash that were acknowledged
  - in PostgreSQL each shard's groups form one chain of roots, without a gap, and epochs never go back
  - `ron mailbox verify` finds every node's copies whole
"""
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from mailbox_load import Client, Load, millis
from netns import STORE
from replica_rig import RON, Postgres, Program, Proxy, SmallDisk, Unix, ports, say, until


class Node(Program):
    def __init__(self, rig, name, *flags):
        self.rig, self.name, self.flags = rig, name, flags
        self.data, self.log = os.path.join(rig.dir, name), os.path.join(rig.dir, name + ".log")
        self.base = ports()
        self.port = self.base + 30
        self.process = None
        self.proxies = []  # between it and PostgreSQL's servers

    def dsn(self):
        if not self.proxies:
            return self.rig.pg.dsn
        return "host=127.0.0.1,127.0.0.1,127.0.0.1 port=" + ",".join(str(p.port) for p in self.proxies) + " dbname=ron user=ron"

    def cut(self, off=True):
        """Nothing passes between it and PostgreSQL, and nobody is told."""
        if self.rig.nets:
            (self.rig.nets.pull if off else self.rig.nets.plug)(STORE, self.name)
        for p in self.proxies:
            p.cut = off

    def connection(self, timeout):
        if self.rig.nets:
            return Unix(os.path.join(self.data, "run/mailbox.sock"), timeout)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def start(self, wait=True):
        with open(self.log, "a") as out:
            self.process = subprocess.Popen(
                [*(self.rig.nets.enter(self.name) if self.rig.nets else []), RON, "mailbox", "--data", self.data, "--base-port", str(self.base), "--replica.dsn=" + self.dsn(), "--replica.node=" + self.name,
                 "--replica.lease=" + self.rig.lease, "--replica.timeout=2s", "--ready_shards=4", "--max_attempts=100", "--t_replay=60s",
                 "--backoff_base=5ms", "--backoff_max=20ms", *self.flags], stdout=out, stderr=out)
        if wait:
            until(f"{self.name} is ready", lambda: self.status().get("ready"))
        return self

    def status(self):
        try:
            c = self.connection(2)
            c.request("GET", "/readyz")
            body = json.loads(c.getresponse().read())
            c.close()
            return body
        except (OSError, ValueError, http.client.HTTPException):
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended: " + open(self.log).read()[-2000:])
            return {}

    def here(self):
        return self.status().get("shards_here", 0)

    def call(self, method, path, body=None):
        c = self.connection(20)
        c.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": "Bearer " + self.rig.token()})
        r = c.getresponse()
        data, headers = r.read(), dict(r.getheaders())
        c.close()
        return r.status, json.loads(data or b"{}"), headers

    def shards(self):
        return self.call("GET", "/admin/mailbox/shards")[1]["shards"]


class Rig:
    def __init__(self, names=("a", "b"), lease="1s", flags=(), shards=4, start=None, proxies=False, nets=None, pg=None, small_disk=False):
        self.dir = tempfile.mkdtemp(prefix="ron-nodes-", dir="/tmp")
        os.chmod(self.dir, 0o711)
        self.lease, self.shards, self.nodes, self.pg, self.load, self.nets = lease, shards, [], pg, None, nets
        self.own_pg, self.disk = pg is None, None
        try:
            if small_disk:
                self.disk = SmallDisk(os.path.join(self.dir, "pg"))
            self.pg = pg or Postgres(os.path.join(self.dir, "pg"), nets)
            self.nodes = [Node(self, name, *flags) for name in names]
            for n in self.nodes if proxies else []:
                n.proxies = [Proxy(self.pg.port + i) for i in range(3)]
            self.nodes[0].start()
            for n in self.nodes[1:start]:
                self.join(n)
                n.start()
            self.balanced()
        except BaseException:
            self.close()
            raise

    def join(self, node):
        """One token is good for all nodes."""
        first = self.nodes[0]
        shutil.copytree(os.path.join(first.data, "keys"), os.path.join(node.data, "keys"))
        shutil.copy(os.path.join(first.data, "operator.token"), node.data)
        os.chmod(node.data, 0o700)

    def token(self):
        return open(os.path.join(self.nodes[0].data, "operator.token")).read().strip()

    def balanced(self):
        """Every living node has its share, and all shards are somewhere."""
        alive = [n for n in self.nodes if n.process]

        def fair():
            here = [n.here() for n in alive]
            return sum(here) == self.shards and max(here) - min(here) <= 1

        until("the shards are shared out", fair)

    def begin_load(self, topics=8):
        self.load = Load([n.port for n in self.nodes], self.token, ["crash/%d" % i for i in range(topics)], patience_s=1, shards=self.shards,
                         connect=lambda port, timeout: next(n for n in self.nodes if n.port == port).connection(timeout))
        self.load.start()
        self.goes_on("the beginning", 20)

    def goes_on(self, after, n=30):
        """Sends are acknowledged again, for every shard."""
        before, began = self.load.count("sent"), time.monotonic()
        until(f"the load goes on after {after}", lambda: self.load.count("sent") >= before + n)
        c = Client(self.load)
        for topic in self.load.topics:
            until(f"{topic} answers after {after}", lambda t=topic: c.call("/v1/topics/" + t.replace("/", "%2F"), None, method="GET")[0] in (200, 404))
        say(f"{after}: all shards answer after {time.monotonic() - began:.2f} s")

    def stops(self, why, seconds=1.0, patience=40.0):
        """Waits until nothing is acknowledged for that long. What was on its way when it began may still come; what goes on does not end."""
        end, have, since = time.monotonic() + patience, self.load.count("sent"), time.monotonic()
        while time.monotonic() < since + seconds:
            assert time.monotonic() < end, f"acknowledged while {why}"
            self.run_for(0.05)
            if self.load.count("sent") != have:
                have, since = self.load.count("sent"), time.monotonic()

    @staticmethod
    def run_for(seconds):
        """The load goes on meanwhile; this is the length of a fault, not a wait for anything."""
        time.sleep(seconds)

    def links(self, topic):
        c, out, start = Client(self.load), {}, 1
        while True:
            st, r = until(f"the chain of {topic}", lambda: (lambda a: a if a[0] == 200 else None)(
                c.call(f"/v1/topics/{topic.replace('/', '%2F')}/chain?from={start}&limit=1000", None, method="GET")))
            assert st == 200, r
            for link in r["links"]:
                out[link["topic_seq"]] = link["hash_chain"]
            if "next" not in r:
                return out
            start = r["next"]

    def check(self):
        load = self.load
        load.stop()
        until("every lease has ended", lambda: load.leased() == 0)
        began, refused = time.monotonic(), load.drain()
        say(f"drained in {time.monotonic() - began:.2f} s" + "".join(f"; {topic}: {n} times {st}" for (topic, st), n in refused.items()))
        chains = {topic: self.links(topic) for topic in load.topics if any(t == topic for t, _ in load.links)}
        for (topic, seq), (msg_id, link) in load.links.items():
            if link:  # a duplicate whose original's body is gone does not say it
                assert chains[topic].get(seq) == link, f"{topic} {seq} {msg_id}: acknowledged {link}, there is {chains[topic].get(seq)}"
        say(f"{load.count('sent')} sends acknowledged, {load.count('acked')} acked; every send is a link of its topic's chain")
        for n in self.nodes:
            assert n.stop() == 0, open(n.log).read()[-1500:]
            for e in n.events("shard.here"):
                load.note(event="restart", at_ms=millis(e["ts"]), shard=e["shard"])  # leases end with the state that knew them
        self.rows()
        self.judge()
        for n in self.nodes:
            r = subprocess.run([RON, "mailbox", "verify", os.path.join(n.data, "mailbox")], capture_output=True, text=True, timeout=60)
            assert r.returncode == 0, r.stdout + r.stderr

    def rows(self):
        bad = self.pg.rows("""select stream, group_no from (select *, lag(new_root) over w before, lag(epoch) over w old, lag(group_no) over w n
            from ron_frame window w as (partition by stream order by group_no)) x
            where n is not null and (before <> prev_root or old > epoch or n + 1 <> group_no)""")
        assert not bad, bad
        epochs = self.pg.rows("select count(*), count(distinct stream), (select sum(epoch) from ron_lease where stream not like '%node%') from ron_frame")
        say("PostgreSQL: %s groups in %s streams, %s epochs, one chain each" % tuple(epochs[0]))

    def judge(self):
        path = os.path.join(self.dir, "history")
        self.load.written(path)
        r = subprocess.run([RON, "mailbox", "check-trace", path, "--max-attempts", "100", "--t-replay-ms", "60000", "--slack-ms", "400", "--drained"],
                           capture_output=True, text=True, timeout=60)
        if r.returncode != 0:
            keep = f"/tmp/ron-nodes-history-{os.getpid()}"
            shutil.copy(path, keep)
            raise AssertionError(f"{r.stdout}{r.stderr} (history: {keep})")

    def close(self):
        for n in self.nodes:
            if n.process is not None:
                n.process.kill()
                n.process.wait()
                n.process = None
            for p in n.proxies:
                p.ended = True
        if self.disk:
            self.disk.close()
        if self.pg and self.own_pg:
            self.pg.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


def drill(scenario, **options):
    rig = None
    try:
        rig = Rig(**options)
        rig.begin_load()
        scenario(rig)
        rig.check()
        say("ok")
    except (AssertionError, subprocess.TimeoutExpired) as e:
        for n in rig.nodes if rig else []:
            print(f"--- {n.name}", open(n.log, errors="replace").read()[-2500:], sep="\n", file=sys.stderr)
        sys.exit(f"FAILED: {e}")
    finally:
        if rig:
            rig.close()
