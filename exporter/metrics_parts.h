/* The groups of metrics. Each writes nothing of what gpuwmd did not answer. */
#ifndef GPUWM_EXPORTER_METRICS_PARTS_H
#define GPUWM_EXPORTER_METRICS_PARTS_H

#include "snapshot.h"

#include <stdio.h>

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
