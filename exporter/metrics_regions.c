/* Metrics of regions. */

#include "limits.h"
#include "snapshot.h"
#include "prom.h"

static const struct fold_family families[] = {
	{"gpuwm_region_bytes", PROM_GAUGE, "Memory of the region; regions without a name are one row.", false},
	{"gpuwm_region_used_bytes", PROM_GAUGE, "Those of gpuwm_region_bytes that are in use.", false},
	{"gpuwm_region_processes", PROM_GAUGE, "Processes that use the region.", false},
	{"gpuwm_region_waiting", PROM_GAUGE, "Requests that wait for the region's scratch memory.", false},
};

void metrics_regions(FILE *out, const struct snapshot *snapshot)
{
	static const char *const labels[] = {"region", "kind", "device"};
	const json_t *regions = json_object_get(snapshot->answers[ASK_REGIONS], "regions"), *region;
	struct fold fold = {0};
	size_t i;

	json_array_foreach(regions, i, region)
		fold_add(&fold,
			 &(struct fold_row){.labels = {member_text(region, "name"), member_text(region, "kind"),
						       member_text(region, "device")},
					    .values = {member_number(region, "bytes"),
						       member_number(region, "bytes_used"),
						       json_array_size(json_object_get(region, "users")),
						       member_number(region, "waiting")}});
	fold_end(&fold, REGION_ROWS_MAX, 1);
	fold_write(out, &fold, labels, families, sizeof(families) / sizeof(*families));
	fold_clear(&fold);
}
