/*
 * What is outside of the mailbox's own code, for models of its tasks: a clock, a journal of bytes, and logs, metrics and event loops
 * that do nothing. Worker, scanner, lane, door (submit.c) and core are the mailbox's own, and run under the real supervisor.
 *
 * Threads     A shop at a time. Jobs are made and waited for by one thread; submitted by any.
 */
#ifndef RON_TESTS_MODEL_MAILBOX_OUTSIDE_H
#define RON_TESTS_MODEL_MAILBOX_OUTSIDE_H

#include "rt/chan.h"
#include "rt/supervisor.h"
#include "services/mailbox/mailbox.h"

enum { SHOP_JOBS = 4 };

struct shop_job {
    struct mailbox_job job;
    struct os_a32 answers;
    struct sha256 hash;
    struct mailbox_send_item send;
    struct mailbox_recv recv;
    struct mailbox_settle_item settle;
    struct mailbox_stream stream;
    struct mailbox_call call;
};

struct shop {
    struct mailbox mb;
    struct mailbox_lane lane;
    struct mailbox_config config;
    struct shop_job jobs[SHOP_JOBS];
    unsigned jobs_n;
    struct rt_chan *answered; /* of struct shop_job */
    uint8_t journal[4096];    /* records, one group behind the other */
    size_t written;
    bool writing;
    struct os_a32 device;
    struct mailbox_batch *posted; /* to streams */
};

extern struct shop *shop;

void shop_open(void) RT_BLOCKS;
void shop_close(void) RT_BLOCKS;
void shop_restart(void) RT_BLOCKS; /* the state as the journal tells it */

struct shop_job *shop_send(const char *key);
struct shop_job *shop_recv(int64_t wait_ms);
struct shop_job *shop_ack(const struct uuid *id, uint16_t attempt);
struct shop_job *shop_stream(void); /* opens one */
struct shop_job *shop_stream_close(struct shop_job *opened);
NODISCARD enum err shop_submit(struct shop_job *sj);
void shop_wait(unsigned n) RT_BLOCKS; /* for so many answers */

#endif
