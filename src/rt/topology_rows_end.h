/* Ends what topology_rows.h began. */
#undef TASK
#undef QUEUE
#undef LOCK
#undef TIMEOUT
