/*
 * Signals of a process that hosts services: svc_run() for one, `ron up` for five.
 *
 * Threads     The main thread, before any other is started (svc_host_block_signals) and while it waits.
 */
#ifndef RON_SVC_HOST_H
#define RON_SVC_HOST_H

enum svc_host_event { SVC_HOST_NOTHING, SVC_HOST_DRAIN, SVC_HOST_RELOAD };

void svc_host_block_signals(void);
enum svc_host_event svc_host_wait(int timeout_ms);
void svc_host_second_signal_ends(void);
void svc_host_request_drain(void *ctx);

#endif
