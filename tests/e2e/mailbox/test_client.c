/* The C client against a running service in this process: a whole life of a message, a refusal, and an unclosed handle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "services/mailbox/client/mbx.h"
#include "services/mailbox/mailbox.h"

RT_BLOCKS
static void a_message_lives_through_the_client(void **state)
{
    (void)state;
    struct svc_data *data;
    struct svc *s;
    struct mbx *c;
    struct buf token;
    const char *why;
    char url[64];
    assert_int_equal(svc_data_open("unused", true, SVC_DATA_WHOLE, &data, &why),
                     ERR_OK); /* amnesia: no file anywhere */
    static const char *const flags[] = {"bind=127.0.0.1:0", "ready_shards=2", "uds="};
    struct svc_options opt = {.data = data, .flags = flags, .flag_count = 3, .quiet = true};
    if (svc_open(&mailbox_svc, &opt, &s) != ERR_OK || svc_start(s) != ERR_OK)
        fail_msg("%s", svc_last_error());
    buf_init(&token, 8192);
    assert_int_equal(svc_data_operator_token(data, &token), ERR_OK);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", svc_port(s));
    assert_int_equal(mbx_open(&(struct mbx_config){.url = url, .token = buf_cstr(&token)}, &c), ERR_OK);

    struct mbx_message m = {.topic = "c/lib", .key = "k1", .payload = bytes_of("hello\0there", 11)};
    struct mbx_sent sent, again;
    assert_int_equal(mbx_send(c, &m, &sent), ERR_OK);
    assert_int_equal(sent.topic_seq, 1);
    assert_false(sent.duplicate);
    assert_int_equal(mbx_send(c, &m, &again), ERR_OK);
    assert_true(again.duplicate && mailbox_id_eq(&again.msg_id, &sent.msg_id));
    m.payload = bytes_of("other", 5);
    assert_int_equal(mbx_send(c, &m, &again), ERR_IDEM_CONFLICT);
    assert_true(strlen(mbx_why(c)) > 0);

    struct mbx_batch b = {0};
    assert_int_equal(
        mbx_recv(c, "c/lib", &(struct mbx_wish){.max = 5, .visibility_ms = 60000, .wait_ms = 1000}, &b),
        ERR_OK);
    assert_int_equal(b.n, 1);
    assert_true(bytes_eq(b.m[0].payload, bytes_of("hello\0there", 11)));
    assert_int_equal(b.m[0].attempt, 1);
    assert_int_equal(mbx_extend(c, &b.m[0], 90000), ERR_OK);
    struct mbx_delivery stale = b.m[0];
    stale.attempt = 7;
    assert_int_equal(mbx_ack(c, &stale), ERR_STALE_ATTEMPT);
    assert_int_equal(mbx_nack(c, &b.m[0], "not now"), ERR_OK);
    assert_int_equal(mbx_ack(c, &b.m[0]), ERR_OK); /* late work counts: nobody has a newer token */
    mbx_batch_free(&b);
    assert_int_equal(mbx_recv(c, "c/lib", &(struct mbx_wish){0}, &b), ERR_OK);
    assert_int_equal(b.n, 0);
    mbx_batch_free(&b);
    mbx_close(c);

    assert_int_equal(mbx_open(&(struct mbx_config){.url = url, .token = "nonsense"}, &c), ERR_OK);
    assert_int_equal(mbx_recv(c, "c/lib", &(struct mbx_wish){0}, &b), ERR_UNAUTHENTICATED);
    mbx_destroy(c);
    assert_int_equal(svc_drain(s), 0);
    svc_close(s);
    svc_data_close(data);
    buf_fini(&token);
    assert_int_equal(access("unused", F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_message_lives_through_the_client)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
