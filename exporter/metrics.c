#include "snapshot.h"

#include "prom.h"

#include <stdlib.h>

static metrics_part *const parts[] = {
	metrics_exporter, metrics_server, metrics_devices, metrics_versions,
	metrics_users,    metrics_jobs,   metrics_regions, metrics_counted,
};

char *metrics_make(const struct snapshot *snapshot, size_t *ret_bytes)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_bytes);
	int failed;

	if (!out)
		return NULL;
	if (!snapshot->up)
		prom_comment(out, snapshot->why);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		parts[i](out, snapshot);
	failed = ferror(out);
	if (fclose(out) == 0 && !failed)
		return text;
	free(text);
	return NULL;
}
