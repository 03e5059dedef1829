"""The edge ends in the midst of its work, again and again: clients read tiles and objects, whole and in parts, objects are filled and
evicted, a pack is replaced under them. SIGTERM: whoever asked is answered, wholly. SIGKILL: what was answered stays true.

usage: ends.py RON SRC DIR ORIGIN drain|kill ROUNDS SECONDS SEED     (started by ends.test)
"""
import atexit, hashlib, http.client, json, os, random, re, shutil, signal, socket, subprocess, sys, threading, time

sys.path.insert(0, f"{sys.argv[2]}/tests/lib")
from waiting import until

ron, src, where, origin, kind, rounds, seconds, seed = *sys.argv[1:6], int(sys.argv[6]), int(sys.argv[7]), sys.argv[8]
rng = random.Random(f"{kind}.{seed}")
data, CLIENTS, PACKS = f"{where}/data", 8, 3
base = int(subprocess.run([f"{src}/tests/lib/ports"], capture_output=True, check=True, text=True).stdout)
port, log = base + 50, f"{where}/log"
FLAGS = ["--mode=live", f"--fill.ca_file={where}/ca.pem", "--fill.allow_private=127.0.0.0/8", "--cas.min_free=0", "--cas.max_objects=2000",
         "--http.threads=2", "--ingress.rps_limit=1000000", "--ingress.client_rps=1000000", "--drain_deadline=30s", "--request_timeout=60s",
         "--ingress.timeout_secs=60", f"--fill.routes=a/ {origin}/ timeout=60s"]


running = None


def start():
    global running
    running = edge = subprocess.Popen([ron, "edge", "--data", data, "--base-port", str(base), *FLAGS], stderr=open(log, "w"))

    def ready():
        assert edge.poll() is None, f"the edge ended: {open(log).read()[-1000:]}"
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            c.request("GET", "/readyz")
            return c.getresponse().status == 200
        except OSError:
            return False

    until(lambda: f"the edge does not start: {open(log).read()[-1000:]}", ready)
    return edge


def swap():
    shutil.copy(f"{where}/gen{rng.randrange(PACKS)}.pmtiles", f"{data}/edge/packs/.w")
    os.rename(f"{data}/edge/packs/.w", f"{data}/edge/packs/w.pmtiles")


class Round:
    """What eight clients were told while the edge ended."""

    def __init__(self, number):
        self.number, self.ending = number, False
        self.lock, self.wrong, self.filled, self.said = threading.Lock(), [], [], {}

    def note(self, what):
        with self.lock:
            self.said[what] = self.said.get(what, 0) + 1

    def told(self):
        with self.lock:
            return sum(self.said.values())

    def answered(self, more):
        goal = self.told() + more
        until("clients are not answered", lambda: self.wrong or self.told() >= goal)

    def judge(self, path, want, status, headers, body, part):
        if status in (200, 206):
            whole = want(body if status == 200 else None)
            if status == 200 and (body != whole or headers["ETag"] != f'"sha256:{hashlib.sha256(body).hexdigest()}"'):
                raise ValueError(f"{path}: wrong bytes {body[:60]!r}")
            if status == 206 and whole and body != whole[part[0]:part[1] + 1]:
                raise ValueError(f"{path}: wrong part {body[:60]!r}")
        elif headers["X-Reason"] == "timeout":
            return  # nothing here is slow, but the machine may be
        elif status != 503 or json.loads(body)["code"] != "draining" or not self.ending:
            raise ValueError(f"{path}: {status} {body[:300]!r}")

    def client(self, me):
        dice, n = random.Random(f"{seed}.{kind}.{self.number}.{me}"), 0
        conn, asked_before = None, False
        while True:
            try:
                if not conn:
                    conn, asked_before = http.client.HTTPConnection("127.0.0.1", port, timeout=90), False
                    conn.connect()
            except OSError:
                if self.ending:
                    return  # nobody is there any more
                raise
            n += 1
            name, part = f"r{self.number}-{me}-{n}.txt", None
            if dice.random() < 0.5:
                z = dice.randrange(4)
                x, y = dice.randrange(2**z), dice.randrange(2**z)
                path = f"/edge/tiles/w/{z}/{x}/{y}"

                def want(body):
                    g = re.match(rb"generation-\d", body or b"")
                    return (g[0] + b" %d/%d/%d" % (z, x, y)).ljust(3000, b".") if g else None
            else:
                if dice.random() < 0.3 and self.filled:
                    name = dice.choice(self.filled)
                path, want = f"/edge/assets/a/{dice.choice(('good', 'good', 'slow/30'))}/{name}", lambda _: name.encode() * 100
            if dice.random() < 0.3:
                part = (1, 40)
            in_time = False
            try:
                conn.request("GET", path, headers={"Range": "bytes=%d-%d" % part} if part else {})
                in_time = not self.ending  # it had asked before anybody told it to end
                r = conn.getresponse()
            except (http.client.BadStatusLine, OSError) as e:  # not a byte of an answer
                self.note("too late" if not in_time else "nothing, asked again" if asked_before else "nothing")
                if not self.ending or (in_time and kind == "drain"):
                    raise ValueError(f"{path}: {e!r}, {'on a connection that had served' if asked_before else 'on a new connection'}")
                conn = None
                continue
            try:
                body = r.read()
            except (http.client.IncompleteRead, OSError):
                if kind == "drain":
                    raise ValueError(f"{path}: cut off after {r.status}")
                self.note("cut off")
                return
            self.judge(path, want, r.status, r.headers, body, part)
            self.note(r.status)
            asked_before = True
            if path.startswith("/edge/assets/") and r.status in (200, 206) and "/good/" in path:
                with self.lock:
                    self.filled.append(name)
            if r.headers["Connection"] == "close":
                conn = None

    def guard(self, me):
        try:
            self.client(me)
        except BaseException as e:
            self.wrong.append(f"{type(e).__name__} {e}")

    def run(self):
        edge = start()
        if "objects_lost" in open(log).read():
            sys.exit(f"round {self.number}: a name without its object: {open(log).read()[-1000:]}")
        crowd = [threading.Thread(target=self.guard, args=(n,), daemon=True) for n in range(CLIENTS)]
        for c in crowd:
            c.start()
        self.answered(CLIENTS * 2)
        swap()
        self.answered(rng.randrange(200))  # so many more, and then it ends
        self.ending = True
        edge.send_signal(signal.SIGTERM if kind == "drain" else signal.SIGKILL)
        code = edge.wait(90)
        for c in crowd:
            c.join(90)
        if self.wrong:
            sys.exit(f"round {self.number}: {self.wrong[:3]}\n{open(log).read()[-1500:]}")
        if kind == "drain" and (code != 0 or not re.search(r'"event":"drain_end","aborted":0,"leaked":0', open(log).read())):
            sys.exit(f"round {self.number}: exit code {code}: {open(log).read()[-1000:]}")
        if kind == "drain" and os.listdir(f"{data}/edge/cas/tmp"):
            sys.exit(f"round {self.number}: temporaries after a drain")
        return self


def stays_true(last):
    """What was answered as stored is there after the end: the same bytes, without asking the origin."""
    edge = start()
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    for name in last.filled[-200:]:
        c.request("GET", f"/edge/assets/a/good/{name}")
        r = c.getresponse()
        if r.read() != name.encode() * 100 or r.headers["X-Cache"] != "cas":
            sys.exit(f"{name}: {r.status}, {r.headers['X-Cache']}: it had been stored")
    wrong = [f for at, _, names in os.walk(f"{data}/edge/cas") if len(os.path.basename(at)) == 2 for f in names
             if hashlib.sha256(open(f"{at}/{f}", "rb").read()).hexdigest() != f]
    if wrong or os.listdir(f"{data}/edge/cas/tmp"):
        sys.exit(f"{wrong} are not what they are called, or a temporary is left")
    edge.terminate()
    if edge.wait(90) != 0 or "cas_quarantined" in open(log).read():
        sys.exit(f"afterwards: {open(log).read()[-1000:]}")


atexit.register(lambda: running and running.poll() is None and running.kill())
os.makedirs(f"{data}/edge/packs", mode=0o700)
os.chmod(data, 0o700)
for g in range(PACKS):
    subprocess.run([sys.executable, f"{src}/tests/lib/edge_pack.py", f"{where}/gen{g}.pmtiles", "3", f"generation-{g}", "--bytes", "3000"], check=True)
swap()
began, total, n = time.monotonic(), {}, 0
while n < rounds and time.monotonic() - began < seconds:
    n += 1
    last = Round(n).run()
    for what, k in last.said.items():
        total[what] = total.get(what, 0) + k
    if n % 5 == 0 or n == rounds:
        stays_true(last)
print(f"{n} times {kind}: {total}")
