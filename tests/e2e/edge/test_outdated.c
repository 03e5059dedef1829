/*
 * A 304 that was given before is not given again once the configuration, or the file under the pack, is another: at once, not
 * with the generation that is published soon after either. The test holds the lock that a reload of packs needs, so that none is
 * published.
 */
#include "rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/edge/pack.h"

static struct {
    char dir[64], config[96], pack[96], request[400];
    struct raw_conn c;
} here;

static void write_file(const char *path, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n && close(fd) == 0);
}

static void write_config(const char *max_age)
{
    char text[100];
    int n = snprintf(text, sizeof text, "[edge]\ncache.tiles_max_age = \"%s\"\n", max_age);
    write_file(here.config, text, (size_t)n);
}

/* Another request comes right behind it: the next newcomer takes that one's place in the server, not this one's. */
static int ask(const char *fields, struct raw_response *out)
{
    struct raw_response behind;
    snprintf(here.request, sizeof here.request,
             "GET /edge/tiles/w/0/0/0 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n%s\r\n"
             "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
             fields);
    raw_puts(&here.c, here.request);
    raw_read(&here.c, false, out);
    raw_read(&here.c, false, &behind);
    raw_free(&behind);
    return out->status;
}

/* The same conditional request until it is told so; false: it never is. */
static bool is_told(const char *fields, int status, const char *line)
{
    struct deadline by = deadline_in_ms(RAW_PATIENCE_MS);
    bool so = false;
    while (!so && !deadline_passed(by)) {
        struct raw_response r;
        so = ask(fields, &r) == status && strstr(r.head, line);
        raw_free(&r);
    }
    return so;
}

/* The tile is known, and was told 304 often enough to be told so from memory. */
static void make_known(char fields[128])
{
    char tag[100];
    struct raw_response r;
    assert_int_equal(ask("", &r), 200);
    assert_non_null(raw_header(&r, "ETag", tag, sizeof tag));
    raw_free(&r);
    snprintf(fields, 128, "If-None-Match: %s\r\n", tag);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(fields, &r), 304);
        assert_non_null(strstr(r.head, "max-age=3600\r\n"));
        raw_free(&r);
    }
}

RT_UNCHECKED static int open_with_a_pack(void **state)
{
    char mount[128];
    struct edge_file *demo;
    (void)state;
    strcpy(here.dir, "/tmp/edge-outdated-XXXXXX");
    assert_non_null(mkdtemp(here.dir));
    snprintf(here.config, sizeof here.config, "%s/ron.toml", here.dir);
    snprintf(here.pack, sizeof here.pack, "%s/w.pmtiles", here.dir);
    write_config("1h");
    assert_int_equal(edge_demo_file(&demo), ERR_OK);
    write_file(here.pack, demo->bytes, (size_t)demo->size);
    edge_file_unref(demo);
    snprintf(mount, sizeof mount, "packs.mount=w %s", here.pack);
    rig_open(here.config, (const char *const[]){RIG_PATIENT, mount, NULL});
    rig_start();
    raw_connect(&here.c, rig_port());
    return 0;
}

RT_UNCHECKED static int close_with_a_pack(void **state)
{
    (void)state;
    raw_close(&here.c);
    assert_int_equal(svc_drain(rig.s), 0);
    rig_close();
    unlink(here.config);
    unlink(here.pack);
    rmdir(here.dir);
    return 0;
}

RT_UNCHECKED static void *reload(void *arg)
{
    struct buf diff;
    (void)arg;
    buf_init(&diff, 1 << 16);
    bool ok = svc_reload(rig.s, &diff) == ERR_OK;
    buf_fini(&diff);
    return ok ? NULL : here.config;
}

RT_UNCHECKED static void another_configuration_outdates_what_was_said_before(void **state)
{
    char fields[128];
    pthread_t reloader;
    void *failed;
    (void)state;
    make_known(fields);
    write_config("7s");
    rt_lock_take(&rig.e->reload_lock);
    bool began = pthread_create(&reloader, NULL, reload, NULL) == 0;
    bool told = is_told(fields, 304, "max-age=7\r\n");
    rt_lock_release(&rig.e->reload_lock);
    assert_true(began && told);
    assert_int_equal(pthread_join(reloader, &failed), 0);
    assert_null(failed);
}

RT_UNCHECKED static void a_file_that_was_found_changed_outdates_what_was_said_before(void **state)
{
    char fields[128];
    (void)state;
    make_known(fields);
    rt_lock_take(&rig.e->reload_lock);
    bool cut = truncate(here.pack, 200) == 0;
    bool told = is_told(fields, 503, "X-Reason: pack\r\n");
    rt_lock_release(&rig.e->reload_lock);
    assert_true(cut && told);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(another_configuration_outdates_what_was_said_before,
                                        open_with_a_pack, close_with_a_pack),
        cmocka_unit_test_setup_teardown(a_file_that_was_found_changed_outdates_what_was_said_before,
                                        open_with_a_pack, close_with_a_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
