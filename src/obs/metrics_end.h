/* Part of metrics_def.h: forgets the row macros, so that the next table can define its own. No guard:
 * included per table. */
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
#undef SUMMARY
#undef OBS_DEF
