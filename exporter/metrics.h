/* /metrics: a snapshot in Prometheus' text format, group by group. */
#ifndef GPUWM_EXPORTER_METRICS_H
#define GPUWM_EXPORTER_METRICS_H

#include "snapshot.h"

#include <stdio.h>

/* Returns the text, which the caller frees. NULL: out of memory. */
char *metrics_make(const struct snapshot *snapshot, size_t *ret_bytes);

/* A group of metrics. It writes nothing of what gpuwmd did not answer. */
typedef void metrics_part(FILE *out, const struct snapshot *snapshot);

metrics_part metrics_server; /* gpuwmd itself: `status` */
metrics_part metrics_devices;
metrics_part metrics_versions; /* `list`, and the leases of `clients` */
metrics_part metrics_users; /* quotas and fairness */
metrics_part metrics_jobs;
metrics_part metrics_regions;
metrics_part metrics_counted; /* counters, refusals and histograms of `metrics` */
metrics_part metrics_exporter; /* the exporter itself; also when gpuwmd is away */

#endif
