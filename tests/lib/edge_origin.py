#!/usr/bin/env python3
"""An HTTPS origin that can misbehave. usage: edge_origin.py CERT KEY PORT_FILE [ADDRESS PORT]

/good/<name>       200, strong ETag, the body is the name repeated
/slow/<ms>/<name>  the same after a pause
/gate/<name>       the same once /open/<name> was asked for
/trickle/<name>    headers, then nothing more
/weak /noetag /lie-tag /lie-length /nostore /coded /huge /missing /broken /busy  as they say
/away/<name>       redirects to another host;  /inside/<name> to /good/<name>;  /out/<name> off the route
/flaky/<n>/<name>  503 for the first n GETs of this name
/count/<path>      how many GETs the path had (not counted itself)
/trace/<path>      the traceparent of the last GET of the path
/auth/<path>       the Authorization of the last GET of the path
/to/<port>/<path>  redirects to the path at another origin on this machine;  /at/<host>/<path> to one anywhere
/connections       how many there were, with the one that asks
/same/<name>       304 to whoever names any ETag;  /retagged/<name> the same with another one, and a new body for whoever names none
/reset/<name>      headers, then the connection is reset
/drip/<name>       a byte every tenth of a second
/raw/<how>         heads and trailers that a careful origin would not send
/set/<name>/<text> what /live/<name> serves from now on, with an ETag made from it
"""
import hashlib
import os
import socket
import ssl
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

counts, live, traces, tokens, lock = {}, {}, {}, {}, threading.Lock()
gates = {}


def gate(name):
    with lock:
        return gates.setdefault(name, threading.Event())


def etag(body):
    return '"' + hashlib.sha256(body).hexdigest()[:16] + '"'


def chunked(body, trailer):
    return b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, trailer)


def raw(how):
    """what /raw/<how> answers, head and body as they go out; the connection ends behind them"""
    tag, ok, body = b'ETag: "raw"\r\n', b"HTTP/1.1 200 OK\r\n", how.encode() * 100
    length = b"Content-Length: %d\r\n" % len(body)
    trailers = ok + tag + b"Transfer-Encoding: chunked\r\n"
    return {
        "trailer": trailers + b"\r\n" + chunked(body, b'HTTP/1.1: 200\r\nETag: "late"\r\n'),
        "trailer-coding": trailers + b"Content-Encoding: gzip\r\n\r\n" + chunked(body, b"Content-Encoding: identity\r\n"),
        "two-heads": ok + b"Content-Encoding: gzip\r\nHTTP/1.1: 200\r\n" + tag + length + b"\r\n" + body,
        "hints": b"HTTP/1.1 103 Early Hints\r\nCache-Control: no-store\r\nContent-Encoding: br\r\n\r\n" + ok + tag + length + b"\r\n" + body,
        "twice-coded": ok + tag + length + b"Content-Encoding: gzip\r\nContent-Encoding: identity\r\n\r\n" + body,
        "part": b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-%d/9999\r\n" % (len(body) - 1) + tag + length + b"\r\n" + body,
        "unasked": b"HTTP/1.1 304 Not Modified\r\n" + tag + b"\r\n",
        "no-length": ok + tag + b"\r\n" + body,
        "identity": ok + tag + b"Transfer-Encoding: identity\r\n\r\n" + body[:150],
        "nowhere": b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
        "long-way": b"HTTP/1.1 302 Found\r\nLocation: /good/" + b"x" * 3000 + b"\r\nContent-Length: 0\r\n\r\n",
        "somebody": b"HTTP/1.1 302 Found\r\nLocation: https://somebody@127.0.0.1/good/x\r\nContent-Length: 0\r\n\r\n",
        "another-way": b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/good/x\r\nContent-Length: 0\r\n\r\n",
        "two-lengths": ok + tag + b"Content-Length: 5\r\n" + length + b"\r\n" + body,
        "private": ok + tag + length + b'Cache-Control: max-age=60\r\nCache-Control: public, PRIVATE="x"\r\n\r\n' + body,
    }.get(how)


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, fmt, *args):
        pass

    def send(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(headers.pop("length", len(body))))
        self.end_headers()
        self.wfile.write(body)

    def first_of_a_thousand(self, body):
        """the head of an answer, and one byte of it"""
        self.send_response(200)
        self.send_header("ETag", etag(body))
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x")
        self.wfile.flush()

    def do_GET(self):
        path = self.path.split("?")[0]
        parts = path.strip("/").split("/")
        if parts[0] == "count":
            with lock:
                n = counts.get(path[6:], 0)
            return self.send(200, str(n).encode())
        if parts[0] == "trace":
            return self.send(200, traces.get(path[6:], "").encode())
        if parts[0] == "connections":
            return self.send(200, str(self.server.connections).encode())
        if parts[0] == "auth":
            return self.send(200, tokens.get(path[5:], "").encode())
        with lock:
            traces[path] = self.headers.get("traceparent", "")
            tokens[path] = self.headers.get("Authorization", "")
            counts[path] = counts.get(path, 0) + 1
            count = counts[path]
        body = (parts[-1] * 100).encode()
        kind = parts[0]
        if kind == "set":
            live[parts[1]] = parts[2].encode()
            return self.send(200, b"ok")
        if kind == "open":
            gate(parts[1]).set()
            return self.send(200, b"ok")
        if kind == "gate":
            gate(parts[1]).wait()
        if kind == "slow":
            time.sleep(int(parts[1]) / 1000)
        if kind in ("good", "gate", "slow"):
            return self.send(200, body, ETag=etag(body), Content_Type="text/plain")
        if kind == "live":
            body = live.get(parts[1])
            if body is None:
                return self.send(404)
            if self.headers.get("If-None-Match") == etag(body):
                return self.send(304, ETag=etag(body))
            return self.send(200, body, ETag=etag(body))
        if kind == "same":
            if self.headers.get("If-None-Match"):
                return self.send(304)
            return self.send(200, body, ETag=etag(body))
        if kind == "retagged":
            body += b"%d" % count
            if self.headers.get("If-None-Match"):
                return self.send(304, ETag=etag(body))
            return self.send(200, body, ETag=etag(body))
        if kind == "to":
            return self.send(302, Location="https://127.0.0.1:%s/%s" % (parts[1], "/".join(parts[2:])))
        if kind == "at":
            return self.send(302, Location="https://" + "/".join(parts[1:]))
        if kind == "flaky":
            if count <= int(parts[1]):
                return self.send(503)
            return self.send(200, body, ETag=etag(body))
        if kind == "weak":
            return self.send(200, body, ETag="W/" + etag(body))
        if kind == "noetag":
            return self.send(200, body)
        if kind == "lie-tag":
            return self.send(200, body, ETag='"sha256:' + "0" * 64 + '"')
        if kind == "nostore":
            return self.send(200, body, ETag=etag(body), Cache_Control="no-store")
        if kind == "coded":
            return self.send(200, body, ETag=etag(body), Content_Encoding="gzip")
        if kind == "huge":
            return self.send(200, (parts[-1] * 200000).encode()[:200000], ETag=etag(body))
        if kind == "broken":
            return self.send(500)
        if kind == "busy":
            return self.send(503)
        if kind == "away":
            return self.send(302, Location="https://elsewhere.example/good/" + parts[-1])
        if kind == "private":
            return self.send(302, Location="https://169.254.169.254/good/" + parts[-1])
        if kind == "inside":
            return self.send(302, Location="/good/" + parts[-1])
        if kind == "loop":
            return self.send(302, Location=path)
        if kind == "lie-length":
            self.send_response(200)
            self.send_header("ETag", etag(body))
            self.send_header("Content-Length", str(len(body) + 50))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True
            return None
        if kind == "raw" and raw(parts[1]):
            self.wfile.write(raw(parts[1]))
            self.close_connection = True
            return None
        if kind in ("reset", "drip"):
            self.first_of_a_thousand(body)
            for _ in range(600 if kind == "drip" else 0):
                time.sleep(0.1)
                self.wfile.write(b"x")
                self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return None
        if kind == "trickle":
            self.first_of_a_thousand(body)
            time.sleep(20)
            return None
        return self.send(404)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    connections = 0

    def get_request(self):
        self.connections += 1
        return super().get_request()


address, port = (sys.argv[4], int(sys.argv[5])) if len(sys.argv) > 4 else ("127.0.0.1", 0)
Server.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
server = Server((address, port), Origin)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
with open(sys.argv[3] + ".tmp", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(sys.argv[3] + ".tmp", sys.argv[3])
server.serve_forever()
