#!/usr/bin/env python3
"""Asks for a file of 20,000,000 bytes, reads the head of the answer, writes into the file, and sees that the rest does not come.

usage: edge_cut.py URL FILE whole|parts [CA]           URL/FILE's name is asked for, whole or in three ranges
       edge_cut.py URL FILE behind WAITS_FOR [CA]      FILE is short and asked for behind URL/WAITS_FOR, which has to come whole
"""
import os
import re
import socket
import ssl
import sys
from urllib.parse import urlsplit

url, path, kind, *rest = sys.argv[1:]
url = urlsplit(url)
first = rest.pop(0) if kind == "behind" else None
s = socket.create_connection((url.hostname, url.port))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
s.settimeout(30)
if rest:
    s = ssl.create_default_context(cafile=rest[0]).wrap_socket(s, server_hostname=url.hostname)


def ask(name, more=""):
    return f"GET {url.path}/{name} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


more = "Range: bytes=0-999,2000-9999999,10000001-19999999\r\n" if kind == "parts" else ""
wanted = ask(os.path.basename(path), more + "Connection: close\r\n")
s.sendall(ask(first) + wanted if first else wanted)
data = b""
while b"\r\n\r\n" not in data:
    data += s.recv(65536)
head, _, body = data.partition(b"\r\n\r\n")
assert head.startswith(b"HTTP/1.1 206 " if kind == "parts" else b"HTTP/1.1 200 "), head
left = int(re.search(rb"Content-Length: (\d+)", head)[1]) - len(body)
assert left > 0, "all of it was under way already"
with open(path, "r+b") as f:
    f.seek(0 if first else 19000000)
    f.write(b"other")
behind = b""
try:
    while data := s.recv(1 << 20):
        assert b"other" not in data, "bytes of another file"
        behind += data[max(left, 0) :]
        left = max(left - len(data), 0)
except (ConnectionResetError, ssl.SSLError):
    pass
if first:
    assert left == 0, "what nobody had written into was cut"
    assert behind.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")) or not behind, behind
else:
    assert left > 0, "it was not cut"
