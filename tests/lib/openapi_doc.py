"""The API documents (docs/openapi), for tests that hold answers against them."""
import json
import os
import re

import jsonschema
import yaml

DOCS = os.path.join(os.environ["SRC"], "docs", "openapi")
REST_OF_PATH = ("{path}", "{account}", "{idem_id}", "{id}", "{name}")
files = {}


def load(name):
    if name not in files:
        with open(os.path.join(DOCS, name), encoding="utf-8") as f:
            files[name] = yaml.safe_load(f)
    return files[name]


def resolve(node, where):
    """The node with every reference replaced by what it names (the documents have no cycles)."""
    if isinstance(node, list):
        return [resolve(n, where) for n in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        file, _, path = node["$ref"].partition("#")
        target = load(file or where)
        for step in path.strip("/").split("/"):
            target = target[step.replace("~1", "/").replace("~0", "~")]
        return resolve(target, file or where)
    return {k: resolve(v, where) for k, v in node.items()}


def find(service, method, path):
    """The documented operation whose template fits; one without parameters wins."""
    document = load(service + ".yaml")
    for template in sorted(document["paths"], key=lambda t: (t.count("{"), -len(t))):
        pattern = "".join(re.escape(p) if not p.startswith("{") else (".+" if p in REST_OF_PATH else "[^/]+") for p in re.split(r"(\{[^}]+\})", template))
        operations = resolve(document["paths"][template], service + ".yaml") if re.fullmatch(pattern, path) else {}
        if method.lower() in operations:
            return template, operations[method.lower()]
    return None, None


def misfits(schema, value):
    return [f"{'/'.join(map(str, e.path))}: {e.message[:160]}" for e in jsonschema.Draft202012Validator(schema).iter_errors(value)]


def header_misfits(promised, headers):
    """Documented headers that do not fit, and headers of the service's own (Ledger-…) that nobody documented."""
    documented = promised.get("headers", {})
    wrong = [f"{name} is not documented" for name in headers if name.startswith("Ledger-") and name not in documented]
    for name, header in documented.items():
        if name in headers:
            integer = header["schema"].get("type") == "integer" and headers[name].isdigit()
            wrong += [f"{name}: {m}" for m in misfits(header["schema"], int(headers[name]) if integer else headers[name])]
        elif header.get("required"):
            wrong.append(f"{name} is missing")
    return wrong


def judge(operation, status, headers, raw):
    """What of an answer the operation's document does not promise."""
    promised = operation["responses"].get(str(status))
    if promised is None:
        return [f"status {status} is not documented: {raw[:200]!r}"]
    content = promised.get("content", {})
    media = headers.get("Content-Type", "").partition(";")[0]
    wrong = [f"{status}: header {m}" for m in header_misfits(promised, headers)]
    if not content and raw:
        wrong.append(f"{status} has a body nobody documented")
    elif content and media not in content:
        wrong.append(f"{status} is {media}, documented are {', '.join(content)}")
    elif media.endswith("json") and raw:
        wrong += [f"{status}: {m}" for m in misfits(content[media]["schema"], json.loads(raw))]
    return wrong
