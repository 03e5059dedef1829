"""Takes OTLP/HTTP JSON traces and writes a line for each span: name, trace id, span id, parent id ("-": none), attributes.

usage: otlp_collector.py PORT_FILE SPANS_FILE
"""
import http.server, json, os, sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(sys.argv[2], "a") as out:
            for r in body["resourceSpans"]:
                for scope in r["scopeSpans"]:
                    for s in scope["spans"]:
                        attrs = {a["key"]: next(iter(a["value"].values())) for a in s.get("attributes", [])}
                        assert int(s["endTimeUnixNano"]) >= int(s["startTimeUnixNano"]), s
                        out.write(" ".join([s["name"], s["traceId"], s["spanId"], s.get("parentSpanId") or "-", json.dumps(attrs)]) + "\n")
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open(sys.argv[2], "w").close()
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
