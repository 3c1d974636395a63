/* /metrics: a snapshot in Prometheus' text format. */
#ifndef GPUWM_EXPORTER_METRICS_H
#define GPUWM_EXPORTER_METRICS_H

#include "snapshot.h"

/* Returns the text, which the caller frees. NULL: out of memory. */
char *metrics_make(const struct snapshot *snapshot, size_t *ret_bytes);

#endif
