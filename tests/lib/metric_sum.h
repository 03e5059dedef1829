/* What a page of metrics says: the sum of the series of that name whose labels contain `labels` ("" for all). */
#ifndef RON_TESTS_METRIC_SUM_H
#define RON_TESTS_METRIC_SUM_H

double metric_sum(const char *page, const char *name, const char *labels);

#endif
