#!/usr/bin/env python3
"""Recomputes a topic's hash chain from what GET /v1/topics/{topic}/chain tells, with nothing but the standard library.

usage: chain_verify.py URL TOPIC [--token FILE] [--saved FILE]

Reads all pages (or one saved answer), recomputes every link and compares the last with the head. Exit 0: every link holds.
With an earlier head (SEQ:HEX as further arguments) it also checks that history was not rewritten.
"""
import argparse
import datetime
import hashlib
import json
import sys
import urllib.parse
import urllib.request


def lp(b):
    return len(b).to_bytes(4, "big") + b


def u64(v):
    return lp(v.to_bytes(8, "big"))


def ms(text):
    if text is None:
        return 0
    t = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
    return int(t.timestamp()) * 1000 + t.microsecond // 1000


def raw(text):
    algorithm, _, digest = text.partition(":")
    if algorithm != "sha256" or len(digest) != 64:
        raise ValueError("not a sha256: " + text)
    return bytes.fromhex(digest)


def genesis(topic, chain_id):
    return hashlib.sha256(b"ron/mailbox/genesis/v1\0" + lp(topic) + lp(chain_id)).digest()


def link(prev, topic, e):
    return hashlib.sha256(
        b"ron/mailbox/chain/v1\0" + prev + u64(e["topic_seq"]) + lp(topic) + lp(bytes.fromhex(e["msg_id"].replace("-", "")))
        + u64(ms(e["ts"])) + u64(ms(e.get("not_before"))) + lp(e["idem_key"].encode())
        + lp(raw(e["payload_hash"])) + lp(raw(e["attrs_hash"]))).digest()


def fetch(url, topic, token):
    page = None
    while True:
        q = {"limit": 1000}
        if page:
            q["from"] = page["next"]
        rq = urllib.request.Request(
            url + "/v1/topics/" + urllib.parse.quote(topic, safe="") + "/chain?" + urllib.parse.urlencode(q),
            headers={"Authorization": "Bearer " + token})
        page = json.load(urllib.request.urlopen(rq, timeout=30))
        yield page
        if "next" not in page:
            return


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("url")
    p.add_argument("topic")
    p.add_argument("heads", nargs="*")
    p.add_argument("--token")
    p.add_argument("--saved")
    a = p.parse_args()
    if a.saved:
        pages = [json.load(open(a.saved))]
    else:
        pages = fetch(a.url, a.topic, open(a.token).read().strip())
    known = {int(h.split(":")[0]): h.split(":", 1)[1] for h in a.heads}
    topic, prev, seq, first, head = a.topic.encode(), None, None, None, None
    for page in pages:
        head = page["head"]
        for e in page["links"]:
            if seq is None:
                prev, seq, first = raw(page["chain_prev"]), e["topic_seq"] - 1, e["topic_seq"]
                start = genesis(topic, bytes.fromhex(page["chain_id"].replace("-", "")))
                if first == 1 and prev != start:
                    sys.exit("the first link does not begin at the topic's genesis")
            if e["topic_seq"] != seq + 1:
                sys.exit("seq %d follows %d" % (e["topic_seq"], seq))
            prev, seq = link(prev, topic, e), seq + 1
            if prev != raw(e["hash_chain"]):
                sys.exit("link %d does not hold" % seq)
            if seq in known and known[seq] != prev.hex():
                sys.exit("link %d is not the one seen before: history was rewritten" % seq)
    if seq is not None and head["topic_seq"] == seq and raw(head["hash_chain"]) != prev:
        sys.exit("the head is not the last link")
    print("%s: %s links hold, head %d %s" % (a.topic, 0 if seq is None else seq - first + 1, head["topic_seq"], head["hash_chain"]))


if __name__ == "__main__":
    main()
