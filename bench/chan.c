/*
 * What a hop through a channel costs: one thread sends pointers, another receives them; nanoseconds per item.
 *
 *   bench.chan [BATCH [ITEMS [CAPACITY]]]     (1, 20,000,000, 1024)
 *
 * bench/rows/chan runs it side by side with a Go channel.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rt/chan.h"
#include "rt/os.h"

enum { BATCH_MAX = 1024 };

struct run {
    struct rt_chan *ch;
    size_t batch;
    uint64_t items, sum;
};

RT_BLOCKS
static void receive(void *arg)
{
    struct run *r = arg;
    void *got[BATCH_MAX];
    uint64_t sum = 0;
    size_t n;
    if (r->batch == 1) {
        while (rt_chan_recv(r->ch, deadline_never(), got) == ERR_OK)
            sum += (uintptr_t)got[0];
    } else {
        while (rt_chan_recv_batch(r->ch, got, r->batch, deadline_never(), &n) == ERR_OK) {
            for (size_t i = 0; i < n; i++)
                sum += (uintptr_t)got[i];
        }
    }
    r->sum = sum;
}

RT_BLOCKS
static void send(struct run *r)
{
    void *some[BATCH_MAX];
    size_t sent;
    for (uint64_t i = 1; i <= r->items;) {
        size_t n = 0;
        while (n < r->batch && i <= r->items)
            some[n++] = (void *)(uintptr_t)i++;
        enum err e = n == 1 ? rt_chan_send(r->ch, some[0], deadline_never())
                            : rt_chan_send_batch(r->ch, some, n, deadline_never(), &sent);
        CHECK(e == ERR_OK);
    }
}

RT_BLOCKS
int main(int argc, char **argv)
{
    struct run r = {.batch = argc > 1 ? strtoul(argv[1], NULL, 10) : 1,
                    .items = argc > 2 ? strtoull(argv[2], NULL, 10) : 20000000};
    size_t capacity = argc > 3 ? strtoul(argv[3], NULL, 10) : 1024;
    CHECK(r.batch >= 1 && r.batch <= BATCH_MAX);
    r.ch = rt_chan_create(&(struct rt_chan_spec){.name = "bench", .capacity = capacity, .policy = RT_WAIT});
    CHECK(r.ch != NULL);
    struct os_thread t;
    CHECK(os_thread_start(&t, "receiver", receive, &r) == ERR_OK);
    int64_t start_ns = os_now_ns();
    send(&r);
    rt_chan_close(r.ch);
    os_thread_join(&t);
    double ns = (double)(os_now_ns() - start_ns) / (double)r.items;
    CHECK(r.sum == r.items * (r.items + 1) / 2);
    printf("%.2f ns per item, batch %zu, capacity %zu, high water %zu\n", ns, r.batch, capacity,
           rt_chan_stats(r.ch).high_water);
    rt_chan_destroy(r.ch, NULL, NULL);
    return 0;
}
