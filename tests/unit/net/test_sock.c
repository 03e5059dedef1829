#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/sock.h"

static char dir[] = "/tmp/ron-sock-XXXXXX", path[64];

static int knock(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0)
        return fd;
    assert_int_equal(errno, EAGAIN);
    close(fd);
    return -1;
}

/* Whoever starts beside it is told so at once, and does not wait until somebody is let in. */
static void a_socket_whose_queue_is_full_is_in_use(void **state)
{
    (void)state;
    enum { MOST = 64 };
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int busy = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), waiting[MOST], fd;
    size_t n = 0;
    memcpy(a.sun_path, path, strlen(path));
    assert_int_equal(bind(busy, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(busy, 1), 0);
    while (n < MOST && (waiting[n] = knock(&a)) >= 0)
        n++;
    assert_in_range(n, 1, MOST - 1);
    alarm(60);
    assert_int_equal(net_sock_listen_unix(path, &fd), ERR_EXISTS);
    alarm(0);
    while (n > 0)
        close(waiting[--n]);
    close(busy);
    assert_int_equal(net_sock_listen_unix(path, &fd), ERR_OK); /* now it is left over */
    close(fd);
    unlink(path);
}

static void loopback_is_an_address_of_this_machine_alone(void **state)
{
    (void)state;
    static const struct {
        struct str text;
        bool is;
    } rows[] = {{STR_INIT("127.0.0.1"), true},
                {STR_INIT("127.255.0.9"), true},
                {STR_INIT("::1"), true},
                {STR_INIT("128.0.0.1"), false},
                {STR_INIT("::"), false},
                {STR_INIT("::2"), false},
                {STR_INIT("10.0.0.1"), false},
                {STR_INIT("7f00::1"), false},
                {STR_INIT("0.0.0.0"), false},
                {STR_INIT("::7f00:1"), false},
                {STR_INIT("::ffff:127.0.0.1"), true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t addr[16];
        assert_int_equal(net_addr_parse(rows[i].text, addr), ERR_OK);
        assert_int_equal(net_addr_is_loopback(addr), rows[i].is);
    }
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/s", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_whose_queue_is_full_is_in_use),
        cmocka_unit_test(loopback_is_an_address_of_this_machine_alone),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
