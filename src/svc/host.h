/*
 * What a process that hosts services does for them: svc_run() for one, `ron up` for all. Signals, and opening again a service
 * that asked for it (svc_ask_reopen).
 *
 * Threads     The main thread, before any other is started (svc_host_block_signals) and while it waits.
 */
#ifndef RON_SVC_HOST_H
#define RON_SVC_HOST_H

#include "base/err.h"
#include "rt/backoff.h"
#include "svc/svc.h"

enum { SVC_HOST_LOOK_MS = 250 }; /* how often a host looks whether a service asked for something */

enum svc_host_event { SVC_HOST_NOTHING, SVC_HOST_DRAIN, SVC_HOST_RELOAD };

void svc_host_block_signals(void);
/* As many descriptors as the system lets us have: a shell starts with room for a thousand, and what a journal cannot open because clients
 * have taken them all is lost to safe mode. */
void svc_host_raise_limits(void);
enum svc_host_event svc_host_wait(int timeout_ms);
void svc_host_second_signal_ends(void);
void svc_host_request_drain(void *ctx);
/* svc_reload for who cannot be told to ask again: waits for a reload that is under way. */
NODISCARD enum err svc_host_reload(struct svc *s, struct buf *out_diff) RT_BLOCKS;

void svc_host_may_reopen(struct svc *s); /* after svc_start: this host listens to svc_ask_reopen */
bool svc_host_wants_reopen(const struct svc *s);

/* The pauses between attempts: 100-400 ms, growing to 5 s; small again after a minute that went well. */
struct svc_host_pause {
    struct rt_backoff backoff;
    int64_t since_ns;
};
void svc_host_pause_init(struct svc_host_pause *p);

enum svc_host_again { SVC_HOST_BACK, SVC_HOST_ENDED, SVC_HOST_IN_VAIN };
/* Calls bring_up until it succeeds, a signal says that it is enough (ENDED), or a minute of attempts did not help (IN_VAIN). */
enum svc_host_again svc_host_open_again(struct svc_host_pause *p, enum err (*bring_up)(void *ctx),
                                        void *ctx) RT_BLOCKS;

#endif
