/*
 * Turns a metrics.def into an enum and a table:
 *
 *     enum ledger_metric {
 *     #define OBS_DEF(id) LEDGER_M_##id,
 *     #include "obs/metrics_ids.h"
 *     #include "services/ledger/metrics.def"
 *     #include "obs/metrics_end.h"
 *         LEDGER_M_COUNT
 *     };
 *
 *     static const struct obs_metric_def table[] = {
 *     #include "obs/metrics_rows.h"
 *     #include "services/ledger/metrics.def"
 *     #include "obs/metrics_end.h"
 *     };
 *
 * obs_metrics_add(reg, table, LEDGER_M_COUNT, families) then gives families[LEDGER_M_units].
 */
#ifndef RON_OBS_METRICS_DEF_H
#define RON_OBS_METRICS_DEF_H

#include "obs/metrics.h"

#endif
