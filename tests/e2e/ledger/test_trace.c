/* Every stage a request passes leaves a span of the same trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_leaves_one_span_per_stage_of_one_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
