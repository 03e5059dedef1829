#include "net/tls.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rt/lock.h"

enum { TLS_LOCK_RANK = 90 };

struct net_tls {
    atomic_uint refs;
    char *cert_file, *key_file, *client_ca_file;
    struct rt_lock lock; /* guards ctx */
    SSL_CTX *ctx;
    _Atomic uint64_t failures; /* relaxed: a number for people */
};

struct net_tls_session {
    SSL *ssl;
    struct net_tls *tls; /* the listener's, which outlives its connections */
    bool shaken; /* the handshake is done; SSL_is_init_finished takes that back with every later error */
    bool failed; /* it never will be, and is counted: it may be asked again before it is closed */
};

static int pick_http11(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *in,
                       unsigned in_n, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    (void)ssl;
    (void)arg;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_n, ours, sizeof ours - 1, in, in_n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* OpenSSL would ask at the terminal, or read what comes in: nobody is there, least of all at a reload, which waits on a loop. */
static int no_passphrase(char *to, int room, int for_writing, void *ctx)
{
    (void)to;
    (void)room;
    (void)for_writing;
    (void)ctx;
    return -1;
}

static enum err context(const struct net_tls *tls, SSL_CTX **out)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx)
        return ERR_NO_MEMORY;
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY); /* see net_tls_read */
    SSL_CTX_set_alpn_select_cb(ctx, pick_http11, NULL);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    bool ok = SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
              SSL_CTX_use_certificate_chain_file(ctx, tls->cert_file) == 1 &&
              SSL_CTX_use_PrivateKey_file(ctx, tls->key_file, SSL_FILETYPE_PEM) == 1 &&
              SSL_CTX_check_private_key(ctx) == 1;
    if (ok && tls->client_ca_file) {
        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(tls->client_ca_file);
        ok = names && SSL_CTX_load_verify_locations(ctx, tls->client_ca_file, NULL) == 1;
        if (names)
            SSL_CTX_set_client_CA_list(ctx, names);
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        static const unsigned char id[] = "ron";
        SSL_CTX_set_session_id_context(ctx, id, sizeof id - 1);
    }
    ERR_clear_error();
    if (!ok) {
        SSL_CTX_free(ctx);
        return ERR_BAD_REQUEST;
    }
    *out = ctx;
    return ERR_OK;
}

static char *copy(const char *s)
{
    return s ? strdup(s) : NULL;
}

enum err net_tls_create(const struct net_tls_config *config, struct net_tls **out_tls)
{
    struct net_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return ERR_NO_MEMORY;
    atomic_init(&tls->refs, 1);
    rt_lock_init(&tls->lock, "tls", TLS_LOCK_RANK);
    tls->cert_file = copy(config->cert_file);
    tls->key_file = copy(config->key_file);
    tls->client_ca_file = copy(config->client_ca_file);
    enum err e = !tls->cert_file || !tls->key_file ? ERR_NO_MEMORY : context(tls, &tls->ctx);
    if (e != ERR_OK) {
        net_tls_unref(tls);
        return e;
    }
    *out_tls = tls;
    return ERR_OK;
}

/* A context under another name: whoever holds one need not know OpenSSL. */
static SSL_CTX *context_of(struct net_tls_fresh *fresh)
{
    return (SSL_CTX *)(void *)fresh;
}

enum err net_tls_read_again(const struct net_tls *tls, struct net_tls_fresh **out_fresh)
{
    SSL_CTX *ctx;
    enum err e = context(tls, &ctx);
    if (e == ERR_OK)
        *out_fresh = (struct net_tls_fresh *)(void *)ctx;
    return e;
}

void net_tls_take(struct net_tls *tls, struct net_tls_fresh *fresh)
{
    rt_lock_take(&tls->lock);
    SSL_CTX *old = tls->ctx;
    tls->ctx = context_of(fresh);
    rt_lock_release(&tls->lock);
    SSL_CTX_free(old);
}

void net_tls_forget(struct net_tls_fresh *fresh)
{
    SSL_CTX_free(context_of(fresh));
}

enum err net_tls_reload(struct net_tls *tls)
{
    struct net_tls_fresh *fresh;
    enum err e = net_tls_read_again(tls, &fresh);
    if (e == ERR_OK)
        net_tls_take(tls, fresh);
    return e;
}

struct net_tls *net_tls_ref(struct net_tls *tls)
{
    atomic_fetch_add_explicit(&tls->refs, 1, memory_order_relaxed);
    return tls;
}

void net_tls_unref(struct net_tls *tls)
{
    /* acquire-release: the last one out sees what the others did before they let go */
    if (!tls || atomic_fetch_sub_explicit(&tls->refs, 1, memory_order_acq_rel) != 1)
        return;
    SSL_CTX_free(tls->ctx);
    rt_lock_fini(&tls->lock);
    free(tls->cert_file);
    free(tls->key_file);
    free(tls->client_ca_file);
    free(tls);
}

uint64_t net_tls_failures(const struct net_tls *tls)
{
    return atomic_load_explicit(&((struct net_tls *)(uintptr_t)tls)->failures, memory_order_relaxed);
}

static void on_info(const SSL *ssl, int where, int result)
{
    struct net_tls_session *s = SSL_get_app_data(ssl);
    (void)result;
    if (where & SSL_CB_HANDSHAKE_DONE)
        s->shaken = true;
}

enum err net_tls_accept(struct net_tls *tls, int fd, struct net_tls_session **out_session)
{
    struct net_tls_session *s = calloc(1, sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    rt_lock_take(&tls->lock);
    SSL_CTX *ctx = tls->ctx;
    SSL_CTX_up_ref(ctx);
    rt_lock_release(&tls->lock);
    s->ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    if (!s->ssl || SSL_set_fd(s->ssl, fd) != 1) {
        SSL_free(s->ssl);
        free(s);
        return ERR_NO_MEMORY;
    }
    SSL_set_accept_state(s->ssl);
    SSL_set_app_data(s->ssl, s);
    SSL_set_info_callback(s->ssl, on_info);
    s->tls = tls;
    *out_session = s;
    return ERR_OK;
}

static enum net_io verdict(struct net_tls_session *s, int r)
{
    int e = SSL_get_error(s->ssl, r);
    ERR_clear_error();
    switch (e) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return NET_IO_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return NET_IO_EOF;
    default:
        if (!s->shaken && !s->failed) {
            s->failed = true;
            atomic_fetch_add_explicit(&s->tls->failures, 1, memory_order_relaxed);
        }
        return NET_IO_ERROR;
    }
}

/*
 * SSL_get_error takes whatever lies in the thread's queue for this call's: what a handler, or libcurl, left there would end the
 * connection of somebody who only has nothing to read now.
 *
 * A record without data (a new key, of which a client may send as many as it likes) is nothing to read, and yet work. OpenSSL would go on
 * until there is some, however long that takes everybody else; so it is told not to (SSL_MODE_AUTO_RETRY), and whether it took something off
 * the socket says whether there may be more.
 */
enum net_io net_tls_read(struct net_tls_session *s, void *p, size_t n, size_t *out_n)
{
    BIO *from = SSL_get_rbio(s->ssl);
    uint64_t before = BIO_number_read(from);
    ERR_clear_error();
    int r = SSL_read(s->ssl, p, n > INT_MAX ? INT_MAX : (int)n);
    if (r > 0) {
        *out_n = (size_t)r;
        return NET_IO_OK;
    }
    enum net_io io = verdict(s, r);
    return io == NET_IO_AGAIN && BIO_number_read(from) != before ? NET_IO_LATER : io;
}

enum net_io net_tls_write(struct net_tls_session *s, const void *p, size_t n, size_t *out_n)
{
    CHECK(n > 0);
    ERR_clear_error(); /* as in net_tls_read */
    int r = SSL_write(s->ssl, p, n > INT_MAX ? INT_MAX : (int)n);
    if (r <= 0)
        return verdict(s, r);
    *out_n = (size_t)r;
    return NET_IO_OK;
}

void net_tls_end_output(struct net_tls_session *s)
{
    if (SSL_is_init_finished(s->ssl) && !(SSL_get_shutdown(s->ssl) & SSL_SENT_SHUTDOWN))
        SSL_shutdown(s->ssl);
    ERR_clear_error();
}

void net_tls_close(struct net_tls_session *s)
{
    if (!s)
        return;
    net_tls_end_output(s);
    SSL_free(s->ssl);
    free(s);
}
