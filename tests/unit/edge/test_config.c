/*
 * Every key of the edge's own: its default, the least and the most it takes, what is just outside is refused by name, and whether a
 * reload may change it. (What the others share is tested where it is defined.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "svc/svc.h"

extern const struct svc_def edge_svc;

struct row {
    const char *key, *standard; /* as TOML writes it */
    const char *least, *under;  /* NULL: there is none */
    const char *most, *over;    /* likewise */
    bool fixed;                 /* needs a restart */
    const char *beside;         /* another flag it needs; NULL: none */
};

static const struct row rows[] = {
    {.key = "mode", "\"offline\"", "offline", "online", NULL, NULL},
    {.key = "public_url", "\"\"", "https://h/x", "h", NULL, NULL},
    {.key = "http.metrics_cidrs", "[\"127.0.0.0/8\", \"::1\"]", "10.0.0.0/8", "10.0.0.0/33", NULL, NULL},
    {.key = "http.trusted_proxies", "[]", "::/0", "::/129", NULL, NULL},
    {.key = "packs.dir", "\"\"", "/x", NULL, NULL, NULL},
    {.key = "packs.demo", "true", "false", "no", NULL, NULL},
    {.key = "packs.verify", "\"background\"", "before_mount", "never", NULL, NULL},
    {.key = "packs.mount", "[]", "a /x mount=m/", "a /x mount=m", NULL, NULL},
    {.key = "packs.seal_rate", "\"256MiB\"", "0", "1048575", NULL, NULL},
    {.key = "packs.seal_rate", "\"256MiB\"", "1MiB", "1", NULL, NULL},
    {.key = "packs.dir_cache_bytes", "\"64MiB\"", "1MiB", "1048575", "16GiB", "17179869185"},
    {.key = "packs.max_tile_bytes", "\"4MiB\"", "64KiB", "65535", "64MiB", "67108865"},
    {.key = "packs.tags_max_bytes", "\"1GiB\"", "0", "-1", "64GiB", "68719476737"},
    {.key = "tiles.missing", "\"204\"", "404", "200", NULL, NULL},
    {.key = "cache.tiles_max_age", "\"1h\"", "0s", "-1s", "8760h", "8761h"},
    {.key = "cache.assets_max_age", "\"1h\"", "0s", "-1s", "8760h", "8761h"},
    {.key = "cache.archive_max_age", "\"5m\"", "0s", "-1s", "8760h", "8761h"},
    {.key = "ingress.timeout_secs", "5", "1", "0", "60", "61"},       /* docs/design/0029 */
    {.key = "ingress.idle_secs", "60", "1", "0", "3600", "3601"},     /* likewise */
    {.key = "ingress.max_conns", "1024", "1", "0", "65536", "65537"}, /* likewise */
    {.key = "ingress.max_inflight", "512", "1", "0", "65536", "65537"},
    {.key = "ingress.rps_limit", "500", "1", "0", "10000000", "10000001"},
    {.key = "ingress.client_rps", "250", "1", "0", "10000000", "10000001"},
    {.key = "ingress.client_inflight", "64", "1", "0", "512", "513"},
    {.key = "ingress.body_bytes", "\"1MiB\"", "0", "-1", "1MiB", "1048577"},
    {.key = "ingress.header_bytes", "\"16KiB\"", "1KiB", "1023", "16KiB", "16385"},
    {.key = "ingress.decompress_max_ratio", "10", "1", "0", "10", "11"},
    {.key = "ingress.decompress_abs_bytes", "\"10MiB\"", "64KiB", "65535", "10MiB", "10485761"},
    {.key = "range.max_specs", "64", "1", "0", "1024", "1025"},
    {.key = "range.max_parts", "16", "1", "0", "64", "65"},
    {.key = "cors.origins",
     "[\"http://127.0.0.1:7400\", \"http://localhost:7400\"]",
     "*",
     "h",
     "app://h:1",
     "https://h/"},
    {.key = "cors.max_age", "\"10m\"", "0s", "-1s", "24h", "25h"},
    {.key = "work.workers", "16", "1", "0", "256", "257", true},
    {.key = "work.queue_cap", "512", "1", "0", "512", "513", true},
    {.key = "read.threads", "4", "1", "0", "32", "33", true},
    {.key = "read.queue_cap", "256", "1", "0", "1024", "1025", true},
    {.key = "fill.routes",
     "[]",
     "a/ https://h/",
     "a https://h/",
     "a/ https://h/ max_bytes=16GiB",
     "a/ https://h/ max_bytes=17GiB"},
    {.key = "fill.routes",
     "[]",
     "a/ https://h/ timeout=1s",
     "a/ https://h/ timeout=999ms",
     "a/ https://h/ timeout=10m",
     "a/ https://h/ timeout=601s"},
    {.key = "fill.routes",
     "[]",
     "a/ https://h:1/x/ query=keep etag=any max_age=0s",
     "a/ https://u@h/",
     "a/ https://h/ max_bytes=1KiB",
     "a/ https://h/?q/"},
    {.key = "fill.max_redirects", "2", "0", "-1", "5", "6"},
    {.key = "fill.negative_ttl", "\"5s\"", "0s", "-1s", "5m", "301s"},
    {.key = "fill.stale_if_error", "\"1d\"", "0s", "-1s", "720h", "721h"},
    {.key = "fill.ca_file", "\"\"", "/x", NULL, NULL, NULL},
    {.key = "fill.allow_private", "[]", "10.0.0.0/8", "10", NULL, NULL},
    {.key = "fill.allow_loopback_http", "false", "true", "maybe", NULL, NULL},
    {.key = "retry.live_fill.base_ms",
     "50",
     "1",
     "0",
     "1000",
     "1001",
     .beside = "retry.live_fill.max_ms=10000"},
    {.key = "retry.live_fill.base_ms", "50", "800", "801", NULL, NULL},
    {.key = "retry.live_fill.max_ms", "800", "50", "0", "10000", "10001"},
    {.key = "retry.live_fill.max_retries", "2", "0", "-1", "5", "6"},
    {.key = "retry.live_fill.jitter", "true", "false", "2", NULL, NULL},
    {.key = "breaker.failures", "5", "1", "0", "100", "101"},
    {.key = "breaker.open", "\"5s\"", "1s", "999ms", "5m", "301s"},
    {.key = "cas.max_bytes", "\"1GiB\"", "1MiB", "1048575", NULL, NULL},
    {.key = "cas.max_objects", "1000000", "1", "0", "10000000", "10000001"},
    {.key = "cas.min_free", "\"256MiB\"", "0", "-1", NULL, NULL},
    {.key = "cas.scrub_rate", "\"20MiB\"", "0", "-1", "10GiB", "10737418241"},
    {.key = "cas.amnesia_bytes", "\"256MiB\"", "1MiB", "1048575", "64GiB", "68719476737", true},
    {.key = "ready.shed_window", "\"500ms\"", "100ms", "99ms", "10s", "10001ms"},
    {.key = "drain_deadline", "\"3s\"", "100ms", "-1s", "60s", "11m"},
    {.key = "peers.list", "[]", "https://h/", "h", NULL, NULL},
    {.key = "peers.self", "\"\"", "", "https://h/", NULL, NULL},
    {.key = "peers.tries", "2", "1", "0", "8", "9"},
    {.key = "peers.timeout", "\"1s\"", "50ms", "49ms", "1m", "61s"},
    {.key = "peers.max_bytes", "\"64MiB\"", "1KiB", "1023", "16GiB", "17179869185"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static enum err load(const struct row *r, const char *value, struct conf **out, struct conf_error *why)
{
    char flag[200];
    const char *flags[] = {flag, r->beside};
    snprintf(flag, sizeof flag, "%s=%s", r->key, value);
    return conf_load(edge_svc.config, &(struct conf_sources){.flags = flags, .flags_n = r->beside ? 2 : 1},
                     out, why);
}

static void taken(const struct row *r, const char *value)
{
    struct conf *c;
    struct conf_error why;
    if (!value)
        return;
    if (load(r, value, &c, &why) != ERR_OK)
        fail_msg("%s=%s: %s", r->key, value, why.text);
    conf_destroy(c);
}

static void refused(const struct row *r, const char *value)
{
    char key[100];
    struct conf *c;
    struct conf_error why;
    if (!value)
        return;
    if (load(r, value, &c, &why) != ERR_BAD_REQUEST)
        fail_msg("%s=%s is taken", r->key, value);
    snprintf(key, sizeof key, "edge.%s", r->key);
    assert_string_equal(why.key, key);
}

static bool reloads(const char *name)
{
    size_t i = 0;
    while (i < edge_svc.config->keys_n && strcmp(edge_svc.config->keys[i].name, name) != 0)
        i++;
    assert_true(i < edge_svc.config->keys_n);
    return edge_svc.config->keys[i].flags & CONF_RELOAD;
}

static void keys_have_their_defaults_and_bounds(void **state)
{
    struct conf *c;
    struct conf_error why;
    (void)state;
    assert_int_equal(conf_load(edge_svc.config, &(struct conf_sources){.file_name = NULL}, &c, &why),
                     ERR_OK);
    for (const struct row *r = rows; r < rows + ROWS; r++) {
        struct buf value;
        buf_init(&value, 1000);
        conf_format_value(c, r->key, &value);
        if (strcmp(buf_cstr(&value), r->standard) != 0)
            fail_msg("%s is %s, not %s", r->key, buf_cstr(&value), r->standard);
        buf_fini(&value);
        taken(r, r->least);
        refused(r, r->under);
        taken(r, r->most);
        refused(r, r->over);
        assert_int_equal(reloads(r->key), !r->fixed);
    }
    conf_destroy(c);
}

/* The edge's own come behind what all services share. */
static void no_key_of_the_edge_is_forgotten(void **state)
{
    bool own = false;
    (void)state;
    for (size_t i = 0; i < edge_svc.config->keys_n; i++) {
        const char *name = edge_svc.config->keys[i].name;
        bool found = false;
        own = own || strcmp(name, "mode") == 0;
        for (const struct row *r = rows; r < rows + ROWS; r++)
            found = found || strcmp(r->key, name) == 0;
        if (own && !found)
            fail_msg("%s is not in this table", name);
    }
    assert_true(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_their_defaults_and_bounds),
        cmocka_unit_test(no_key_of_the_edge_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
