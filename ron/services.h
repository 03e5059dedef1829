/*
 * The services this program holds, in the order they are started; they are drained in the reverse order, so that the
 * ledger is there until the last of its callers has finished.
 */
#ifndef RON_SERVICES_H
#define RON_SERVICES_H

#include <stddef.h>

#include "svc/svc.h"

#define SERVICE(name) extern const struct svc_def name##_svc;
#include "ron/services.def"
#undef SERVICE

extern const struct svc_def *const ron_services[];
extern const size_t ron_service_count;

const struct svc_def *ron_service_find(const char *name); /* NULL: no such service */
const char *ron_service_names(void);                      /* "ledger, wallet, ..." */

#endif
