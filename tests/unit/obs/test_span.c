#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "obs/span.h"

static const char example[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

static void the_example_of_the_standard_round_trips(void **state)
{
    (void)state;
    struct obs_trace t;
    char out[OBS_TRACEPARENT_CHARS];
    assert_int_equal(
        obs_traceparent_parse(STR("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), &t), ERR_OK);
    assert_true(t.sampled);
    obs_traceparent_format(&t, out);
    assert_string_equal(out, example);
}

static void what_the_standard_forbids_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    };
    struct obs_trace t;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(obs_traceparent_parse(str_from_c(bad[i]), &t), ERR_SYNTAX);
    assert_int_equal(
        obs_traceparent_parse(STR("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-later"), &t),
        ERR_OK);
    assert_false(t.sampled);
}

static struct obs_tracer *make(struct clock_manual *c, size_t capacity, unsigned ppm)
{
    clock_manual_init(c, 1760000000000);
    struct obs_tracer *t;
    struct obs_tracer_config cfg = {.clock = &c->clock, .capacity = capacity, .sample_ppm = ppm, .seed = 7};
    assert_int_equal(obs_tracer_create(&cfg, &t), ERR_OK);
    return t;
}

static void one_in_a_hundred_is_sampled_and_all_of_them_in_safe_mode(void **state)
{
    (void)state;
    struct clock_manual c;
    struct obs_tracer *t = make(&c, 4, 10000);
    struct obs_span s;
    int sampled = 0;
    for (int i = 0; i < 20000; i++) {
        obs_span_begin(t, NULL, "x", &s);
        sampled += s.self.sampled;
    }
    assert_in_range(sampled, 120, 290);
    obs_tracer_sample_all(t, true);
    obs_span_begin(t, NULL, "x", &s);
    assert_true(s.self.sampled);
    obs_tracer_sample_all(t, false);
    obs_tracer_destroy(t);
}

static void the_share_that_is_sampled_can_change_while_it_runs(void **state)
{
    (void)state;
    struct clock_manual c;
    struct obs_tracer *t = make(&c, 4, 0);
    struct obs_span s;
    for (unsigned share = 0; share <= 1; share++) {
        obs_tracer_set_sample(t, share * 1000000);
        for (int i = 0; i < 100; i++) {
            obs_span_begin(t, NULL, "x", &s);
            assert_int_equal(s.self.sampled, share);
        }
    }
    obs_tracer_destroy(t);
}

static void a_child_keeps_the_trace_and_the_callers_decision(void **state)
{
    (void)state;
    struct clock_manual c;
    struct obs_tracer *t = make(&c, 4, 0);
    struct obs_trace parent;
    assert_int_equal(obs_traceparent_parse(str_from_c(example), &parent), ERR_OK);
    struct obs_span s, child;
    obs_span_begin(t, &parent, "ingress", &s);
    obs_span_begin(t, &s.self, "commit", &child);
    assert_memory_equal(child.self.trace_id, parent.trace_id, 16);
    assert_memory_equal(child.parent_id, s.self.span_id, 8);
    assert_memory_not_equal(child.self.span_id, s.self.span_id, 8);
    assert_true(child.self.sampled);
    obs_span_begin(NULL, &parent, "no tracer", &s);
    assert_false(s.self.sampled);
    obs_span_end(NULL, &s, ERR_OK);
    obs_tracer_destroy(t);
}

static void a_draw_is_what_a_span_would_be(void **state)
{
    (void)state;
    struct clock_manual c;
    struct obs_tracer *t = make(&c, 4, 10000);
    struct obs_trace kept = {.trace_id = {1}, .span_id = {1}, .sampled = true}, left = kept;
    left.sampled = false;
    static const struct {
        unsigned ppm, least, most; /* of 100,000 */
    } shares[] = {
        {10000, 800, 1200}, {800000, 79000, 81000}, {1000000, 100000, 100000}, {10000, 800, 1200}};
    for (size_t s = 0; s < sizeof shares / sizeof shares[0]; s++) {
        unsigned drawn = 0;
        obs_tracer_set_sample(t, shares[s].ppm);
        for (int i = 0; i < 100000; i++)
            drawn += obs_tracer_draw(t, NULL);
        assert_in_range(drawn, shares[s].least, shares[s].most);
    }
    assert_true(obs_tracer_draw(t, &kept));
    assert_false(obs_tracer_draw(t, &left));
    assert_false(obs_tracer_draw(NULL, &kept));
    obs_tracer_set_sample(t, 0);
    for (int i = 0; i < 1000; i++)
        assert_false(obs_tracer_draw(t, NULL));
    obs_tracer_sample_all(t, true);
    assert_true(obs_tracer_draw(t, NULL));
    assert_true(obs_tracer_draw(t, &left));
    obs_tracer_destroy(t);
}

static void a_span_that_is_over_lies_between_the_times_that_were_noted(void **state)
{
    (void)state;
    struct clock_manual c;
    struct obs_tracer *t = make(&c, 4, 1000000);
    struct obs_trace root = {.trace_id = {1}, .span_id = {1}, .sampled = true}, left = root;
    struct obs_span s, out[2];
    int64_t began = clock_mono_ns(&c.clock), wall_ns = clock_wall_ms(&c.clock) * 1000000;
    clock_manual_advance_ms(&c, 70);
    struct obs_moment now = obs_tracer_now(t);
    obs_span_begin_at(t, &root, "part", &now, began + 10000000, &s);
    clock_manual_advance_ms(&c, 1000); /* what it is written by does not count */
    obs_span_end_at(t, &s, began + 30000000, ERR_TIMEOUT);
    left.sampled = false;
    obs_span_begin_at(t, &left, "part", &now, began, &s);
    obs_span_end_at(t, &s, began, ERR_OK);
    assert_int_equal(obs_tracer_take(t, out, 2), 1);
    assert_true(out[0].start_unix_ns == wall_ns + 10000000 && out[0].end_unix_ns == wall_ns + 30000000);
    assert_memory_equal(out[0].parent_id, root.span_id, 8);
    assert_int_equal(out[0].err, ERR_TIMEOUT);
    obs_tracer_destroy(t);
}

static void a_full_queue_loses_spans_and_counts_them(void **state)
{
    (void)state;
    struct clock_manual c;
    struct obs_tracer *t = make(&c, 4, 1000000);
    struct obs_span s, out[8];
    for (uint64_t i = 0; i < 6; i++) {
        obs_span_begin(t, NULL, "x", &s);
        obs_span_u64(&s, "i", i);
        obs_span_end(t, &s, ERR_OK);
    }
    assert_int_equal(obs_tracer_lost(t), 2);
    assert_int_equal(obs_tracer_take(t, out, 8), 4);
    assert_int_equal(out[3].attrs[0].number, 3);
    assert_int_equal(obs_tracer_take(t, out, 8), 0);
    obs_span_begin(t, NULL, "x", &s);
    obs_span_end(t, &s, ERR_OK);
    assert_int_equal(obs_tracer_take(t, out, 8), 1);
    obs_tracer_destroy(t);
}

static void otlp_json_has_the_shape_a_collector_expects(void **state)
{
    (void)state;
    struct clock_manual c;
    struct obs_tracer *t = make(&c, 4, 1000000);
    struct obs_span s[2], taken[2];
    obs_span_begin(t, NULL, "ingress", &s[0]);
    obs_span_begin(t, &s[0].self, "commit", &s[1]);
    obs_span_text(&s[1], "corr_id", STR("a\"b"));
    obs_span_u64(&s[1], "seq", UINT64_MAX);
    clock_manual_advance_ms(&c, 5);
    obs_span_end(t, &s[1], ERR_IO);
    obs_span_end(t, &s[0], ERR_OK);
    assert_int_equal(obs_tracer_take(t, taken, 2), 2);
    struct buf out;
    buf_init(&out, 1 << 16);
    struct json_w w;
    obs_otlp_begin(&w, "ron-ledger", "1.0", &out);
    for (size_t i = 0; i < 2; i++)
        obs_otlp_span(&w, &taken[i]);
    obs_otlp_end(&w);
    assert_true(json_w_done(&w));
    json_t *j = json_loads(buf_cstr(&out), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    json_t *rs = json_array_get(json_object_get(j, "resourceSpans"), 0);
    json_t *spans = json_object_get(json_array_get(json_object_get(rs, "scopeSpans"), 0), "spans");
    assert_int_equal(json_array_size(spans), 2);
    json_t *commit = json_array_get(spans, 0), *root = json_array_get(spans, 1);
    assert_int_equal(strlen(json_string_value(json_object_get(commit, "traceId"))), 32);
    assert_string_equal(json_string_value(json_object_get(commit, "parentSpanId")),
                        json_string_value(json_object_get(root, "spanId")));
    assert_null(json_object_get(root, "parentSpanId"));
    assert_string_equal(json_string_value(json_object_get(commit, "startTimeUnixNano")),
                        "1760000000000000000");
    assert_string_equal(json_string_value(json_object_get(commit, "endTimeUnixNano")),
                        "1760000000005000000");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(commit, "status"), "code")), 2);
    json_t *attrs = json_object_get(commit, "attributes");
    json_t *first = json_object_get(json_array_get(attrs, 0), "value");
    assert_string_equal(json_string_value(json_object_get(first, "stringValue")), "a\"b");
    json_decref(j);
    buf_fini(&out);
    obs_tracer_destroy(t);
}

static void the_largest_span_is_still_json(void **state)
{
    (void)state;
    struct clock_manual c;
    struct obs_tracer *t = make(&c, 4, 1000000);
    struct obs_span s;
    struct buf out;
    struct json_w w;
    char text[OBS_ATTR_TEXT_MAX];
    memset(text, 1, sizeof text);
    obs_span_begin(t, &(struct obs_trace){.trace_id = {1}, .span_id = {1}, .sampled = true}, "x", &s);
    for (int i = 0; i < OBS_ATTRS_MAX; i++)
        obs_span_text(&s, "every_byte_escaped", str_of(text, sizeof text - 1));
    obs_span_end(t, &s, ERR_UNSUPPORTED_MEDIA_TYPE);
    buf_init(&out, 1 << 16);
    obs_otlp_begin(&w, "ron-ledger", "1.0", &out);
    obs_otlp_span(&w, &s);
    obs_otlp_end(&w);
    json_t *j = json_loads(buf_cstr(&out), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    json_t *scope = json_array_get(
        json_object_get(json_array_get(json_object_get(j, "resourceSpans"), 0), "scopeSpans"), 0);
    json_t *attrs = json_object_get(json_array_get(json_object_get(scope, "spans"), 0), "attributes");
    assert_int_equal(json_array_size(attrs), OBS_ATTRS_MAX);
    json_t *last = json_object_get(json_array_get(attrs, OBS_ATTRS_MAX - 1), "value");
    assert_memory_equal(json_string_value(json_object_get(last, "stringValue")), text, sizeof text - 1);
    json_decref(j);
    buf_fini(&out);
    obs_tracer_destroy(t);
}

static _Atomic int still_ending;

static void *end_many(void *arg)
{
    struct obs_span s;
    for (int i = 0; i < 20000; i++) {
        obs_span_begin(arg, NULL, "x", &s);
        obs_span_end(arg, &s, ERR_OK);
    }
    atomic_fetch_sub(&still_ending, 1);
    return NULL;
}

static void every_span_is_either_taken_or_counted_as_lost(void **state)
{
    (void)state;
    struct obs_tracer *t;
    struct obs_tracer_config cfg = {.clock = clock_real(), .capacity = 64, .sample_ppm = 1000000};
    assert_int_equal(obs_tracer_create(&cfg, &t), ERR_OK);
    pthread_t th[3];
    atomic_store(&still_ending, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&th[i], NULL, end_many, t), 0);
    struct obs_span out[16];
    size_t taken = 0;
    while (atomic_load(&still_ending))
        taken += obs_tracer_take(t, out, 16);
    for (int i = 0; i < 3; i++)
        pthread_join(th[i], NULL);
    for (size_t n; (n = obs_tracer_take(t, out, 16));)
        taken += n;
    assert_int_equal(taken + obs_tracer_lost(t), 60000);
    assert_int_equal(obs_tracer_queued(t), 60000);
    obs_tracer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_standard_round_trips),
        cmocka_unit_test(what_the_standard_forbids_is_refused),
        cmocka_unit_test(one_in_a_hundred_is_sampled_and_all_of_them_in_safe_mode),
        cmocka_unit_test(the_share_that_is_sampled_can_change_while_it_runs),
        cmocka_unit_test(a_child_keeps_the_trace_and_the_callers_decision),
        cmocka_unit_test(a_draw_is_what_a_span_would_be),
        cmocka_unit_test(a_span_that_is_over_lies_between_the_times_that_were_noted),
        cmocka_unit_test(a_full_queue_loses_spans_and_counts_them),
        cmocka_unit_test(otlp_json_has_the_shape_a_collector_expects),
        cmocka_unit_test(the_largest_span_is_still_json),
        cmocka_unit_test(every_span_is_either_taken_or_counted_as_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
