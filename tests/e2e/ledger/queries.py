"""Random reads: every route that takes a number or a name, with numbers and names that are odd in every way.

usage: queries.py PORT TOKEN_FILE HEAD SEED COUNT    ends with 0, or with the first answer that is not as it must be
"""
import http.client, json, random, re, sys, urllib.parse

port, token, head, seed, count = int(sys.argv[1]), open(sys.argv[2]).read().strip(), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
r = random.Random(seed)
MAX = 2**64 - 1
SEQ = 2**63 - 1  # no log is longer
NUMBERS = ["", "0", "1", "2", "7", str(head - 1), str(head), str(head + 1), "1000", "1001", "10000", "10001", "5000", str(SEQ), str(SEQ + 1), str(MAX), str(MAX + 1), "9" * 60,
           "-1", "+1", "01", "1e3", "0x10", " 1", "1 ", "1,0", "nan", "\u0663", "1\0", "%31", "true", "null", "'", "1;2"]
NAMES = ["acct:alice", "acct:nobody", "m0", "p1", "t:p:1", "a" * 128, "a" * 129, "a" * 3000, "_t:x", "", " ", "\0", "..", "../..", "a/b", "%", "\u00e4", "\x7f", "x y", "?", "#"]


def number(text, low, high):
    """The value, or None when it must be refused."""
    return int(text) if re.fullmatch(r"0|[1-9][0-9]*", text) and low <= int(text) <= high else None


def good(values, **ranges):
    """All given numbers are in their ranges."""
    return all(number(values[k], *ranges[k]) is not None for k in values if k in ranges)


def roots(q):
    return {200} if good(q, since=(0, SEQ), limit=(1, 10000)) else {400}


def entries(q):
    return {200, 404} if good(q, **{"from": (1, SEQ), "limit": (1, 1000)}) else {400}


def account(q):
    return {200, 400, 404, 409} if good(q, min_seq=(0, MAX)) else {400, 404}  # 404: without a name there is no such path


def unit(q):
    return {200, 400, 404} if good(q, wait=(0, 5000)) else {400, 404}


def inclusion(q):
    if not good(q, seq=(1, SEQ), size=(1, SEQ)) or "seq" not in q or q.get("format", "json") not in ("json", "tlog"):
        return {400}
    size = int(q.get("size", head))
    if size > head or int(q["seq"]) > size:
        return {404} if size > head else {400, 404}
    return {200, 404} if q.get("format") == "tlog" else {200}  # 404: no group ends there, so there is no head to sign


def consistency(q):
    if not good(q, **{"from": (1, SEQ), "to": (1, SEQ)}) or "from" not in q:
        return {400}
    begin, to = int(q["from"]), int(q.get("to", head))
    return {400, 404} if begin > to else {404} if to > head else {200}


ROUTES = [("/v1/roots", ("since", "limit"), False, roots), ("/v1/entries", ("from", "limit"), False, entries), ("/v1/accounts/", ("min_seq",), True, account),
          ("/v1/units/", ("wait",), True, unit), ("/v1/entries/", (), True, lambda q: {200, 400, 404}), ("/v1/proof/inclusion", ("seq", "size", "format"), False, inclusion),
          ("/v1/proof/consistency", ("from", "to"), False, consistency), ("/tile/", (), True, lambda q: {200, 400, 404})]
TILES = ["0/000", "0/000.p/3", "0/000.p/0", "0/000.p/257", "0/x000/000", "0/x001/000", "63/000", "64/000", "entries/000", "entries/000.p/2", "1/00", "0/999", "a/000", "0/000.p/"]
link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
seen = {}
for i in range(count):
    path, names, named, want = r.choice(ROUTES)
    q = {k: r.choice(NUMBERS) for k in names if r.random() < 0.7}
    if "format" in q:
        q["format"] = r.choice(["json", "tlog", "", "JSON", "xml"])
    if named:
        path += urllib.parse.quote(r.choice(TILES if path == "/tile/" else NAMES), safe="/:" if path == "/tile/" or r.random() < 0.5 else "")
    pairs = [(k, v) for k, v in q.items()] + ([("other", r.choice(NUMBERS).strip("\0"))] if r.random() < 0.1 else [])
    r.shuffle(pairs)
    target = path + ("?" + urllib.parse.urlencode(pairs) if pairs else "")
    link.request("GET", target, headers={"Authorization": "Bearer " + token})
    a = link.getresponse()
    body = a.read()
    allowed = want(q)
    if a.status not in allowed:
        sys.exit(f"seed {seed}: {target} answered {a.status}, not one of {sorted(allowed)}: {body[:300]!r}")
    if "json" in a.headers.get("Content-Type", ""):
        told = json.loads(body)
        if a.status >= 400 and (told["status"] != a.status or not told["code"]):
            sys.exit(f"seed {seed}: {target}: {told}")
    seen[a.status] = seen.get(a.status, 0) + 1
if min(seen.get(200, 0), seen.get(400, 0), seen.get(404, 0)) < count // 50:
    sys.exit(f"seed {seed}: too few of a kind to show anything: {seen}")
print(f"seed {seed}: {seen}")
