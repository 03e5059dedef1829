/*
 * Sockets and addresses: the few system calls the servers share, errno mapped.
 *
 * Ownership   Returned descriptors are the caller's, non-blocking and closed on exec.
 * Threads     Any.
 */
#ifndef RON_NET_SOCK_H
#define RON_NET_SOCK_H

#include <sys/types.h>

#include "net/http_server.h"

/* "127.0.0.1:7420", "[::1]:0"; numeric addresses only. shared: SO_REUSEPORT, so that several loops can each have one.
 * ERR_EXISTS: in use, ERR_SYNTAX: no address. */
NODISCARD enum err net_sock_listen_tcp(const char *bind_to, bool shared, int *out_fd);
/* As above, but on the port that `like` (a descriptor from the call above) got. */
NODISCARD enum err net_sock_listen_same(int like, int *out_fd);
uint16_t net_sock_port(int fd);

/* Creates the directory 0700 (or demands that it is the caller's and closed to others), replaces a socket nobody listens on
 * (ERR_EXISTS when somebody does), makes the new one 0600. */
NODISCARD enum err net_sock_listen_unix(const char *path, int *out_fd);

/* ERR_EMPTY: nobody waits; ERR_BUSY: out of descriptors. */
NODISCARD enum err net_sock_accept(int listen_fd, int *out_fd, struct net_peer *out_peer);
/* Host and port of "host:port", "[v6]:port". */
NODISCARD enum err net_sock_split(struct str s, struct str *out_host, uint16_t *out_port);
NODISCARD enum err net_addr_parse(struct str s, uint8_t out_addr[16]); /* ERR_SYNTAX */

#endif
