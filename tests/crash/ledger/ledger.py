"""A ledger that is started again and again, for the drills beside this file."""
import http.client, os, subprocess, time

BASE = int(subprocess.run([os.path.join(os.environ["SRC"], "tests/lib/ports")], capture_output=True, check=True).stdout)


def connect():
    return http.client.HTTPConnection("127.0.0.1", BASE + 10, timeout=30)


def start(ron, where, *flags):
    """The process, once it is ready, and the operator's token."""
    log = open(where + "/log", "a")
    p = subprocess.Popen([ron, "ledger", "--data", where + "/data", "--base-port", str(BASE), *flags], stderr=log, stdout=log)
    until = time.monotonic() + 60
    while time.monotonic() < until and p.poll() is None:
        try:
            c = connect()
            c.request("GET", "/readyz")
            if c.getresponse().status == 200:
                return p, open(where + "/data/operator.token").read().strip()
        except OSError:
            pass
        time.sleep(0.02)
    raise SystemExit("not ready: " + open(where + "/log").read()[-2000:])
