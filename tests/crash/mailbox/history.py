"""Load on a mailbox that is killed again and again; writes what producers and consumers saw, for `ron mailbox check-trace`. Segments
are small and kept for nobody's sake, and some messages stay to the end: they are written again whenever what is older goes.

usage: history.py RON DATA BASE_PORT OUT KILLS
"""
import atexit
import glob
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests/lib"))
from mailbox_load import Client, Load, now  # noqa: E402
from waiting import until  # noqa: E402

RON, DATA, BASE, OUT, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
PORT = BASE + 30
log = open(OUT + ".log", "ab")


def start():
    p = subprocess.Popen([RON, "mailbox", "--data", DATA, "--base-port", str(BASE), "--max_attempts=100", "--t_replay=60s",
                          "--drills.enabled=true", "--backoff_base=5ms", "--backoff_max=20ms", "--storage.segment_bytes=4MiB",
                          "--retention.audit_bytes=0"], stdout=log, stderr=log)
    until("ready", ready)
    return p


def ready():
    try:
        c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
        c.request("GET", "/readyz")
        return c.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def stays():
    """Nobody takes them before the end."""
    c, n = Client(load), 0
    while not load.stopping.is_set():
        n += 1
        load.send(c, "crash/stays", "s%d" % n)
        load.stopping.wait(0.05)  # as many as a drain takes out again


def heavy():
    c, n = Client(load), 0
    while not load.stopping.is_set():
        n += 1
        load.send(c, "crash/heavy", "h%d" % n, random.randbytes(200000))
        for m in load.receive(c, "crash/heavy")[1]:
            load.settle(c, m, 0)
        load.stopping.wait(0.02)  # leaves the disk to the others


def oldest_is_gone():
    shards = [[os.path.basename(f) for f in glob.glob(shard + "/[0-9]*.seg")] for shard in glob.glob(DATA + "/mailbox/s??")]
    return any(names and min(names) > "00000001.seg" for names in shards)


server = start()
atexit.register(lambda: server.poll() is None and server.kill())  # whatever becomes of it, nothing is left running
load = Load([PORT], lambda: open(DATA + "/operator.token").read().strip())
load.start()
load.threads += [threading.Thread(target=f, daemon=True) for f in (stays, heavy)]
for t in load.threads[-2:]:
    t.start()
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
until("what is old goes", oldest_is_gone)
load.stop()
load.topics += ["crash/stays", "crash/heavy"]
until("every lease has ended", lambda: load.leased() == 0)
load.drain()
server.send_signal(signal.SIGTERM)
code = server.wait()
load.written(OUT)
sys.exit(code)
