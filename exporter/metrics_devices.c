/* Metrics of devices. */

#include "limits.h"
#include "snapshot.h"
#include "prom.h"

static const struct {
	const char *name, *help, *key;
} figures[] = {
	{"gpuwm_device_total_bytes", "Memory of the device.", "total"},
	{"gpuwm_device_free_bytes", "Free memory of the device, as the last loader saw it.", "free"},
	{"gpuwm_device_budget_bytes", "What gpuwmd may give out of the device.", "budget"},
	{"gpuwm_device_used_bytes",
	 "What gpuwmd has promised of the budget, with contexts and with memory that is still mapped.", "used"},
	{"gpuwm_device_contexts_bytes", "What is promised to the CUDA contexts of loaders.", "contexts"},
	{"gpuwm_device_room_bytes", "What awake workers take on the device besides versions, as they said.",
	 "rooms"},
	{"gpuwm_device_still_mapped_bytes",
	 "Memory of freed versions that holders of revoked leases may still map.", "still_mapped"},
};

static void states_write(FILE *out, const json_t *devices)
{
	const json_t *device;
	size_t i;

	prom_family(out, "gpuwm_device_info", PROM_GAUGE, "The kind and the name of the device.");
	json_array_foreach(devices, i, device) {
		if (i < DEVICE_ROWS_MAX)
			prom_u64(out, "gpuwm_device_info", 1, "device", member_text(device, "device"), "kind",
				 member_text(device, "kind"), "name", member_text(device, "name"), PROM_END);
	}
	prom_family(out, "gpuwm_device_lost", PROM_GAUGE, "1 if the GPU is lost.");
	json_array_foreach(devices, i, device) {
		if (i < DEVICE_ROWS_MAX)
			prom_u64(out, "gpuwm_device_lost", member_has(device, "lost"), "device",
				 member_text(device, "device"), PROM_END);
	}
}

void metrics_devices(FILE *out, const struct snapshot *snapshot)
{
	const json_t *devices = json_object_get(snapshot->answers[ASK_STATUS], "devices"), *device;
	size_t i;

	if (json_array_size(devices) == 0)
		return;
	states_write(out, devices);
	for (size_t k = 0; k < sizeof(figures) / sizeof(*figures); k++) {
		prom_family(out, figures[k].name, PROM_GAUGE, figures[k].help);
		json_array_foreach(devices, i, device) {
			if (i < DEVICE_ROWS_MAX && member_has(device, figures[k].key))
				prom_u64(out, figures[k].name, member_number(device, figures[k].key), "device",
					 member_text(device, "device"), PROM_END);
		}
	}
}
