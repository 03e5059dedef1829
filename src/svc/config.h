/*
 * The part of its configuration that a service shares with all others (config.def), and how to declare the rest:
 *
 *     struct ledger_config {
 *     #define CONF CONF_AS_MEMBER
 *     #include "services/ledger/config.def"       its first line: #include "svc/config.def"
 *     #undef CONF
 *     };
 *     SVC_CONFIG_IS_PREFIX(struct ledger_config);
 */
#ifndef RON_SVC_CONFIG_H
#define RON_SVC_CONFIG_H

#include "base/conf.h"

struct svc_config {
#define CONF CONF_AS_MEMBER
#include "svc/config.def"
#undef CONF
};

#define SVC_CONFIG_IS_PREFIX(T)                                                                            \
    _Static_assert(offsetof(T, bind) == offsetof(struct svc_config, bind) &&                               \
                       offsetof(T, otlp_sample) == offsetof(struct svc_config, otlp_sample),               \
                   "config.def begins with svc/config.def")

#endif
