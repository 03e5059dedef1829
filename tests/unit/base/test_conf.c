#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/conf.h"
#include "base/toml.h"

struct demo_config {
#define CONF CONF_AS_MEMBER
#include "tests/unit/base/conf/config.def"
#undef CONF
};

#define CONF_STRUCT struct demo_config
static const struct conf_key keys[] = {
#define CONF CONF_AS_KEY
#include "tests/unit/base/conf/config.def"
#undef CONF
};

static enum err demo_adjust(struct conf *c, void *config, struct conf_error *out_err)
{
    struct demo_config *cfg = config;
    if (conf_is_default(c, "http.threads"))
        cfg->http_threads = 3;
    if (cfg->max_conns < cfg->http_threads)
        return conf_refuse(c, "max_conns", out_err, "must be at least http.threads (%llu)",
                           (unsigned long long)cfg->http_threads);
    return ERR_OK;
}

static const struct conf_default own_defaults[] = {{"bind", "127.0.0.1:7999"}, {NULL, NULL}};
static const struct conf_table table = {.service = "demo",
                                        .keys = keys,
                                        .keys_n = sizeof keys / sizeof keys[0],
                                        .config_bytes = sizeof(struct demo_config),
                                        .defaults = own_defaults,
                                        .adjust = demo_adjust};

static struct conf_error why;

static enum err load(const char *file, const char *const *env, const char *flag, struct conf **out)
{
    static const char *const sections[] = {"other", NULL};
    const char *flags[1] = {flag};
    struct conf_sources from = {.file_name = file ? "ron.toml" : NULL,
                                .file_text = str_from_c(file),
                                .env = env,
                                .flags = flags,
                                .flags_n = flag ? 1 : 0,
                                .sections = sections};
    return conf_load(&table, &from, out, &why);
}

static void every_default_works_without_any_file(void **state)
{
    (void)state;
    struct conf *c;
    assert_int_equal(load(NULL, NULL, NULL, &c), ERR_OK);
    const struct demo_config *cfg = conf_values(c);
    assert_string_equal(cfg->bind, "127.0.0.1:7999");
    assert_int_equal(cfg->max_conns, 1024);
    assert_int_equal(cfg->read_timeout_ms, 5000);
    assert_int_equal(cfg->http_threads, 3);
    assert_false(cfg->drills);
    assert_int_equal(cfg->segment_bytes, 64 << 20);
    assert_int_equal(cfg->fsync, 0);
    assert_true(cfg->sample == 0.01);
    assert_int_equal(cfg->skew, -5);
    assert_int_equal(cfg->uids.n, 0);
    assert_int_equal(cfg->origins.n, 2);
    assert_string_equal(cfg->origins.v[1], "b.example");
    assert_int_equal((uint64_t)cfg->ceiling.units, 1000000);
    assert_string_equal(cfg->token, "");
    conf_destroy(c);
}

static void flags_beat_environment_beats_file_beats_default(void **state)
{
    (void)state;
    static const char *const env[] = {"PATH=/bin", "RON_DEMO_READ_TIMEOUT=7s", "RON_DEMO_JOURNAL_FSYNC=off",
                                      "RON_OTHER_X=1", NULL};
    struct conf *c;
    assert_int_equal(
        load("[demo]\nmax_conns = 5\nread_timeout = \"6s\"\norigins = []\nuds_allow_uids = [0, 1000]\n"
             "policy.ceiling = 77\n[demo.journal]\nfsync = \"full\"\nsegment_size = 2097152\n"
             "[demo.trace]\nsample = 1\n[other]\nwhatever = 1\n",
             env, "--journal.fsync=data", &c),
        ERR_OK);
    const struct demo_config *cfg = conf_values(c);
    assert_int_equal(cfg->max_conns, 5);
    assert_int_equal(cfg->read_timeout_ms, 7000);
    assert_int_equal(cfg->fsync, 0);
    assert_int_equal(cfg->segment_bytes, 2 << 20);
    assert_true(cfg->sample == 1.0);
    assert_int_equal(cfg->origins.n, 0);
    assert_int_equal(cfg->uids.v[1], 1000);
    assert_int_equal((uint64_t)cfg->ceiling.units, 77);
    struct buf b;
    buf_init(&b, 1000);
    conf_format_source(c, "max_conns", &b);
    buf_putc(&b, '|');
    conf_format_source(c, "read_timeout", &b);
    buf_putc(&b, '|');
    conf_format_source(c, "journal.fsync", &b);
    buf_putc(&b, '|');
    conf_format_source(c, "http.threads", &b);
    buf_putc(&b, '|');
    conf_format_source(c, "bind", &b);
    assert_string_equal(buf_cstr(&b), "ron.toml:2|env RON_DEMO_READ_TIMEOUT|flag --journal.fsync|"
                                      "default for this machine|default");
    buf_fini(&b);
    conf_destroy(c);
}

static void errors_name_place_key_and_range(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text;
        unsigned line;
    } cases[] = {
        {"[demo]\nmax_conns = 0\n", "ron.toml:2: demo.max_conns: 0 is out of range 1..65536", 2},
        {"[demo]\n\nmax_conns = \"5\"\n", "ron.toml:3: demo.max_conns: expected a whole number", 3},
        {"[demo]\nmax_conns = -1\n", "ron.toml:2: demo.max_conns: expected a whole number", 2},
        {"[demo]\nmax_con = 5\n", "ron.toml:2: demo.max_con: unknown key; did you mean 'max_conns'?", 2},
        {"[demo.journal]\nx = 5\n", "ron.toml:2: demo.journal.x: unknown key", 2},
        {"[demo.nope]\nx = 5\n", "ron.toml:1: demo.nope: unknown section", 1},
        {"[demo]\nread_timeout = \"1ms\"\n",
         "ron.toml:2: demo.read_timeout: \"1ms\" is out of range 10ms..5m", 2},
        {"[demo]\nread_timeout = 5\n",
         "ron.toml:2: demo.read_timeout: expected a duration like \"250ms\", \"5s\", \"1m\" or \"24h\"", 2},
        {"[demo.journal]\nfsync = \"maybe\"\n",
         "ron.toml:2: demo.journal.fsync: expected one of data|full|off", 2},
        {"[demo.trace]\nsample = 1.5\n", "ron.toml:2: demo.trace.sample: 1.5 is out of range 0..1", 2},
        {"[demo.trace]\nsample = nan\n", "ron.toml:2: demo.trace.sample: expected a number", 2},
        {"[demo]\nuds_allow_uids = [1,2,3,4,5]\n",
         "ron.toml:2: demo.uds_allow_uids: [1, 2, 3, 4, 5] is out of range ..4 items", 2},
        {"[demo]\nuds_allow_uids = [\"x\"]\n",
         "ron.toml:2: demo.uds_allow_uids: expected a list of whole numbers", 2},
        {"[demo.drills]\nenabled = 1\n", "ron.toml:2: demo.drills.enabled: expected true or false", 2},
        {"[demo]\ndrills = 1\n", "ron.toml:2: demo.drills: unknown key", 2},
        {"[demo.max_conns]\nx = 1\n", "ron.toml:1: demo.max_conns: expected a whole number", 1},
        {"[demo.policy]\nceiling = \"0\"\n",
         "ron.toml:2: demo.policy.ceiling: \"0\" is out of range "
         "1..340282366920938463463374607431768211455",
         2},
        {"[dmeo]\n", "ron.toml:1: unknown section 'dmeo'; did you mean 'demo'?", 1},
        {"[unlike]\n", "ron.toml:1: unknown section 'unlike'", 1},
        {"[demo.jurnal]\nfsync = \"full\"\n",
         "ron.toml:1: demo.jurnal: unknown section; did you mean 'journal'?", 1},
        {"[demo.journal]\nfsnc = 1\n",
         "ron.toml:2: demo.journal.fsnc: unknown key; did you mean 'journal.fsync'?", 2},
        {"[demo]\nfsync = 1\n", "ron.toml:2: demo.fsync: unknown key; did you mean 'journal.fsync'?", 2},
        {"demo = 1\n", "ron.toml:1: 'demo' must be a table", 0},
        {"[demo]\nmax_conns = 5\nmax_conns = 6\n", "ron.toml:3:1: 'max_conns' is already defined", 3},
        {"[demo]\nmax_conns = 2\n", "ron.toml:2: demo.max_conns: must be at least http.threads (3)", 2},
        {"[demo]\nbind = \"a\\u0000b\"\n",
         "ron.toml:2: demo.bind: a string of the configuration cannot hold U+0000", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conf *c = NULL;
        assert_int_equal(load(cases[i].file, NULL, NULL, &c), ERR_BAD_REQUEST);
        assert_null(c);
        assert_string_equal(why.text, cases[i].text);
        assert_int_equal(why.line, cases[i].line);
    }
    struct conf *c;
    static const char *const bad_env[] = {"RON_DEMO_MAX_CONNS=many", NULL};
    assert_int_equal(load(NULL, bad_env, NULL, &c), ERR_BAD_REQUEST);
    assert_string_equal(why.text,
                        "environment RON_DEMO_MAX_CONNS: demo.max_conns: expected a whole number");
    static const char *const unknown_env[] = {"RON_DEMO_MAX_CON=1", NULL};
    assert_int_equal(load(NULL, unknown_env, NULL, &c), ERR_BAD_REQUEST);
    assert_string_equal(
        why.text,
        "environment RON_DEMO_MAX_CON: no key of demo has this name; did you mean 'RON_DEMO_MAX_CONNS'?");
    assert_int_equal(load(NULL, NULL, "--nope=1", &c), ERR_BAD_REQUEST);
    assert_string_equal(why.text, "flag --nope: no key of demo has this name");
    assert_int_equal(load(NULL, NULL, "--max_conns", &c), ERR_BAD_REQUEST);
    assert_string_equal(why.text, "flag --max_conns: demo.max_conns: needs a value: --max_conns=...");
    /* what no file could hold: the printed one must be one */
    assert_int_equal(load(NULL, NULL, "--bind=caf\xe9", &c), ERR_BAD_REQUEST);
    assert_string_equal(why.text, "flag --bind: demo.bind: is not UTF-8");
    static const char *const latin_env[] = {"RON_DEMO_ORIGINS=a,\xff", NULL};
    assert_int_equal(load(NULL, latin_env, NULL, &c), ERR_BAD_REQUEST);
    assert_string_equal(why.text, "environment RON_DEMO_ORIGINS: demo.origins: is not UTF-8");
    assert_int_equal(load(NULL, NULL, "--drills.enabled", &c), ERR_OK);
    assert_true(((const struct demo_config *)conf_values(c))->drills);
    conf_destroy(c);
}

static void reload_is_all_or_nothing_and_refuses_fixed_keys(void **state)
{
    (void)state;
    struct conf *old, *new = NULL;
    assert_int_equal(load("[demo]\nmax_conns = 10\n[demo.peer]\ntoken = \"s3cret\"\n", NULL, NULL, &old),
                     ERR_OK);
    struct conf_sources from = {.file_name = "ron.toml",
                                .file_text = STR("[demo]\nmax_conns = 20\nbind = \"x:1\"\n")};
    assert_int_equal(conf_reload(old, &from, &new, &why), ERR_CONFLICT);
    assert_string_equal(why.text, "changed but needs a restart: demo.bind");
    assert_null(new);
    from.file_text = STR("[demo]\nmax_conns = 20\nread_timeout = \"never\"\n");
    assert_int_equal(conf_reload(old, &from, &new, &why), ERR_BAD_REQUEST);
    from.file_text = STR("[demo]\nmax_conns = 20\n[demo.peer]\ntoken = \"other\"\n");
    assert_int_equal(conf_reload(old, &from, &new, &why), ERR_OK);
    assert_int_equal(((const struct demo_config *)conf_values(new))->max_conns, 20);
    assert_int_equal(((const struct demo_config *)conf_values(old))->max_conns, 10);
    struct buf b;
    buf_init(&b, 4096);
    assert_int_equal(conf_diff(old, new, &b), 2);
    assert_string_equal(buf_cstr(&b), "demo.max_conns: 10 -> 20\ndemo.peer.token: \"***\" -> \"***\"\n");
    buf_fini(&b);
    conf_destroy(old);
    conf_destroy(new);
}

static void the_printed_file_reads_back_to_the_same_values(void **state)
{
    (void)state;
    struct conf *c, *again;
    assert_int_equal(load("[demo]\norigins = [\"q\\\"uote\", \"new\\nline\"]\nuds_allow_uids = [-1]\n"
                          "[demo.trace]\nsample = 0.1\n",
                          NULL, "--max_conns=9", &c),
                     ERR_OK);
    struct buf text, diff;
    buf_init(&text, 1 << 16);
    buf_init(&diff, 1 << 16);
    conf_print(c, &text);
    assert_non_null(
        strstr(buf_cstr(&text), "max_conns = 9                             # flag --max_conns\n"));
    assert_non_null(strstr(buf_cstr(&text), "\n[demo.journal]\n"));
    assert_null(strstr(buf_cstr(&text), "s3cret"));
    assert_int_equal(load(buf_cstr(&text), NULL, NULL, &again), ERR_OK);
    assert_int_equal(conf_diff(c, again, &diff), 1); /* the secret, which is not printed */
    assert_string_equal(buf_cstr(&diff), "demo.peer.token: \"***\" -> \"***\"\n");
    buf_fini(&text);
    buf_fini(&diff);
    conf_destroy(c);
    conf_destroy(again);
}

static void documents_come_from_the_same_table(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    conf_markdown(&table, &b);
    assert_non_null(
        strstr(buf_cstr(&b),
               "| `demo.max_conns` | integer | `1024` | 1..65536 | yes | connections open at once |\n"));
    assert_non_null(
        strstr(buf_cstr(&b), "| `demo.bind` | string | `\"127.0.0.1:7999\"` | 1..100 bytes | restart |"));
    assert_non_null(
        strstr(buf_cstr(&b), "| `demo.journal.fsync` | word | `\"data\"` | data\\|full\\|off | restart |"));
    buf_reset(&b);
    conf_example(&table, &b);
    assert_non_null(strstr(buf_cstr(&b), "# connections open at once (1..65536)\n# max_conns = 1024\n"));
    struct conf *c;
    assert_int_equal(load(buf_cstr(&b), NULL, NULL, &c), ERR_OK);
    conf_destroy(c);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_works_without_any_file),
        cmocka_unit_test(flags_beat_environment_beats_file_beats_default),
        cmocka_unit_test(errors_name_place_key_and_range),
        cmocka_unit_test(reload_is_all_or_nothing_and_refuses_fixed_keys),
        cmocka_unit_test(the_printed_file_reads_back_to_the_same_values),
        cmocka_unit_test(documents_come_from_the_same_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
