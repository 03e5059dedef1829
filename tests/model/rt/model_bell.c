/* One task that sleeps on two queues: no order of sending and looking lets it sleep on something that came. */
#include "base/check.h"
#include "model.h"
#include "rt/bell.h"
#include "rt/chan.h"
#include "rt/os.h"

struct house {
    struct rt_bell bell;
    struct rt_chan *queues[2];
};

static void first_sender(void *arg)
{
    struct house *h = arg;
    CHECK(rt_chan_try_send(h->queues[0], h) == ERR_OK);
}

static void second_sender(void *arg)
{
    struct house *h = arg;
    CHECK(rt_chan_try_send(h->queues[1], h) == ERR_OK);
}

static unsigned take(struct house *h, size_t queue)
{
    void *item;
    if (rt_chan_try_recv(h->queues[queue], &item) != ERR_OK)
        return 0;
    CHECK(item == h);
    return 1;
}

RT_BLOCKS
static void nobody_sleeps_on_what_came(void)
{
    struct house h;
    struct os_thread senders[2];
    unsigned got = 0;
    rt_bell_init(&h.bell);
    for (size_t i = 0; i < 2; i++)
        h.queues[i] = rt_chan_create(&(struct rt_chan_spec){.name = "queue",
                                                            .capacity = 1,
                                                            .policy = RT_REJECT,
                                                            .on_ready = rt_bell_ring,
                                                            .on_ready_arg = &h.bell});
    CHECK(os_thread_start(&senders[0], "first", first_sender, &h) == ERR_OK);
    CHECK(os_thread_start(&senders[1], "second", second_sender, &h) == ERR_OK);
    while (got < 2) {
        uint64_t noted = rt_bell_note(&h.bell);
        unsigned found = take(&h, 0) + take(&h, 1);
        got += found;
        if (found)
            continue;
        enum err e = rt_bell_wait(&h.bell, noted, deadline_never());
        CHECK(e == ERR_OK);
        model_cover(got); /* asleep before the first, and between the two */
    }
    for (size_t i = 0; i < 2; i++) {
        os_thread_join(&senders[i]);
        rt_chan_destroy(h.queues[i], NULL, NULL);
    }
}

int main(int argc, char **argv)
{
    const struct model models[] = {{.name = "nobody_sleeps_on_what_came",
                                    .body = nobody_sleeps_on_what_came,
                                    .preemptions = 2,
                                    .covers = 2}};
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
