/* Part of metrics_def.h: each row becomes OBS_DEF(id), which the including file defines. No guard: included
 * per table. */
#define COUNTER(id, name, help, labels)            OBS_DEF(id)
#define GAUGE(id, name, help, labels)              OBS_DEF(id)
#define HISTOGRAM(id, name, help, labels, buckets) OBS_DEF(id)
#define SUMMARY(id, name, help, labels)            OBS_DEF(id)
