/*
 * The smallest complete service on the frame: POST /v1/echo hops listener -> worker -> listener and comes back. It
 * shows how a service is put together and lets the frame be tested end to end.
 */
#ifndef RON_TESTS_TINY_H
#define RON_TESTS_TINY_H

#include "svc/svc.h"

extern const struct svc_def tiny_svc;

/* Workers wait in front of the closed gate: how a test fills the queue to the brim. */
void tiny_gate(struct svc *s, bool open);

#endif
