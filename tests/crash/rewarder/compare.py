#!/usr/bin/env python3
"""Every leaf of the epochs e1 .. eN has exactly one ledger entry: same id, payee and amount, at the seq the service says; and the ledger
has no other. Prints how many, or what differs.

usage: compare.py REWARDER_URL LEDGER_URL TOKEN_FILE N"""
import csv, io, json, sys, urllib.request

rewarder, ledger, token_file, epochs = sys.argv[1:]
token = open(token_file).read().strip()


def get(url):
    return urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": "Bearer " + token}), timeout=60).read()


def leaves():
    for e in range(1, int(epochs) + 1):
        for row in csv.DictReader(io.StringIO(get(f"{rewarder}/rewarder/epochs/e{e}/payouts.csv").decode())):
            if row["entry_id"]:
                yield int(row["ledger_seq"] or 0), row["entry_id"], row["account"], row["amount"]


def entries():
    at = 1
    while at:
        page = json.loads(get(f"{ledger}/v1/entries?from={at}&limit=1000"))
        for x in page["entries"]:
            e = x["entry"]
            if e["id"].startswith("rw_"):
                yield int(x["seq"]), e["id"], e["to"], e["amount"]
        at = int(page.get("next") or 0)


want, have = sorted(leaves()), sorted(entries())
if want != have:
    print("leaves and ledger entries differ:", sorted(set(want) ^ set(have))[:5] or f"{len(want)} and {len(have)}")
    sys.exit(1)
print(len(have))
