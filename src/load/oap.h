/*
 * OAP as a load needs it: one frame a request, one frame an answer, the slot as correlation id.
 *
 * Threads     Pure.
 */
#ifndef RON_LOAD_OAP_H
#define RON_LOAD_OAP_H

#include "load/mill.h"

/* token NULL: the connection has shown it already. */
void load_oap_put(struct buf *out, unsigned app, unsigned code, unsigned slot, const char *token,
                  struct bytes payload);
enum err load_oap_parse(struct bytes in, struct load_answer *out); /* for struct load_wire, by_slot */

#endif
