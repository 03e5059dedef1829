/* Bodies that are not copied: pinned memory, files, streams out and streams in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>

#include "http_rig.h"

static void memory_and_files_leave_without_being_copied_and_are_released(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /pinned HTTP/1.1\r\nHost: x\r\n\r\nGET /parts HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /file HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == sizeof http_rig_big &&
                memcmp(r.body, http_rig_big, sizeof http_rig_big) == 0);
    raw_free(&r);
    raw_read(&c, false, &r);
    assert_true(r.status == 206 && r.body_n == 6000 && memcmp(r.body, http_rig_big, 6000) == 0);
    raw_free(&r);
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == (1 << 20) - 100 &&
                memcmp(r.body, http_rig_big + 100, r.body_n) == 0);
    raw_free(&r);
    http_answered(&c, 200, "hello");
    raw_close(&c);
    EVENTUALLY(http_rig.releases == 2);
    assert_int_equal(http_rig.released_bad, 0);
    /* a file shorter than promised: the response is cut, not padded */
    raw_once(http_rig.port, "GET /short-file HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_true(r.status == 200 && !r.complete && r.body_n == 1 << 20);
    raw_free(&r);
    EVENTUALLY(http_rig.released_bad == 1);
    /* so is a mapping of one, and its owner is told why; the socket was not full */
    raw_once(http_rig.port, "GET /shrunk HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_true(r.status == 200 && !r.complete && r.body_n <= 1 << 18);
    raw_free(&r);
    EVENTUALLY(http_rig.released_bad == 2);
    assert_int_equal(http_rig.unreadable, 2);
    http_rig_stop();
}

static void streams_are_chunked_bounded_and_end(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.stream_buffer = 1000});
    struct raw_conn c;
    struct raw_response r;
    char v[64];
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_head(&c, &r);
    http_expect(&r, 200, NULL);
    assert_string_equal(raw_header(&r, "Transfer-Encoding", v, sizeof v), "chunked");
    assert_string_equal(raw_header(&r, "Content-Type", v, sizeof v), "text/event-stream");
    raw_free(&r);
    EVENTUALLY(http_rig.stream != NULL);
    struct net_req *rq = http_rig.stream;
    assert_int_equal(net_stream_write(rq, bytes_of(http_rig_big, 1001)), ERR_TOO_LARGE);
    assert_int_equal(net_stream_write(rq, http_text("data: 1\n\n")), ERR_OK);
    while (c.n < 14)
        assert_true(raw_more(&c)); /* it is there before the stream ends */
    assert_memory_equal(c.buf, "9\r\ndata: 1\n\n\r\n", 14);
    assert_int_equal(net_stream_write(rq, http_text("data: 2\n\n")), ERR_OK);
    net_stream_end(rq);
    const char *rest = "9\r\ndata: 2\n\n\r\n0\r\n\r\nHTTP/1.1 200";
    while (c.n < 14 + strlen(rest))
        assert_true(raw_more(&c));
    assert_memory_equal(c.buf + 14, rest, strlen(rest));
    raw_close(&c);
    http_rig_stop();
}

static void a_full_stream_is_busy_and_a_left_one_closed(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){.stream_buffer = 60000});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    int small = 4096;
    setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    raw_puts(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(http_rig.stream != NULL);
    size_t sent = 0;
    enum err e = ERR_OK;
    /* The socket's own buffers are large; the stream must say busy within a bounded number of bytes. */
    for (int i = 0; i < 100000 && e != ERR_BUSY; i++) {
        e = net_stream_write(http_rig.stream, bytes_of(http_rig_big, 50000));
        sent += e == ERR_OK ? 50000 : 0;
    }
    assert_int_equal(e, ERR_BUSY);
    assert_true(sent < 64u << 20);
    raw_close(&c);
    EVENTUALLY(http_rig.closes == 1);
    assert_int_equal(net_stream_write(http_rig.stream, http_text("x")), ERR_CLOSED);
    net_stream_end(http_rig.stream);
    EVENTUALLY(http_rig.inflight == 0);
    http_rig_stop();
}

static void a_sized_stream_refills_when_there_is_room(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "GET /produced HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_true(r.complete && r.body_n == 100 * 50000);
    for (size_t i = 0; i < 100; i++)
        assert_memory_equal(r.body + i * 50000, http_rig_big + i * 1000, 50000);
    raw_free(&r);
    http_answered(&c, 200, "hello");
    raw_close(&c);
    http_rig_stop();
}

static void request_bodies_can_be_streamed_in(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    struct raw_response r;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 3145728\r\n\r\n");
    raw_send(&c, http_rig_big, sizeof http_rig_big);
    http_answered(&c, 200, "3145728");
    raw_puts(&c, "POST /count HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(r.body, "0");
    raw_free(&r);
    raw_puts(
        &c, "POST /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n");
    raw_read(&c, false, &r);
    assert_string_equal(r.body, "5");
    raw_free(&r);
    /* an answer before the end: the rest is thrown away, the connection goes on */
    raw_puts(&c, "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    http_answered(&c, 403, "forbidden");
    raw_send(&c, http_rig_big, 100000);
    raw_puts(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    http_answered(&c, 200, "hello");
    raw_close(&c);
    http_rig_stop();
}

static void a_paused_body_waits_for_the_handler(void **state)
{
    (void)state;
    http_rig_start((struct net_limits){0});
    struct raw_conn c;
    raw_connect(&c, http_rig.port);
    raw_puts(&c, "POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n");
    raw_send(&c, http_rig_big, 200000);
    EVENTUALLY(http_rig.pieces == 1);
    int seen = 1;
    for (int i = 0; i < 200 && http_rig.done == 0; i++) {
        net_req_resume_body(http_rig.held); /* one resume, one piece */
        EVENTUALLY(http_rig.pieces == seen + 1 || http_rig.done == 1);
        seen = http_rig.pieces;
    }
    http_answered(&c, 200, "200000");
    raw_close(&c);
    http_rig_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_files_leave_without_being_copied_and_are_released),
        cmocka_unit_test(streams_are_chunked_bounded_and_end),
        cmocka_unit_test(a_full_stream_is_busy_and_a_left_one_closed),
        cmocka_unit_test(a_sized_stream_refills_when_there_is_room),
        cmocka_unit_test(request_bodies_can_be_streamed_in),
        cmocka_unit_test(a_paused_body_waits_for_the_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
