"""Two ledgers on a PostgreSQL cluster, a load with a recorded history, faults, and the judge of that history.

The load sends transfers under nonces, several units a request, from several clients at once. A client goes on to the next ledger
whenever it is refused or not answered, and sends the same units until each is answered as committed or duplicate. Everything that
was answered is written down: by whom, when, with which seq and root. check() then compares it with all copies:

  - every acknowledged unit is in every copy, at the seq that was acknowledged            (nothing lost)
  - the log holds exactly the units that were sent, each once                              (nothing doubled)
  - whoever acknowledged a unit first held the epoch under which PostgreSQL has its group  (no two writers in one epoch)
  - acknowledged roots are the roots of those groups, and epochs never go back
  - `ron ledger verify` finds every copy whole, and all with the same root
"""
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from netns import STORE
from waiting import until

SRC = os.environ.get("SRC", os.path.join(os.path.dirname(__file__), "..", ".."))
RON = os.environ.get("RON", os.path.join(SRC, "build/debug/ron"))
TOOL = os.path.join(SRC, "tools/pg-cluster")


def say(*what):
    print(f"{time.monotonic() - BEGAN:7.2f}", *what, flush=True)


BEGAN = time.monotonic()

def ports():
    """A port; the 99 above it are ours too."""
    return int(subprocess.run([os.path.join(SRC, "tests/lib/ports")], capture_output=True, text=True, check=True, timeout=60).stdout)


class Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket: it reaches a ledger whatever network that is in."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Postgres:
    def __init__(self, directory, nets=None):
        self.dir = directory
        self.env = {**os.environ, **(nets.postgres_env() if nets else {})}
        self.dsn = self.do("--port", str(ports()), "start").strip()
        self.port = int(open(os.path.join(directory, "port")).read())

    def do(self, *args):
        r = subprocess.run([TOOL, "--dir", self.dir, *args], capture_output=True, text=True, timeout=300, env=self.env)
        if r.returncode != 0:
            raise AssertionError(f"pg-cluster {args}: {r.stderr}")
        return r.stdout

    def primary(self):
        for line in self.do("status").splitlines():
            if " primary " in line:
                return line.split()[0]
        return None

    def rows(self, sql, patience=40.0):
        name = until("a primary", self.primary, patience)
        port = self.port + {"p": 0, "s1": 1, "s2": 2}[name]
        r = subprocess.run(["psql", "-X", "-A", "-t", "-F", " ", "-h", self.dir, "-p", str(port), "-U", "ron", "-d", "ron", "-c", sql],
                           capture_output=True, text=True, timeout=30)
        if r.returncode != 0:
            raise AssertionError(r.stderr)
        return [line.split(" ") for line in r.stdout.splitlines() if line]

    def stop(self):
        subprocess.run([TOOL, "--dir", self.dir, "stop"], capture_output=True, timeout=60)


class SmallDisk:
    """The primary's data on a disk of their own, whose size is what a test says. Full is full at once: nothing needs to be written."""

    def __init__(self, pg_dir):
        os.makedirs(pg_dir, 0o711)
        self.path = os.path.join(pg_dir, "p")
        os.mkdir(self.path)
        self.mount("mode=0700,uid=postgres,gid=postgres", "none", self.path)
        shutil.chown(pg_dir, "postgres", "postgres")

    @staticmethod
    def mount(options, *what):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, *what], check=True, capture_output=True, timeout=20)

    @classmethod
    def allowed(cls):
        with tempfile.TemporaryDirectory() as d:
            try:
                cls.mount("size=1m", "none", d)
            except (subprocess.SubprocessError, OSError):
                return False
            subprocess.run(["umount", d], check=True)
            return True

    def fill(self, pg):
        """No byte more than is there now; and what PostgreSQL has put by (log segments made in advance) is used up, too."""
        while True:
            used = os.statvfs(self.path)
            try:
                self.mount(f"remount,size={(used.f_blocks - used.f_bfree) * used.f_frsize}", self.path)
                break
            except subprocess.CalledProcessError:
                pass  # it grew meanwhile
        for _ in range(20):
            try:
                pg.rows("select pg_switch_wal()", patience=2)
            except AssertionError:
                break

    def free(self):
        self.mount("remount,size=50%", self.path)

    def close(self):
        """Before the cluster is stopped: the server on it is ended first, while its files can be seen."""
        subprocess.run([TOOL, "--dir", os.path.dirname(self.path), "kill", "p"], capture_output=True, timeout=60)
        subprocess.run(["umount", "-l", self.path], capture_output=True, timeout=20)


class Proxy(threading.Thread):
    """Forwards one TCP port to another until it is cut: then nothing passes, and nobody is told."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target = target
        self.cut = False
        self.ended = False
        self.pairs = {}
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while not self.ended:
            watch = [self.listener] + ([] if self.cut else list(self.pairs))
            ready, _, _ = select.select(watch, [], [], 0.02)
            for s in ready:
                if s is self.listener:
                    a, _ = self.listener.accept()
                    try:
                        b = socket.create_connection(("127.0.0.1", self.target), 1)
                    except OSError:
                        a.close()
                        continue
                    self.pairs[a], self.pairs[b] = b, a
                elif s in self.pairs:
                    self.pass_on(s)

    def pass_on(self, s):
        other = self.pairs[s]
        try:
            data = s.recv(65536)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for x in (s, other):
            self.pairs.pop(x, None)
            x.close()


class Program:
    """A process with a log of its own; subclasses start it."""

    process = log = None

    def signal(self, what):
        self.process.send_signal(what)

    def kill(self):
        self.process.kill()
        self.process.wait(20)
        self.process = None

    def stop(self):
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        code = self.process.wait(30)
        self.process = None
        return code

    def events(self, name):
        return [json.loads(line) for line in open(self.log, errors="replace") if f'"event":"{name}"' in line]


class Ledger(Program):
    def __init__(self, rig, name, dsn, *flags):
        self.rig, self.name, self.dsn, self.flags = rig, name, dsn, flags
        self.data = os.path.join(rig.dir, name)
        self.base = ports()
        self.port = self.base + 10
        self.log = os.path.join(rig.dir, name + ".log")
        self.process = None

    def settings(self):
        return ("--replica.dsn=" + self.dsn, "--replica.node=" + self.name, "--replica.lease=" + self.rig.lease, "--replica.timeout=2s", *self.flags)

    def program(self):
        """Its command, and the environment."""
        return [RON, "ledger", "--data", self.data, "--base-port", str(self.base), *self.settings()], os.environ

    def start(self, wait=True):
        command, env = self.program()
        with open(self.log, "a") as out:
            self.process = subprocess.Popen([*(self.rig.nets.enter(self.name) if self.rig.nets else []), *command], stdout=out, stderr=out, env=env)
        if wait:
            until(f"{self.name} is ready", self.ready)
        return self

    def connection(self, timeout):
        if self.rig.nets:
            return Unix(os.path.join(self.data, "run/ledger.sock"), timeout)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

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

    def answered(self):
        """The status of one that is there, however long a busy machine takes."""
        return until(f"{self.name} answers", self.status)

    def ready(self):
        return self.status().get("ready")

    def role(self):
        return self.status().get("role")

    def number(self, name):
        """What /metrics says of ledger_replica_<name> now; 0 when nobody answers."""
        try:
            status, page, _ = self.call("GET", "/metrics")
            page = page.decode() if status == 200 else ""
        except (OSError, http.client.HTTPException):
            return 0.0
        found = re.search(rf"^ledger_replica_{name}\{{[^}}]*\}} (\S+)$", page, re.M)
        return float(found[1]) if found else 0.0

    def verify(self):
        r = subprocess.run([RON, "ledger", "verify", os.path.join(self.data, "ledger"), "--json"], capture_output=True, text=True, timeout=120)
        if r.returncode != 0:
            raise AssertionError(f"verify {self.name}: {r.stdout}{r.stderr}")
        return json.loads(r.stdout)

    def call(self, method, path, body=None, timeout=20):
        c = self.connection(timeout)
        c.request(method, path, body, {"Authorization": "Bearer " + self.rig.token})
        r = c.getresponse()
        data = r.read()
        headers = dict(r.getheaders())
        c.close()
        return r.status, json.loads(data) if data[:1] in (b"{", b"[") else data, headers


class Up(Ledger):
    """The ledger of a `ron up`, beside all the other services."""

    def program(self):
        keys = (s.removeprefix("--").split("=", 1) for s in self.settings())
        return ([RON, "up", "--verbose", "--data", self.data, "--base-port", str(self.base)],
                {**os.environ, **{"RON_LEDGER_" + k.replace(".", "_").upper(): v for k, v in keys}})


class Client(threading.Thread):
    """One sender with an account of its own: batch after batch of transfers, each sent until it is answered."""

    def __init__(self, rig, number, batch):
        super().__init__(daemon=True)
        self.rig, self.number, self.batch = rig, number, batch
        self.account = f"acct:{number}"
        self.nonce = 0
        self.history = []  # (idem_id, ledger, status, seq, root, tree_size, time)
        self.sent = 0
        self.longest = 0.0
        self.target = number % len(rig.ledgers)
        self.failure = None

    def units(self):
        out = [{"idem_id": f"mint:{self.number}", "entries": [
            {"id": f"mint:{self.number}", "ts": 1, "kind": "mint", "account": self.account, "asset": "ron", "amount": "1000000000"}]}] if self.nonce == 0 else []
        while len(out) < self.batch:
            self.nonce += 1
            name = f"t:{self.number}:{self.nonce}"
            out.append({"idem_id": name, "entries": [{"id": name, "ts": 1, "kind": "transfer", "account": self.account, "to": "acct:shop",
                                                      "asset": "ron", "amount": "1", "nonce": str(self.nonce)}]})
        return out

    def turn(self, writer=None):
        for i, ledger in enumerate(self.rig.ledgers):
            if writer and i != self.target and writer.endswith(f":{ledger.port}"):
                self.target = i
                return
        self.target = (self.target + 1) % len(self.rig.ledgers)
        time.sleep(0.02)

    def attempt(self, body):
        """The units' results, or None."""
        ledger = self.rig.ledgers[self.target]
        try:
            status, answer, _ = ledger.call("POST", "/v1/ingest", body, timeout=2)
        except (OSError, http.client.HTTPException, ValueError):
            self.turn()
            return None
        if status == 200:
            return ledger, answer["results"]
        if status not in (429, 503):
            raise AssertionError(f"{ledger.name} said {status}: {answer}")
        if status == 503:
            self.turn((answer.get("details") or {}).get("writer") if isinstance(answer, dict) else None)
        return None

    def run(self):
        try:
            while not self.rig.stopping:
                units = self.units()
                self.sent += len(units)
                body = json.dumps({"units": units})
                began = time.monotonic()
                while True:
                    got = self.attempt(body)
                    if got:
                        break
                    if time.monotonic() - began > 60:
                        raise AssertionError(f"client {self.number} was not answered for 60 s")
                now = time.monotonic()
                self.longest = max(self.longest, now - began)
                ledger, results = got
                for u, r in zip(units, results):
                    if r["status"] not in ("committed", "duplicate"):
                        raise AssertionError(f"{ledger.name}: {u['idem_id']} {r}")
                    self.history.append((u["idem_id"], ledger.name, r["status"], r["seq_start"], r["root"], r["tree_size"], now))
                self.rig.last_ack = now
        except Exception as e:  # pylint: disable=broad-except  # handed to whoever waits
            self.failure = e


class Rig:
    def __init__(self, lease="2s", clients=4, batch=8, proxies=False, flags=(), small_disk=False, before=None, nets=None, kind=Ledger):
        self.dir = tempfile.mkdtemp(prefix="ron-replica-", dir="/tmp")
        os.chmod(self.dir, 0o711)
        self.lease, self.kind = lease, kind
        self.nets = nets  # netns.Nets: every server and every ledger on a machine of its own, so to speak
        self.stopping = False
        self.last_ack = 0.0
        self.others = 0  # units in the log that were not sent by our clients
        self.ledgers, self.clients, self.proxies = [], [], {}
        self.disk = self.pg = None
        try:
            self.begin(clients, batch, proxies, flags, small_disk, before)
        except BaseException:
            self.close()
            raise

    def begin(self, clients, batch, proxies, flags, small_disk, before):
        if small_disk:
            self.disk = SmallDisk(os.path.join(self.dir, "pg"))
        self.pg = Postgres(os.path.join(self.dir, "pg"), self.nets)
        for name in ("a", "b"):
            dsn = self.pg.dsn
            if proxies:
                self.proxies[name] = [Proxy(self.pg.port + i) for i in range(3)]
                dsn = "host=127.0.0.1,127.0.0.1,127.0.0.1 port=" + ",".join(str(p.port) for p in self.proxies[name]) + " dbname=ron user=ron"
            self.ledgers.append(self.kind(self, name, dsn, *flags))
        a, b = self.ledgers
        if before:
            before(self)
        a.start()
        until("a writes", lambda: a.role() == "writer")
        self.token = open(os.path.join(a.data, "operator.token")).read().strip()
        # A copy needs the signing key; the tokens' keys are shared so that one token works everywhere.
        shutil.copytree(os.path.join(a.data, "keys"), os.path.join(b.data, "keys"))
        shutil.copy(os.path.join(a.data, "operator.token"), b.data)
        os.chmod(b.data, 0o700)
        b.start()
        until("b follows", lambda: b.role() == "standby")
        self.clients = [Client(self, i, batch) for i in range(clients)]
        for c in self.clients:
            c.start()
        until("the first acknowledgement", lambda: self.last_ack or not clients)

    def cut(self, name, on=True):
        """A ledger from all of PostgreSQL."""
        if self.nets:
            (self.nets.pull if on else self.nets.plug)(STORE, name)
            return
        for p in self.proxies[name]:
            p.cut = on

    def writer(self):
        for l in self.ledgers:
            if l.process is not None and l.role() == "writer":
                return l
        return None

    def other(self, ledger):
        return self.ledgers[1 - self.ledgers.index(ledger)]

    def acked(self):
        return sum(len(c.history) for c in self.clients)

    def failed(self):
        for c in self.clients:
            if c.failure:
                raise c.failure

    def run_for(self, seconds):
        """Under load, and the load goes on."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.failed()
            time.sleep(0.05)

    def stops(self, why, seconds=1.0, patience=40.0):
        """Waits until nothing is acknowledged for that long. What was on its way when it began may still come; what goes on does not end."""
        end, have, since = time.monotonic() + patience, self.acked(), time.monotonic()
        while time.monotonic() < since + seconds:
            assert time.monotonic() < end, f"acknowledged while {why}"
            self.run_for(0.05)
            if self.acked() != have:
                have, since = self.acked(), time.monotonic()

    def goes_on(self, what, seconds=60.0):
        """Waits for an acknowledgement that was sent after now; returns how long that took."""
        began, have = time.monotonic(), self.acked()

        def fresh():
            self.failed()
            return self.acked() > have + len(self.clients) * self.clients[0].batch
        until(f"acknowledgements after {what}", fresh, seconds)
        took = time.monotonic() - began
        say(f"{what}: acknowledged again after {took:.2f} s")
        return took

    def end_load(self):
        self.stopping = True
        for c in self.clients:
            c.join(70)
            if c.failure:
                raise c.failure
            assert not c.is_alive()
        say(f"{self.acked()} units acknowledged, longest wait {max(c.longest for c in self.clients):.2f} s")

    def check(self):
        """After end_load(). Both ledgers run (one may be fenced for good: it is started again)."""
        for l in self.ledgers:
            if l.process is None:
                l.start()
            elif l.role() == "fenced" and "--replica.rejoin=manual" in l.flags:
                l.stop()
                l.start()
        w = until("a writer", self.writer)
        s = self.other(w)
        head = w.answered()["head_seq"]
        until("the standby has it all", lambda: s.status().get("head_seq") == head)
        assert s.answered()["root"] == w.answered()["root"]
        self.check_history(w, s, head)
        self.check_rows(head)
        for l in self.ledgers:
            assert l.stop() == 0, f"{l.name} did not stop in order"
        verified = [l.verify() for l in self.ledgers]
        assert verified[0]["root"] == verified[1]["root"], verified
        say("verify:", verified[0].get("seq", head), verified[0]["root"])

    def check_history(self, w, s, head):
        sent = sum(c.sent for c in self.clients)
        assert head == sent + self.others, f"{sent} units were sent and acknowledged, the log holds {head} entries"
        by_seq = {}
        for c in self.clients:
            seen = {}
            for idem, _, _, seq, _, _, _ in c.history:
                assert seen.setdefault(idem, seq) == seq, f"{idem} was acknowledged at two seqs"
                assert by_seq.setdefault(seq, idem) == idem, f"seq {seq} was acknowledged for two units"
        assert len(by_seq) == sent
        for ledger in (w, s):
            at, others = 1, 0
            while at <= head:
                status, page, headers = ledger.call("GET", f"/v1/entries?from={at}&limit=1000", timeout=20)
                assert status == 200, page
                assert "role=" in headers["Ledger-Position"]
                for e in page["entries"]:
                    others += e["seq"] not in by_seq
                    assert by_seq.get(e["seq"], e["unit"]["idem_id"]) == e["unit"]["idem_id"], f"{ledger.name}: seq {e['seq']} holds another unit"
                    at = e["seq"] + 1
            assert others == self.others, f"{ledger.name}: {others} units that nobody sent"

    def check_rows(self, head):
        holders = {}
        for l in self.ledgers:
            for e in l.events("take_over"):
                assert holders.setdefault(e["epoch"], l.name) == l.name, f"epoch {e['epoch']} had two writers"
        groups, epoch, next_seq = [], 0, 1
        for g, e, first, n, root in self.pg.rows(
                "select group_no, epoch, first_seq, n_entries, encode(new_root, 'hex') from ron_frame where stream = 'ledger' order by group_no"):
            assert int(g) == len(groups) + 1 and int(first) == next_seq and int(e) >= epoch, (g, e, first)
            epoch, next_seq = int(e), int(first) + int(n)
            groups.append((next_seq - 1, epoch, "sha256:" + root))
        assert next_seq == head + 1
        ends = {last: (e, root) for last, e, root in groups}
        import bisect
        lasts = [g[0] for g in groups]
        for c in self.clients:
            for idem, name, status, seq, root, size, _ in c.history:
                if status != "committed":
                    continue
                e, r = groups[bisect.bisect_left(lasts, seq)][1:]
                assert holders[e] == name, f"{idem} at seq {seq} is of epoch {e} ({holders[e]}) and was acknowledged by {name}"
                assert size in ends and ends[size][1] == root == r, f"{idem}: acknowledged root {root} of {size} is not PostgreSQL's"
        say(f"{len(groups)} groups in {len(set(g[1] for g in groups))} epochs, every acknowledgement by the holder of its epoch")

    def close(self):
        self.stopping = True
        for l in self.ledgers:
            if l.process is not None:
                l.process.kill()
                l.process.wait()
        for name in self.proxies:
            for p in self.proxies[name]:
                p.ended = True
        directory = os.path.join(self.dir, "pg")
        if self.disk:
            self.disk.close()
        subprocess.run([TOOL, "--dir", directory, "stop"], capture_output=True, timeout=60)
        shutil.rmtree(self.dir, ignore_errors=True)


def drill(fn, **kw):
    """Runs fn(rig), then judges the history. Exits non-zero with the logs' ends when anything is wrong."""
    rig = None
    try:
        rig = Rig(**kw)
        fn(rig)
        rig.end_load()
        rig.check()
        say("ok")
    except (AssertionError, subprocess.TimeoutExpired) as e:
        print("FAILED:", e, file=sys.stderr)
        for l in rig.ledgers if rig else []:
            lines = [x for x in open(l.log, errors="replace") if '"event":"request"' not in x]
            print(f"--- {l.name}", "".join(lines[-15:]), sep="\n", file=sys.stderr)
        sys.exit(1)
    finally:
        if rig:
            rig.close()
