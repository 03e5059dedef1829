/* The connection to PostgreSQL against a server that only the test knows. Real ones: test_replica.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "store/pg_stream.h"

enum { WAIT_MS = 20000 };

static void say_message(struct buf *out, char type, const void *body, size_t n)
{
    uint8_t len[4];
    be32_put(len, (uint32_t)n + 4);
    buf_putc(out, type);
    buf_put(out, len, sizeof len);
    buf_put(out, body, n);
}

static void say_greeting(struct buf *out)
{
    static const char version[] = "server_version\0"
                                  "14.11",
                      standby[] = "in_hot_standby\0"
                                  "off",
                      read_only[] = "default_transaction_read_only\0"
                                    "off";
    say_message(out, 'R', "\0\0\0", 4);
    say_message(out, 'S', version, sizeof version);
    say_message(out, 'S', standby, sizeof standby);
    say_message(out, 'S', read_only, sizeof read_only);
    say_message(out, 'Z', "I", 1);
}

/* One row of four texts, all as they should be. */
static void say_settings(struct buf *out)
{
    static const char *const values[] = {"on", "on", "on", "ANY 1 (s1,s2)"};
    static const uint8_t column[] = {'c', 0,  0,    0,    0,    0,    0,    0,    0, 0,
                                     0,   25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0};
    struct buf rows, names;
    uint8_t n[4];
    buf_init(&names, 1024);
    buf_init(&rows, 1024);
    buf_put(&names, "\0\4", 2);
    buf_put(&rows, "\0\4", 2);
    for (int i = 0; i < 4; i++) {
        buf_put(&names, column, sizeof column);
        be32_put(n, (uint32_t)strlen(values[i]));
        buf_put(&rows, n, sizeof n);
        buf_puts(&rows, values[i]);
    }
    say_message(out, 'T', names.p, names.n);
    say_message(out, 'D', rows.p, rows.n);
    say_message(out, 'C', "SELECT 1", 9);
    say_message(out, 'Z', "I", 1);
    buf_fini(&names);
    buf_fini(&rows);
}

/* Answers one client: the greeting to its first words, the settings to what comes next. */
static void *old_server(void *arg)
{
    char heard[4096];
    struct buf out;
    int fd = accept(*(int *)arg, NULL, NULL);
    buf_init(&out, 8192);
    for (int turn = 0; recv(fd, heard, sizeof heard, 0) > 0; turn++) {
        buf_reset(&out);
        if (turn == 0)
            say_greeting(&out);
        else if (turn == 1)
            say_settings(&out);
        if (out.n > 0 && send(fd, out.p, out.n, MSG_NOSIGNAL) != (ssize_t)out.n)
            break;
    }
    buf_fini(&out);
    close(fd);
    return NULL;
}

RT_BLOCKS
static void a_server_that_is_too_old_is_refused_whatever_it_promises(void **state)
{
    (void)state;
    char dsn[128];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t server;
    struct store_pg *p;
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 64) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    snprintf(dsn, sizeof dsn,
             "host=127.0.0.1 port=%d dbname=ron user=ron sslmode=disable gssencmode=disable",
             ntohs(at.sin_port));
    assert_int_equal(pthread_create(&server, NULL, old_server, &fd), 0);
    assert_int_equal(store_pg_stream_create(dsn, "test", 1, &p), ERR_OK);
    assert_int_equal(store_pg_connect(p, deadline_in_ms(WAIT_MS)), ERR_UNAVAILABLE);
    assert_string_equal(store_pg_why(p), "PostgreSQL 15 or later is needed, not: 14.11");
    store_pg_destroy(p);
    pthread_join(server, NULL);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_is_too_old_is_refused_whatever_it_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
