/* Part of metrics_def.h: each row becomes an initialiser of struct obs_metric_def. No guard: included per
 * table. */
#define COUNTER(id, name, help, labels)            {OBS_COUNTER, name, help, labels, NULL},
#define GAUGE(id, name, help, labels)              {OBS_GAUGE, name, help, labels, NULL},
#define HISTOGRAM(id, name, help, labels, buckets) {OBS_HISTOGRAM, name, help, labels, buckets},
#define SUMMARY(id, name, help, labels)            {OBS_SUMMARY, name, help, labels, NULL},
