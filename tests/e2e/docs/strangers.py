"""Requests made from the documents alone: some that fit, some with one thing wrong, in an order that a seed decides.

For each answer: it is documented, nothing is an internal error, and what the document forbids is refused. What earlier answers
named (ids, accounts, digests) is used in later requests, so that not everything ends at "not found".
"""
import http.client, json, os, random, re, sys, urllib.parse
from re import _parser as regex  # the parse of a pattern, to make a string that fits it

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests/lib"))
from openapi_doc import judge, load, misfits, resolve  # noqa: E402

BASE, TOKEN = int(os.environ["BASE"]), os.environ["TOKEN"]
SEED, ROUNDS = int(os.environ.get("SEED", 1)), int(os.environ.get("ROUNDS", 25))
PORTS = {"ledger": 10, "wallet": 20, "mailbox": 30, "rewarder": 40, "edge": 50}
# What ends a service's work, never ends, or copies the journal each time is for tests of its own.
LEFT_OUT = ("/admin/snapshot", "/admin/safe-mode", "/admin/take-over", "/admin/providers/", "/admin/tasks/", "/admin/drain", "/admin/log-level")
ENDLESS = ("text/event-stream", "application/x-ndjson")
rng = random.Random(SEED)
known = {}  # member or parameter -> strings that were seen under that name
failures, tally = {}, {}  # operation -> what was wrong with its answers; hundreds of the status -> answers


# ---- values that fit ----

def text_of(parsed):
    out = []
    for kind, arg in parsed:
        kind = str(kind)
        if kind == "LITERAL":
            out.append(chr(arg))
        elif kind == "IN":
            out.append(rng.choice([chr(c) for k, a in arg for c in (
                [a] if str(k) == "LITERAL" else range(a[0], a[1] + 1) if str(k) == "RANGE" else map(ord, "0123456789"))]))
        elif kind == "MAX_REPEAT":
            out.append("".join(text_of(arg[2]) for _ in range(rng.randint(arg[0], min(arg[1], arg[0] + 8)))))
        elif kind == "SUBPATTERN":
            out.append(text_of(arg[3]))
        elif kind == "BRANCH":
            out.append(text_of(rng.choice(arg[1])))
    return "".join(out)


def string_of(schema, name):
    if known.get(name) and rng.random() < 0.7:
        return rng.choice(known[name])
    if "pattern" in schema:
        return text_of(regex.parse(schema["pattern"]))
    low, high = schema.get("minLength", 0), schema.get("maxLength", 24)
    return "".join(rng.choice("abcXYZ019-_.é ☃\"\\/%") for _ in range(rng.randint(low, max(low, min(high, low + 12)))))


def value_of(schema, name=""):
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return value_of(rng.choice(schema[several]), name)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        must = schema.get("required", [])
        out = {k: value_of(v, k) for k, v in schema.get("properties", {}).items() if k in must or rng.random() < 0.4}
        if isinstance(schema.get("additionalProperties"), dict) and rng.random() < 0.5:
            out["k" + str(rng.randint(0, 9))] = value_of(schema["additionalProperties"])
        return out
    if kind == "array":
        low = schema.get("minItems", 0)
        return [value_of(schema.get("items", {}), name) for _ in range(rng.randint(low, max(low, min(schema.get("maxItems", 3), low + 2))))]
    if kind == "integer":
        low, high = schema.get("minimum", 0), schema.get("maximum", 1 << 40)
        return rng.choice([low, high, rng.randint(low, high), min(high, low + rng.randint(0, 50))])
    if kind == "boolean":
        return rng.random() < 0.5
    return None if kind == "null" else string_of(schema, name)


# ---- one thing wrong ----

WRONG = [None, True, -1, 0, 1.5, 1e300, 2**63, 2**64, 10**40, "", "x" * 5000, "\0", "0x10", "-1", "1e3", " 1", "٣", "NaN", [], {}, [[[[]]]], {"a": {"b": {}}},
         "../../etc/passwd", "%00", "'; --", "\ud800"]


def spoil(value):
    """The same with one place changed: a member dropped, invented, or given another value."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        out, key = dict(value), rng.choice(list(value))
        act = rng.random()
        if act < 0.2:
            del out[key]
        elif act < 0.35:
            out[rng.choice(["extra", key.upper(), key + " ", "__proto__"])] = rng.choice(WRONG)
        else:
            out[key] = spoil(out[key])
        return out
    if isinstance(value, list) and value and rng.random() < 0.7:
        i = rng.randrange(len(value))
        return value[:i] + [spoil(value[i])] + value[i + 1:]
    return rng.choice(WRONG)


def spoil_bytes(data):
    at = rng.randint(0, len(data))
    return rng.choice([data[:at], data[:at] + bytes([rng.randrange(256)]) + data[at + 1:], data + data, b"\xff\xfe" + data, b"[" * 3000, data[:-1] + b',"a":1,"a":2}'])


# ---- asking ----

def remember(node, name=""):
    if isinstance(node, dict):
        for k, v in node.items():
            remember(v, k)
    elif isinstance(node, list):
        for v in node[:5]:
            remember(v, name)
    elif isinstance(node, str) and name and len(node) < 200:
        seen = known.setdefault(name, [])
        if node not in seen:
            seen.append(node) if len(seen) < 20 else seen.__setitem__(rng.randrange(20), node)
        if name in ("to", "from"):
            remember(node, "account")


def request_of(template, operation):
    """method-less request: target, headers, body, and whether the document forbids it."""
    path, query, headers, wrong = template, [], {}, []
    for p in operation.get("parameters", []):
        if not p.get("required") and rng.random() < 0.6:
            continue
        value = value_of(p["schema"], p["name"])
        if p["name"] in ("wait", "wait_ms"):
            value = 0
        if rng.random() < 0.08:
            value = rng.choice([w for w in WRONG if isinstance(w, str) and w])
            wrong += misfits(p["schema"], int(value) if re.fullmatch("-?[0-9]+", value) and p["schema"].get("type") == "integer" else value)
        text = value if isinstance(value, str) else json.dumps(value)
        text = text.encode("utf-8", "replace")
        if p["in"] == "path":
            path = path.replace("{" + p["name"] + "}", urllib.parse.quote(text, safe=""))
        elif p["in"] == "query":
            query.append(p["name"] + "=" + urllib.parse.quote(text, safe=""))
        else:
            headers[p["name"]] = re.sub(rb"[^!-~ ]", b"?", text)
    body = None
    media = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if media:
        value = value_of(media["schema"])
        if isinstance(value, dict) and "wait_ms" in value:
            value["wait_ms"] = 0
        if rng.random() < 0.4:
            value = spoil(value)
        wrong += misfits(media["schema"], value)
        body = json.dumps(value).encode("utf-8", "replace")
        if rng.random() < 0.1:
            body = spoil_bytes(body)
            wrong = []  # who knows
        remember(value)
        headers["Content-Type"] = "application/json"
    return path + ("?" + "&".join(query) if query else ""), headers, body, wrong


def fail(service, method, template, what):
    failures.setdefault((service, method, template), []).append(what)


def ask(service, method, template, operation):
    target, headers, body, wrong = request_of(template, operation)
    token = rng.choice(["", "nonsense", TOKEN[:-4]]) if rng.random() < 0.05 else TOKEN
    if token:
        headers["Authorization"] = "Bearer " + token
    line = http.client.HTTPConnection("127.0.0.1", BASE + PORTS[service], timeout=30)
    name = f"{method.upper()} {target[:160]} ({service}) {(body or b'')[:240]!r}"
    try:
        line.request(method.upper(), target, body, headers)
        answer = line.getresponse()
        raw = answer.read()
    except (OSError, http.client.HTTPException) as e:
        fail(service, method, template, f"{name}: {e!r}")
        return
    finally:
        line.close()
    status = answer.status
    tally[status // 100] = tally.get(status // 100, 0) + 1
    for m in judge(operation, status, dict(answer.headers), raw):
        fail(service, method, template, f"{name}: {m}")
    if status >= 500 and status not in (503, 504):
        fail(service, method, template, f"{name}: {status} {raw[:200]!r}")
    if token != TOKEN and operation.get("security") != [] and status < 400:
        fail(service, method, template, f"{name}: {status} for the token {token[:8]!r}")
    if wrong and status < 400:
        fail(service, method, template, f"{name}: {status}, though {wrong[0]}")
    if status < 300 and answer.headers.get_content_type().endswith("json") and raw:
        remember(json.loads(raw))


operations = []
for service in PORTS:
    for template, methods in load(service + ".yaml")["paths"].items():
        for method, operation in resolve(methods, service + ".yaml").items():
            if method not in ("get", "post", "put", "delete") or template.startswith(LEFT_OUT):
                continue
            if any(m in ENDLESS for m in operation["responses"].get("200", {}).get("content", {})):
                continue
            operations.append((service, method, template, operation))
for _ in range(ROUNDS):
    rng.shuffle(operations)
    for operation in operations:
        ask(*operation)
for operation, what in failures.items():
    print(f"{' '.join(operation)}: {len(what)} times, as {what[0]}")
print(f"seed {SEED}: {len(operations)} operations, {ROUNDS} times each; answers by hundred: {sorted(tally.items())}; {len(failures)} operations differ")
sys.exit(1 if failures or tally.get(2, 0) < ROUNDS * 10 else 0)
