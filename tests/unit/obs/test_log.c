#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "obs/log.h"

struct fixture {
    int fd[2];
    struct clock_manual clock;
    struct obs_log *lg;
    char text[1 << 16];
};

static struct fixture *open_log(enum obs_log_format format, unsigned dup_per_s)
{
    struct fixture *x = calloc(1, sizeof *x);
    assert_int_equal(pipe2(x->fd, O_NONBLOCK), 0);
    clock_manual_init(&x->clock, 1760000000123);
    struct obs_log_config cfg = {.service = "svc-demo",
                                 .level = OBS_INFO,
                                 .format = format,
                                 .fd = x->fd[1],
                                 .dup_per_s = dup_per_s,
                                 .clock = &x->clock.clock};
    assert_int_equal(obs_log_create(&cfg, &x->lg), ERR_OK);
    return x;
}

static void close_log(struct fixture *x)
{
    obs_log_set_task(NULL);
    obs_log_destroy(x->lg);
    close(x->fd[0]);
    close(x->fd[1]);
    free(x);
}

/* What was written since the last call. */
static const char *written(struct fixture *x)
{
    ssize_t n = read(x->fd[0], x->text, sizeof x->text - 1);
    x->text[n < 0 ? 0 : n] = '\0';
    return x->text;
}

static void a_line_is_one_json_object_with_the_fixed_members_first(void **state)
{
    (void)state;
    struct fixture *x = open_log(OBS_LOG_AUTO, 0);
    obs_log_set_task("committer");
    obs_log(x->lg, OBS_WARN, "torn_tail", OBS_STR("file", "00000001.seg"), OBS_U64("bytes", 512),
            OBS_I64("d", -1), OBS_BOOL("ok", true), OBS_F64("f", 0.5), OBS_ERR(ERR_TORN),
            OBS_CORR(STR("c-1")), OBS_END);
    assert_string_equal(
        written(x),
        "{\"ts\":\"2025-10-09T08:53:20.123Z\",\"level\":\"warn\",\"service\":\"svc-demo\","
        "\"task\":\"committer\",\"event\":\"torn_tail\",\"file\":\"00000001.seg\",\"bytes\":512,"
        "\"d\":-1,\"ok\":true,\"f\":0.5,\"err\":\"ERR_TORN\",\"corr_id\":\"c-1\"}\n");
    close_log(x);
}

static void text_is_for_people(void **state)
{
    (void)state;
    struct fixture *x = open_log(OBS_LOG_TEXT, 0);
    obs_log(x->lg, OBS_INFO, "start", OBS_STR("bind", "127.0.0.1:7410"), OBS_STR("note", "two words"),
            OBS_END);
    assert_string_equal(written(x),
                        "08:53:20.123Z info  svc-demo start bind=127.0.0.1:7410 note=\"two words\"\n");
    close_log(x);
}

static int evaluated;

static uint64_t count_evaluation(void)
{
    evaluated++;
    return 1;
}

static void levels_change_at_run_time_and_a_silent_line_costs_nothing(void **state)
{
    (void)state;
    struct fixture *x = open_log(OBS_LOG_JSON, 0);
    obs_log(x->lg, OBS_DEBUG, "quiet", OBS_U64("n", count_evaluation()), OBS_END);
    assert_int_equal(evaluated, 0);
    assert_string_equal(written(x), "");
    obs_log_set_level(x->lg, OBS_DEBUG);
    obs_log(x->lg, OBS_DEBUG, "loud", OBS_U64("n", count_evaluation()), OBS_END);
    assert_int_equal(evaluated, 1);
    assert_non_null(strstr(written(x), "\"loud\""));
    obs_log_set_level(x->lg, OBS_OFF);
    obs_log(x->lg, OBS_ERROR, "never", OBS_END);
    assert_string_equal(written(x), "");
    obs_log(NULL, OBS_ERROR, "nobody", OBS_END);
    enum obs_level level;
    assert_int_equal(obs_level_parse(STR("warn"), &level), ERR_OK);
    assert_int_equal(level, OBS_WARN);
    assert_int_equal(obs_level_parse(STR("WARN"), &level), ERR_SYNTAX);
    close_log(x);
}

static void secrets_are_never_written(void **state)
{
    (void)state;
    struct fixture *x = open_log(OBS_LOG_JSON, 0);
    static const char macaroon[] =
        "MDAxN2xvY2F0aW9uIHN2Yy13YWxsZXQKMDAxMmlkZW50aWZpZXIgazEKMDAyZnNpZ25hdHVyZSA";
    char mixed[256];
    snprintf(mixed, sizeof mixed, "got %s, then Bearer abc.def-ghi end", macaroon);
    obs_log(x->lg, OBS_INFO, "e", OBS_STR("token", "s3cret-a"), OBS_STR("Authorization", "s3cret-b"),
            OBS_STR("tls.key", "s3cret-c"), OBS_STR("set-cookie", "s3cret-d"),
            OBS_STR("client_secret", "s3cret-e"), OBS_STR("monkey", "fine"), OBS_STR("value", mixed),
            OBS_END);
    const char *line = written(x);
    assert_null(strstr(line, "s3cret"));
    assert_null(strstr(line, "MDAx"));
    assert_null(strstr(line, "abc.def"));
    assert_non_null(strstr(line, "\"monkey\":\"fine\""));
    assert_non_null(strstr(line, "\"value\":\"got [redacted], then [redacted] end\""));
    assert_true(obs_redacts_key(STR("keyring.token")));
    assert_false(obs_redacts_key(STR("kid")));
    close_log(x);
}

static void hostile_text_stays_one_valid_line(void **state)
{
    (void)state;
    struct fixture *x = open_log(OBS_LOG_JSON, 0);
    char big[3000];
    memset(big, 'x', sizeof big);
    obs_log(x->lg, OBS_INFO, "e", OBS_STR("a", "line\nbreak \"q\" \\ \x01"),
            OBS_STR("b", "bad \xff\xc0\x80 \xed\xa0\x80 utf"), OBS_STR("c", str_of(big, sizeof big)),
            OBS_STR("d", str_of(big, sizeof big)), OBS_STR("e", str_of(big, sizeof big)),
            OBS_STR("f", str_of(big, sizeof big)), OBS_END);
    const char *line = written(x);
    size_t n = strlen(line);
    assert_true(n <= OBS_LINE_MAX);
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "a")), "line\nbreak \"q\" \\ \x01");
    assert_true(json_is_true(json_object_get(j, "truncated")));
    json_decref(j);
    close_log(x);
}

static void repeated_events_are_limited_per_second_and_counted(void **state)
{
    (void)state;
    struct fixture *x = open_log(OBS_LOG_JSON, 3);
    for (int i = 0; i < 10; i++)
        obs_log(x->lg, OBS_WARN, "storm", OBS_ERR(ERR_IO), OBS_END);
    obs_log(x->lg, OBS_WARN, "storm", OBS_ERR(ERR_BUSY), OBS_END);
    const char *text = written(x);
    size_t lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    assert_int_equal(lines, 4);
    clock_manual_advance_ms(&x->clock, 1000);
    obs_log(x->lg, OBS_WARN, "storm", OBS_ERR(ERR_IO), OBS_END);
    assert_non_null(strstr(written(x), "\"suppressed\":7"));
    close_log(x);
}

static void a_reader_that_stops_costs_lines_and_never_blocks(void **state)
{
    (void)state;
    int fd[2];
    assert_int_equal(pipe(fd), 0); /* blocking, as a parent's log pipe would be */
    struct obs_log *lg;
    struct obs_log_config cfg = {.service = "s", .level = OBS_INFO, .format = OBS_LOG_JSON, .fd = fd[1]};
    assert_int_equal(obs_log_create(&cfg, &lg), ERR_OK);
    for (int i = 0; i < 5000; i++)
        obs_log(lg, OBS_INFO, "fill", OBS_U64("i", (uint64_t)i), OBS_END);
    assert_true(obs_log_lost(lg) > 0);
    obs_log_destroy(lg);
    close(fd[0]);
    close(fd[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_one_json_object_with_the_fixed_members_first),
        cmocka_unit_test(text_is_for_people),
        cmocka_unit_test(levels_change_at_run_time_and_a_silent_line_costs_nothing),
        cmocka_unit_test(secrets_are_never_written),
        cmocka_unit_test(hostile_text_stays_one_valid_line),
        cmocka_unit_test(repeated_events_are_limited_per_second_and_counted),
        cmocka_unit_test(a_reader_that_stops_costs_lines_and_never_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
