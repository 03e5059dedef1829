/* Every stage a request passes leaves a span of the same trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ledger_rig.h"
#include "obs/span.h"

static struct ledger_rig rig;

enum { MAX = 64 };
static struct obs_span got[MAX];
static size_t n_got;

static const struct obs_span *span_of(const char *name)
{
    for (size_t i = 0; i < n_got; i++)
        if (strcmp(got[i].name, name) == 0)
            return &got[i];
    return NULL;
}

static void take_until(const char *name)
{
    struct deadline by = deadline_in_ms(30000);
    while (span_of(name) == NULL) {
        n_got += obs_tracer_take(svc_tracer(rig.svc), got + n_got, MAX - n_got);
        assert_false(deadline_passed(by));
        usleep(500);
    }
}

static const char *text_of(const struct obs_span *s, const char *key)
{
    for (size_t i = 0; i < s->n_attrs; i++)
        if (strcmp(s->attrs[i].key, key) == 0)
            return s->attrs[i].is_text ? s->attrs[i].text : "number";
    return "absent";
}

static void a_request_leaves_one_span_per_stage_of_one_trace(void **state)
{
    (void)state;
    static const char *const stages[] = {"ingress", "prevalidator", "sequencer", "committer"};
    const char *flags[] = {"otlp.sample=1"};
    struct rig_client c;
    struct rig_unit u;
    struct rig_reply a;
    ledger_rig_open(&rig, true, flags, 1);
    rig_client_open(&rig, RIG_OAP_UNIX, &c);
    rig_mint(&u, "traced", "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&c, &rq, 30000, &a);
    assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
    n_got = 0;
    take_until("committer");
    for (size_t i = 0; i < 4; i++) {
        const struct obs_span *s = span_of(stages[i]);
        assert_non_null(s);
        assert_memory_equal(s->self.trace_id, got[0].self.trace_id, 16);
        assert_true(s->end_unix_ns >= s->start_unix_ns);
        assert_string_not_equal(text_of(s, "kid"), "absent");
        if (i > 0)
            assert_memory_equal(s->parent_id, span_of("ingress")->self.span_id, 8);
    }
    assert_string_equal(text_of(span_of("committer"), "seq"), "number");
    assert_string_equal(text_of(span_of("committer"), "entry_id"), u.id);
    assert_string_equal(text_of(span_of("sequencer"), "queue"), "preval");
    assert_int_equal(strlen(text_of(span_of("prevalidator"), "capability_ref")), 16);
    rig_client_close(&c);
    ledger_rig_close(&rig);
}

/* The same over a socket and in this process: what the wallet does in `ron up`, and the rewarder. */
static void the_callers_trace_and_id_go_on_over_every_transport(void **state)
{
    (void)state;
    const char *flags[] = {"otlp.sample=0"};
    ledger_rig_open(&rig, true, flags, 1);
    for (enum rig_transport t = 0; t < RIG_TRANSPORTS; t++) {
        struct rig_client c;
        struct rig_unit u;
        struct rig_reply a;
        char corr[32], parent[OBS_TRACEPARENT_CHARS];
        snprintf(corr, sizeof corr, "order-%d", (int)t);
        snprintf(parent, sizeof parent, "00-4bf92f3577b34da6a3ce929d0e0e473%x-00f067aa0ba902b%x-01",
                 (unsigned)t, (unsigned)t);
        struct obs_trace caller;
        assert_int_equal(obs_traceparent_parse(str_from_c(parent), &caller), ERR_OK);
        rig_client_open(&rig, t, &c);
        rig_mint(&u, corr, "acct:alice", 1);
        struct ledger_ingest rq = {
            .units = &u.u, .n_units = 1, .corr_id = str_from_c(corr), .traceparent = str_from_c(parent)};
        n_got = 0;
        rig_ingest(&c, &rq, 30000, &a);
        assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
        take_until("committer");
        const struct obs_span *in = span_of("ingress");
        assert_non_null(in);
        assert_memory_equal(in->self.trace_id, caller.trace_id, 16);
        assert_memory_equal(in->parent_id, caller.span_id, 8);
        assert_string_equal(text_of(in, "corr_id"), corr);
        assert_memory_equal(span_of("committer")->self.trace_id, caller.trace_id, 16);
        rig_client_close(&c);
    }
    ledger_rig_close(&rig);
}

/* Nothing is sampled until then; afterwards everything is, and all there is are refusals. */
static void in_safe_mode_every_request_leaves_a_span(void **state)
{
    (void)state;
    const char *flags[] = {"otlp.sample=0"};
    struct rig_client c;
    struct rig_unit u;
    struct rig_reply a;
    struct deadline by = deadline_in_ms(30000);
    ledger_rig_open(&rig, true, flags, 1);
    rig_client_open(&rig, RIG_OAP_UNIX, &c);
    rig_mint(&u, "untraced", "acct:alice", 1);
    struct ledger_ingest rq = {.units = &u.u, .n_units = 1};
    rig_ingest(&c, &rq, 30000, &a);
    assert_int_equal(a.v[0].status, LEDGER_COMMITTED);
    assert_int_equal(obs_tracer_take(svc_tracer(rig.svc), got, MAX), 0);
    assert_int_equal(ledger_rig_http(&rig, "POST", "/admin/safe-mode",
                                     "{\"action\":\"enter\",\"reason\":\"test\"}", NULL),
                     200);
    n_got = 0;
    while (span_of("ingress") == NULL) { /* from the next look at readiness on */
        rig_ingest(&c, &rq, 30000, &a);
        assert_int_equal(a.err, ERR_SAFE_MODE);
        n_got = obs_tracer_take(svc_tracer(rig.svc), got, MAX);
        assert_false(deadline_passed(by));
    }
    assert_string_not_equal(text_of(span_of("ingress"), "kid"), "absent");
    rig_client_close(&c);
    ledger_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_leaves_one_span_per_stage_of_one_trace),
        cmocka_unit_test(the_callers_trace_and_id_go_on_over_every_transport),
        cmocka_unit_test(in_safe_mode_every_request_leaves_a_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
