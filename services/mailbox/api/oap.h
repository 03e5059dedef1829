/* What the files of the OAP door share. */
#ifndef RON_MAILBOX_API_OAP_H
#define RON_MAILBOX_API_OAP_H

#include "services/mailbox/api/call.h"
#include "services/mailbox/core/wire.h"

bool mailbox_oap_visibility_ok(struct mailbox_call *c, uint32_t ms); /* 0 = not given */
/* An envelope as field 1 of a RecvResponse; the first says how much room to have. */
size_t mailbox_oap_envelope_max(struct str topic, const struct mailbox_delivery *d);
uint8_t *mailbox_oap_put_envelope(uint8_t *p, struct str topic, const struct mailbox_delivery *d,
                                  uint16_t shard);
void mailbox_oap_stream(struct mailbox_call *c); /* oap_stream.c */

#endif
