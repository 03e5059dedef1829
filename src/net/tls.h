/*
 * TLS 1.3 on a non-blocking socket, over OpenSSL. struct net_tls (certificate and key) is declared in http_server.h.
 *
 * Threads     net_tls_* from any thread; a session belongs to its loop's thread.
 */
#ifndef RON_NET_TLS_H
#define RON_NET_TLS_H

#include <sys/types.h>

#include "net/http_server.h"

struct net_tls_session;

enum net_io {
    NET_IO_OK,    /* *out_n bytes, at least one */
    NET_IO_AGAIN, /* nothing now; the descriptor will tell */
    NET_IO_LATER, /* nothing now, but there may be more at once: it is others' turn (reads only) */
    NET_IO_EOF,
    NET_IO_ERROR,
};

NODISCARD enum err net_tls_accept(struct net_tls *tls, int fd, struct net_tls_session **out_session);
/* The handshake happens inside the first reads. */
enum net_io net_tls_read(struct net_tls_session *s, void *p, size_t n, size_t *out_n);
enum net_io net_tls_write(struct net_tls_session *s, const void *p, size_t n, size_t *out_n);
void net_tls_end_output(struct net_tls_session *s); /* close_notify; reading goes on */
void net_tls_close(struct net_tls_session *s);      /* sends close_notify when it can; does not close fd */

#endif
