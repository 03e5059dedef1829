"""A mailbox client over OAP/1 in plain Python: frames and protobuf by hand, as a foreign implementation would."""
import socket
import struct


def varint(v):
    out = b""
    while True:
        out += bytes([(v & 0x7F) | (0x80 if v > 0x7F else 0)])
        v >>= 7
        if not v:
            return out


def field(n, v):
    if isinstance(v, int):
        return varint(n << 3) + varint(v) if v else b""
    v = v.encode() if isinstance(v, str) else v
    return varint(n << 3 | 2) + varint(len(v)) + v


def parse(b):
    out, i = {}, 0
    def number():
        nonlocal i
        v = s = 0
        while True:
            c = b[i]
            i += 1
            v |= (c & 0x7F) << s
            s += 7
            if c < 0x80:
                return v
    while i < len(b):
        tag = number()
        if tag & 7 == 0:
            v = number()
        else:
            n = number()
            v = b[i:i + n]
            i += n
        out.setdefault(tag >> 3, []).append(v)
    return out


def frame(flags, code, app, corr, cap=b"", payload=b"", tenant=b"\0" * 16):
    return struct.pack(">IHHHH16sHQ", 38 + len(cap) + len(payload), 1, flags, code, app, tenant, len(cap), corr) + cap + payload


REQ, RESP, START, END = 1, 2, 8, 16


class Client:
    def __init__(self, port, token):
        self.s = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.cap, self.corr, self.tenant = token.encode(), 0, b"\0" * 16

    def read(self, n):
        b = b""
        while len(b) < n:
            c = self.s.recv(n - len(b))
            if not c:
                raise EOFError
            b += c
        return b

    def call(self, code, payload, app=0x0201, chop=0):
        self.corr += 1
        cap, self.cap = self.cap, b""
        f = frame(REQ | START | END, code, app, self.corr, cap, payload, self.tenant)
        for i in range(0, len(f), chop or len(f)):
            self.s.sendall(f[i:i + (chop or len(f))])
        body = b""
        while True:
            n, ver, flags, status, _, _, cl, corr = struct.unpack(">IHHHH16sHQ", self.read(38))
            assert ver == 1 and flags & RESP, (ver, corr, flags)
            rest = self.read(n - 38)[cl:]
            if corr != self.corr:
                continue  # of a stream on this connection
            body += rest
            if flags & END:
                return status, parse(body)

    def stream(self, topic, visibility=0, credit=0, max_bytes=0):
        """Opens a stream; frames(corr) reads it."""
        self.corr += 1
        cap, self.cap = self.cap, b""
        self.s.sendall(frame(REQ | START | END, 3, 0x0201, self.corr, cap, field(1, topic) + field(2, visibility) + field(3, credit) + field(4, max_bytes)))
        return self.corr

    def next_frame(self):
        n, ver, flags, status, _, _, cl, corr = struct.unpack(">IHHHH16sHQ", self.read(38))
        return corr, flags, status, parse(self.read(n - 38)[cl:])

    def end_stream(self, corr):
        self.s.sendall(frame(REQ | END, 3, 0x0201, corr))

    def send(self, *messages, **kw):
        return self.call(1, b"".join(field(1, field(1, t) + field(2, k) + field(3, p)) for t, k, p in messages), **kw)

    def recv(self, topic, visibility=0, n=0, wait=0):
        return self.call(2, field(1, topic) + field(2, visibility) + field(3, n) + field(5, wait))

    def ack(self, *items):
        return self.call(4, b"".join(field(1, field(1, i) + field(2, a)) for i, a in items))

    def nack(self, i, a, reason=""):
        return self.call(5, field(1, field(1, i) + field(2, a) + field(3, reason)))

    def extend(self, i, a, ms):
        return self.call(6, field(1, field(1, i) + field(2, a) + field(3, ms)))
