"""Load on a mailbox that is killed again and again; writes what producers and consumers saw, for `ron mailbox check-trace`.

usage: history.py RON DATA BASE_PORT OUT KILLS
"""
import http.client
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests/lib"))
from mailbox_load import Client, Load, now  # noqa: E402
from waiting import until  # noqa: E402

RON, DATA, BASE, OUT, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
PORT = BASE + 30
log = open(OUT + ".log", "ab")


def start():
    p = subprocess.Popen([RON, "mailbox", "--data", DATA, "--base-port", str(BASE), "--max_attempts=100", "--t_replay=60s",
                          "--drills.enabled=true", "--backoff_base=5ms", "--backoff_max=20ms"], stdout=log, stderr=log)
    until("ready", ready)
    return p


def ready():
    try:
        c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
        c.request("GET", "/readyz")
        return c.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


server = start()
load = Load([PORT], lambda: open(DATA + "/operator.token").read().strip())
load.start()
for k in range(KILLS):
    time.sleep(random.uniform(0.15, 0.5))
    if k % 4 == 3:  # a single worker fails: nobody may notice
        Client(load).call("/admin/tasks/worker-%d/fail" % (k % 2), {})
        continue
    server.send_signal(signal.SIGKILL)
    server.wait()
    load.note(event="crash", at_ms=now())  # not before: until it is gone it answers
    server = start()
before = load.count("sent")
until("the load goes on after the last kill", lambda: load.count("sent") >= before + 20)
load.stop()
until("every lease has ended", lambda: load.leased() == 0)
load.drain()
server.send_signal(signal.SIGTERM)
code = server.wait()
load.written(OUT)
sys.exit(code)
