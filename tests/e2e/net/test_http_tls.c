#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http_internal.h"
#include "raw_http.h"

static char dir[] = "/tmp/ron-tls-XXXXXX", cert[64], key[64], other_cert[64], other_key[64];
static struct net_server *server;
static pthread_t loop;
static char big[1 << 20];

/* A throw-away certificate for "localhost", signed by itself. */
static void make_cert(const char *cert_path, const char *key_path, long serial)
{
    EVP_PKEY *pkey = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    assert_true(pkey && x);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, pkey);
    X509_NAME *name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, name);
    assert_true(X509_sign(x, pkey, EVP_sha256()) > 0);
    FILE *f = fopen(cert_path, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509(f, x), 1);
    fclose(f);
    f = fopen(key_path, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_PrivateKey(f, pkey, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
    X509_free(x);
    EVP_PKEY_free(pkey);
}

static void hello(struct net_req *rq, void *ctx)
{
    (void)ctx;
    assert_int_equal(net_req_peer(rq)->kind, NET_PEER_TLS);
    net_reply(rq, 200, NULL, bytes_of("hello", 5));
}

static void large(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_pinned(rq, 200, NULL, bytes_of(big, sizeof big), NULL, NULL);
}

static void file(struct net_req *rq, void *ctx)
{
    (void)ctx;
    char path[] = "/tmp/ron-tls-file-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    assert_int_equal(write(fd, big, sizeof big), sizeof big);
    net_reply_file(rq, 200, NULL, fd, 7, sizeof big - 7);
}

enum { ON_DISK = 16 << 20, FROM = 8192, RECORD = 16384, FORGOTTEN = 4 << 20 };
static int on_disk = -1; /* what /on-disk answers with */

static void answer_on_disk(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply_file(rq, 200, NULL, dup(on_disk), FROM, ON_DISK - FROM);
}

/* Leaves in OpenSSL's queue what it did not ask about, as one who tries a key that is none would. */
static void clumsy(struct net_req *rq, void *ctx)
{
    ERR_raise(ERR_LIB_USER, ERR_R_INTERNAL_ERROR);
    hello(rq, ctx);
}

static void echo(struct net_req *rq, void *ctx)
{
    (void)ctx;
    net_reply(rq, 200, NULL, net_req_body(rq));
}

static const struct net_route routes[] = {
    {.method = "GET", .pattern = "/hello", .fn = hello},
    {.method = "GET", .pattern = "/large", .fn = large},
    {.method = "GET", .pattern = "/file", .fn = file},
    {.method = "GET", .pattern = "/on-disk", .fn = answer_on_disk},
    {.method = "GET", .pattern = "/clumsy", .fn = clumsy},
    {.method = "POST", .pattern = "/echo", .fn = echo},
};

RT_BLOCKS
static void *run(void *arg)
{
    (void)arg;
    assert_int_equal(net_server_run(server, 0, NULL), ERR_OK);
    return NULL;
}

static uint16_t start(struct net_tls *tls, struct net_limits limits)
{
    struct net_listen listen = {.bind = "127.0.0.1:0", .tls = tls};
    struct net_routes set = {routes, sizeof routes / sizeof *routes, NULL};
    struct net_server_config config = {
        .listen = &listen, .listen_count = 1, .routes = &set, .routes_count = 1, .limits = limits};
    assert_int_equal(net_server_create(&config, &server), ERR_OK);
    assert_int_equal(pthread_create(&loop, NULL, run, NULL), 0);
    return net_server_port(server, 0);
}

static void stop(void)
{
    net_server_stop(server);
    pthread_join(loop, NULL);
    net_server_destroy(server);
}

/* False: no handshake. buffer: how little is taken in at a time; 0: as the system likes. */
static bool tls_connect_with(struct raw_conn *c, uint16_t port, int max_version, const char *own_cert,
                             const char *own_key, int buffer)
{
    raw_connect_small(c, port, buffer);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(ctx);
    SSL_CTX_set_max_proto_version(ctx, max_version);
    assert_int_equal(SSL_CTX_load_verify_locations(ctx, cert, NULL), 1);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (own_cert) {
        assert_int_equal(SSL_CTX_use_certificate_file(ctx, own_cert, SSL_FILETYPE_PEM), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, own_key, SSL_FILETYPE_PEM), 1);
    }
    c->ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    SSL_set_fd(c->ssl, c->fd);
    return SSL_connect(c->ssl) == 1;
}

static bool tls_connect(struct raw_conn *c, uint16_t port, int max_version, const char *own_cert,
                        const char *own_key)
{
    return tls_connect_with(c, port, max_version, own_cert, own_key, 0);
}

static struct net_tls *tls_make(const char *client_ca)
{
    struct net_tls *tls;
    struct net_tls_config config = {.cert_file = cert, .key_file = key, .client_ca_file = client_ca};
    assert_int_equal(net_tls_create(&config, &tls), ERR_OK);
    return tls;
}

static void requests_large_bodies_and_files_travel_over_tls(void **state)
{
    (void)state;
    struct net_tls *tls = tls_make(NULL);
    uint16_t port = start(tls, (struct net_limits){0});
    net_tls_unref(tls); /* the server keeps its own */
    struct raw_conn c;
    struct raw_response r;
    assert_true(tls_connect(&c, port, 0, NULL, NULL));
    assert_string_equal(SSL_get_version(c.ssl), "TLSv1.3");
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /large HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /file HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(r.body, "hello");
    char age[64];
    assert_string_equal(raw_header(&r, "Strict-Transport-Security", age, sizeof age), "max-age=31536000");
    raw_free(&r);
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == sizeof big && memcmp(r.body, big, sizeof big) == 0);
    raw_free(&r);
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == sizeof big - 7 && memcmp(r.body, big + 7, r.body_n) == 0);
    raw_free(&r);
    raw_read(&c, false, &r);
    assert_string_equal(r.body, "hello");
    raw_free(&r);
    raw_puts(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n");
    raw_send(&c, big, 900000);
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == 900000 && memcmp(r.body, big, 900000) == 0);
    raw_free(&r);
    raw_puts(&c, "GET /bad HTTP/1.1\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_int_equal(r.status, 400);
    raw_free(&r);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    stop();
}

static void older_versions_plaintext_and_silence_get_nowhere(void **state)
{
    (void)state;
    struct net_tls *tls = tls_make(NULL);
    uint16_t port = start(tls, (struct net_limits){.read_timeout_ms = 60});
    net_tls_unref(tls);
    struct raw_conn c;
    assert_false(tls_connect(&c, port, TLS1_2_VERSION, NULL, NULL));
    raw_close(&c);
    raw_connect(&c, port);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    while (raw_more(&c)) /* perhaps a TLS alert, then the end */
        ;
    assert_null(c.n ? memmem(c.buf, c.n, "HTTP", 4) : NULL);
    raw_close(&c);
    raw_connect(&c, port); /* a client that never shakes hands */
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    stop();
}

static void a_client_certificate_is_demanded_when_a_ca_is_configured(void **state)
{
    (void)state;
    struct net_tls *tls = tls_make(cert);
    uint16_t port = start(tls, (struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    /* In TLS 1.3 the client learns of the refusal with its first read. */
    tls_connect(&c, port, 0, NULL, NULL);
    raw_try_send(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 32);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    tls_connect(&c, port, 0, other_cert, other_key);
    raw_try_send(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 32);
    assert_true(raw_at_eof(&c));
    raw_close(&c);
    assert_true(tls_connect(&c, port, 0, cert, key));
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(r.body, "hello");
    raw_free(&r);
    raw_close(&c);
    stop();
    assert_int_equal(net_tls_failures(tls), 2);
    net_tls_unref(tls);
}

static void reloading_takes_a_new_certificate_and_keeps_the_old_when_it_is_broken(void **state)
{
    (void)state;
    struct net_tls *tls = tls_make(NULL);
    uint16_t port = start(tls, (struct net_limits){0});
    make_cert(cert, key, 77);
    assert_int_equal(net_tls_reload(tls), ERR_OK);
    struct raw_conn c;
    assert_true(tls_connect(&c, port, 0, NULL, NULL));
    X509 *shown = SSL_get1_peer_certificate(c.ssl);
    assert_int_equal(ASN1_INTEGER_get(X509_get0_serialNumber(shown)), 77);
    X509_free(shown);
    raw_close(&c);
    char kept[80];
    snprintf(kept, sizeof kept, "%s.kept", cert);
    assert_int_equal(rename(cert, kept), 0);
    assert_int_not_equal(net_tls_reload(tls), ERR_OK);
    assert_int_equal(rename(kept, cert), 0);
    assert_true(tls_connect(&c, port, 0, NULL, NULL));
    raw_close(&c);
    stop();
    net_tls_unref(tls);
}

static int file_on_disk(void)
{
    char path[] = "/var/tmp/ron-tls-XXXXXX", *all = malloc(ON_DISK); /* rather not in memory */
    int fd = mkstemp(path);
    assert_true(fd >= 0 && all);
    unlink(path);
    for (size_t i = 0; i < ON_DISK; i++)
        all[i] = big[i % sizeof big];
    assert_int_equal(write(fd, all, ON_DISK), ON_DISK);
    assert_int_equal(fsync(fd), 0); /* only what is on the disk can be forgotten */
    free(all);
    return fd;
}

/*
 * A record that waits for room is read again and given to OpenSSL again, as long as the first time, wherever it is by then. Buffers
 * smaller than a record make each wait, and the one that lies across what is forgotten is under way when its first bytes are there.
 */
static void a_file_that_leaves_the_memory_while_it_is_sent_arrives(void **state)
{
    (void)state;
    on_disk = file_on_disk();
    struct net_tls *tls = tls_make(NULL);
    uint16_t port = start(tls, (struct net_limits){0});
    net_tls_unref(tls);
    int small = 4096;
    struct raw_conn c;
    struct raw_response r;
    assert_int_equal(
        setsockopt(server->workers[0].listeners[0].nf.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    assert_true(tls_connect_with(&c, port, 0, NULL, NULL, small));
    raw_puts(&c, "GET /on-disk HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_head(&c, &r);
    assert_int_equal(r.status, 200);
    raw_free(&r);
    size_t got = 0, wrong = 0, across = (FORGOTTEN - FROM) / RECORD * RECORD;
    for (;;) {
        for (size_t i = 0; i < c.n; i++)
            wrong += c.buf[i] != big[(FROM + got + i) % sizeof big];
        got += c.n;
        c.n = 0;
        if (got == ON_DISK - FROM)
            break;
        if (got == across) {
            assert_int_equal(poll(&(struct pollfd){.fd = c.fd, .events = POLLIN}, 1, RAW_PATIENCE_MS), 1);
            (void)posix_fadvise(on_disk, FORGOTTEN, FORGOTTEN, POSIX_FADV_DONTNEED);
        }
        assert_true(raw_more(&c));
    }
    assert_int_equal(wrong, 0);
    raw_close(&c);
    stop();
    close(on_disk);
}

static void what_somebody_left_in_the_error_queue_ends_no_connection(void **state)
{
    (void)state;
    struct net_tls *tls = tls_make(NULL);
    uint16_t port = start(tls, (struct net_limits){0});
    net_tls_unref(tls);
    struct raw_conn c;
    struct raw_response r;
    assert_true(tls_connect(&c, port, 0, NULL, NULL));
    for (int i = 0; i < 3; i++) {
        raw_puts(&c, "GET /clumsy HTTP/1.1\r\nHost: x\r\n\r\n");
        raw_read(&c, false, &r);
        assert_int_equal(r.status, 200);
        assert_true(r.complete);
        raw_free(&r);
    }
    raw_close(&c);
    stop();
}

/* A client that sends new keys and nothing else, more than a turn of the loop should be. */
static void new_keys_without_end_do_not_keep_the_loop_from_others(void **state)
{
    (void)state;
    enum { KEYS = 3000 };
    struct net_tls *tls = tls_make(NULL);
    struct net_listen listen = {.bind = "127.0.0.1:0", .tls = tls};
    struct net_routes set = {routes, sizeof routes / sizeof *routes, NULL};
    struct net_server_config config = {
        .listen = &listen, .listen_count = 1, .routes = &set, .routes_count = 1};
    assert_int_equal(net_server_create(&config, &server), ERR_OK);
    net_tls_unref(tls);
    assert_int_equal(pthread_create(&loop, NULL, run, NULL), 0);
    struct raw_conn c;
    struct raw_response r;
    assert_true(tls_connect(&c, net_server_port(server, 0), 0, NULL, NULL));
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_int_equal(r.status, 200);
    raw_free(&r);
    net_server_stop(server);
    pthread_join(loop, NULL); /* from here on it is turned by hand */
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(SSL_key_update(c.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(c.ssl), 1);
    }
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    struct net_worker *w = &server->workers[0];
    int waiting = 0, left = 0, turns = 0;
    assert_int_equal(ioctl(w->conns->nf.fd, FIONREAD, &waiting), 0);
    net_loop_once(w->loop, 1000);
    assert_int_equal(ioctl(w->conns->nf.fd, FIONREAD, &left), 0);
    assert_true(left > waiting / 2);
    while (atomic_load(&w->responses) < 2 && turns++ < KEYS)
        net_loop_once(w->loop, 1000);
    raw_read(&c, false, &r); /* and it is answered in its turn */
    assert_int_equal(r.status, 200);
    raw_free(&r);
    raw_close(&c);
    net_server_destroy(server);
}

/* Whoever types, or pipes something in, is not asked. */
static void a_key_that_needs_a_passphrase_is_refused_without_a_question(void **state)
{
    (void)state;
    char locked[80];
    int typed[2], was = dup(STDIN_FILENO);
    EVP_PKEY *pkey = NULL;
    FILE *f = fopen(key, "r");
    snprintf(locked, sizeof locked, "%s.locked", key);
    assert_true(f && PEM_read_PrivateKey(f, &pkey, NULL, NULL));
    fclose(f);
    f = fopen(locked, "w");
    assert_true(f && PEM_write_PrivateKey(f, pkey, EVP_aes_256_cbc(), (const unsigned char *)"secret", 6,
                                          NULL, NULL));
    fclose(f);
    EVP_PKEY_free(pkey);
    assert_int_equal(pipe(typed), 0);
    assert_int_equal(write(typed[1], "secret\n", 7), 7);
    close(typed[1]);
    assert_true(dup2(typed[0], STDIN_FILENO) >= 0);
    struct net_tls *tls;
    struct net_tls_config config = {.cert_file = cert, .key_file = locked};
    assert_int_equal(net_tls_create(&config, &tls), ERR_BAD_REQUEST);
    char left[8];
    assert_int_equal(read(typed[0], left, sizeof left), 7);
    dup2(was, STDIN_FILENO);
    close(was);
    close(typed[0]);
    unlink(locked);
}

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)('a' + i % 23);
    if (!mkdtemp(dir))
        return -1;
    snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    snprintf(key, sizeof key, "%s/key.pem", dir);
    snprintf(other_cert, sizeof other_cert, "%s/other.pem", dir);
    snprintf(other_key, sizeof other_key, "%s/other.key", dir);
    make_cert(cert, key, 1);
    make_cert(other_cert, other_key, 2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(cert);
    unlink(key);
    unlink(other_cert);
    unlink(other_key);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_large_bodies_and_files_travel_over_tls),
        cmocka_unit_test(older_versions_plaintext_and_silence_get_nowhere),
        cmocka_unit_test(a_client_certificate_is_demanded_when_a_ca_is_configured),
        cmocka_unit_test(reloading_takes_a_new_certificate_and_keeps_the_old_when_it_is_broken),
        cmocka_unit_test(new_keys_without_end_do_not_keep_the_loop_from_others),
        cmocka_unit_test(a_key_that_needs_a_passphrase_is_refused_without_a_question),
        cmocka_unit_test(a_file_that_leaves_the_memory_while_it_is_sent_arrives),
        cmocka_unit_test(what_somebody_left_in_the_error_queue_ends_no_connection),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
