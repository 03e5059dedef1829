/*
 * A wallet in this process over a fake ledger, reached over real sockets.
 */
#ifndef RON_TESTS_WALLET_RIG_H
#define RON_TESTS_WALLET_RIG_H

#include "mem_ledger.h"
#include "raw_http.h"
#include "svc/svc.h"

struct wallet_rig {
    char dir[64], root[80], token[4096];
    struct svc_data *data;
    struct svc *svc;
    struct mem_ledger *ledger;
    struct clock_manual clock;
    bool driven; /* by that clock */
};

struct rig_answer {
    int status; /* < 0: -(enum err), no answer */
    char body[16384];
    char retry_after[16], replayed[8], location[96];
};

void wallet_rig_open(struct wallet_rig *r, const char *const *flags,
                     size_t n) RT_BLOCKS; /* ready when it returns */
/* The same on a clock that stands still until rig_move_to(), for the service and the ledger. It begins at the real time, for
 * deadlines that tasks compare with the system's own clock. With "http.threads=1" and what else the flags say. */
void wallet_rig_open_driven(struct wallet_rig *r, const char *const *flags, size_t n) RT_BLOCKS;
void wallet_rig_restart(struct wallet_rig *r, const char *const *flags, size_t n) RT_BLOCKS;
int wallet_rig_stop(struct wallet_rig *r) RT_BLOCKS; /* what the process would exit with */
void wallet_rig_close(struct wallet_rig *r) RT_BLOCKS;
/* With the rig as the state: opened without flags, and closed. */
int wallet_rig_set_up(void **state) RT_UNCHECKED;
int wallet_rig_tear_down(void **state) RT_UNCHECKED;
/* A test of cmocka's on a rig of its own, which `open` opens as it needs it. */
#define RIG_TEST_OPENED(fn, open, rig)                                                                     \
    cmocka_unit_test_prestate_setup_teardown(fn, open, wallet_rig_tear_down, rig)
#define RIG_TEST(fn, rig) RIG_TEST_OPENED(fn, wallet_rig_set_up, rig)

/* key NULL: none sent; token NULL: the operator's, "": none. */
void rig_call(struct wallet_rig *r, const char *method, const char *path, const char *key,
              const char *token, const char *body, struct rig_answer *out) RT_BLOCKS;
void rig_post(struct wallet_rig *r, const char *path, const char *key, struct rig_answer *out,
              const char *fmt, ...) RT_BLOCKS
__attribute__((format(printf, 5, 6)));
void rig_get(struct wallet_rig *r, const char *path, struct rig_answer *out) RT_BLOCKS;
/* Sends a request on a connection of its own and does not wait; key NULL: none. */
void rig_ask(struct wallet_rig *r, struct raw_conn *c, const char *method, const char *path,
             const char *key, const char *body);
/* Reads the answer to that, which must have this status and this text in it, and closes the connection. */
void rig_answered(struct raw_conn *c, int status, const char *says);
/* A token narrowed from the operator's; terminated in out. */
void rig_narrow(struct wallet_rig *r, const char *const *caveats, size_t n, char out[4096]);
/* The sum of a metric's series whose labels contain `labels`. */
double rig_metric(struct wallet_rig *r, const char *name, const char *labels) RT_BLOCKS;
void rig_await_metric(struct wallet_rig *r, const char *name, const char *labels,
                      double at_least) RT_BLOCKS;

/* ---- driven ---- */
int64_t rig_now_ns(const struct wallet_rig *r);
/* What was due on the listener's loop when it was called has happened when it returns. */
void rig_settle(struct wallet_rig *r);
/* To this many ms after since_ns; whatever is due by then has happened when it returns, in tasks perhaps a little later. */
void rig_move_to(struct wallet_rig *r, int64_t since_ns, int64_t ms);

/* Asks until /readyz says so; aborts after a while. */
void rig_await_ready(struct wallet_rig *r, bool ready) RT_BLOCKS;
/* Asks until /readyz, ready or not, has this in its body; the same. */
void rig_await_readyz(struct wallet_rig *r, const char *says) RT_BLOCKS;
/* A member of a flat JSON body: text or number as written; "" when absent. */
const char *rig_member(const struct rig_answer *a, const char *name, char out[256]);
/* Resident memory of this process, the service in it included. */
size_t rig_rss_kib(void);

#endif
