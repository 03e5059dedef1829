"""A service in a process of its own, asked by HTTP, and what its numbers say: for tests that see every number move."""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

from waiting import until

SRC, RON = os.environ["SRC"], os.environ["RON"]


class Life:
    def __init__(self, service, port, *flags):
        self.service, self.flags = service, flags
        self.where = tempfile.mkdtemp(prefix="ron-numbers-")
        self.base = int(subprocess.run([os.path.join(SRC, "tests/lib/ports")], capture_output=True, check=True).stdout)
        self.port = self.base + port
        self.program, self.token, self.seen = None, "", set()

    def start(self, *flags, data="data", probe="/readyz"):
        """SIGXFSZ stays ignored, as Python has it: a write beyond a limit is to fail, not to kill."""
        self.program = subprocess.Popen([RON, self.service, "--data", f"{self.where}/{data}", "--base-port", str(self.base), *self.flags, *flags],
                                        stderr=open(self.where + "/log", "a"), stdout=subprocess.DEVNULL, restore_signals=False)

        def answers():
            assert self.program.poll() is None, self.log()
            try:
                return self.call("GET", probe)[0] == 200
            except OSError:
                return False

        until(self.log, answers)
        self.token = open(f"{self.where}/{data}/operator.token").read().strip()

    def log(self):
        return open(self.where + "/log").read()[-3000:]

    def stop(self, sig):
        self.program.send_signal(sig)
        return self.program.wait()

    def end(self):
        if self.program is not None and self.program.poll() is None:
            self.stop(signal.SIGKILL)
        shutil.rmtree(self.where, ignore_errors=True)

    def call(self, method, path, body=None, bearer=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        c.request(method, path, body if body is None else json.dumps(body), {"Authorization": "Bearer " + (bearer or self.token)})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, json.loads(text) if "json" in r.getheader("Content-Type", "") else text

    def ask(self, status, method, path, body=None, bearer=None):
        got, text = self.call(method, path, body, bearer)
        assert got == status, f"{method} {path}: {got} instead of {status}: {str(text)[:500]}"
        return text

    def numbers(self):
        """name or name{labels} without the service -> value"""
        out = {}
        for line in self.ask(200, "GET", "/metrics").decode().splitlines():
            m = re.match(r'(\w+)\{service="' + self.service + r'",?([^}]*)\} (\S+)$', line)
            if m:
                out[m[1] + ("{" + m[2] + "}" if m[2] else "")] = float(m[3])
        return out

    def want(self, exact=None, at_least=None, seconds=30):
        """These values, once they have been published; all of them."""
        wrong = []

        def fit():
            now = self.numbers()
            wrong.clear()
            for table, fits in ((exact or {}, lambda a, b: a == b), (at_least or {}, lambda a, b: a >= b)):
                for name, value in table.items():
                    self.seen.add(re.sub(r"_(sum|count)$", "", name.partition("{")[0]))
                    if name not in now or not fits(now[name], value):
                        wrong.append(f"{name} is {now.get(name)}, expected {value}")
            return None if wrong else now

        return until(lambda: "; ".join(wrong), fit, seconds)

    def all_seen(self, but):
        """Every family the service defines was seen, or is among `but`; those of copies on several machines have their own tests."""
        source = open(f"{SRC}/services/{self.service}/metrics.def").read()
        defined = set(re.findall(r'^(?:COUNTER|GAUGE|HISTOGRAM|SUMMARY)\(\w+, "(\w+)"', source, re.M))
        forgotten = sorted(n for n in defined - self.seen - but if not n.startswith(self.service + "_replica_"))
        assert not forgotten, f"no test sees these move: {forgotten}"
        print(f"{len(self.seen)} families move")
