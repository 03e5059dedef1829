#!/usr/bin/env python3
"""A name server that may change its mind. usage: dns.py ADDRESS "NAME ADDRESS[,ADDRESS...] [ADDRESS...]"...

Each name has one or more answers, and an answer has one or more addresses, v4 or v6. The first question for a name's addresses of one
family gets the first answer, the next the second; the last one stays. Answers may be kept for no time at all.
"""
import ipaddress
import socket
import struct
import sys

A, AAAA = 1, 28
names = {row.split()[0]: [[ipaddress.ip_address(a) for a in answer.split(",")] for answer in row.split()[1:]] for row in sys.argv[2:]}
asked = {}


def answer(question):
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    kind = struct.unpack_from("!H", question, at + 1)[0]
    name = ".".join(labels).lower()
    answers = names.get(name, [])
    n = asked[name, kind] = asked.get((name, kind), -1) + 1
    now = answers[min(n, len(answers) - 1)] if answers else []
    found = [a.packed for a in now if kind == (A if a.version == 4 else AAAA)]
    head = question[:2] + struct.pack("!HHHHH", 0x8580 if answers else 0x8583, 1, len(found), 0, 0)
    return head + question[12 : at + 5] + b"".join(struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(a)) + a for a in found)


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], 53))
    print("ready", flush=True)
    while True:
        packet, client = s.recvfrom(512)
        s.sendto(answer(packet), client)
