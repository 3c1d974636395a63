/* The machine's memory as a device. */
#include "device_kind.h"

#include "devices.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static int list(struct device_list *list, struct error *error)
{
	FILE *file = fopen("/proc/meminfo", "re");
	uint64_t total = 0, available = 0, kib;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1)
			total = KIB(kib);
		else if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			available = KIB(kib);
	}
	if (file)
		fclose(file);
	if (!total)
		return error_set(error, -EIO, NULL, "/proc/meminfo does not tell the machine's memory");
	return device_list_add(list,
			       &(struct device){
				       .id = DEVICE_HOST,
				       .kind = &kind_host,
				       .name = "host memory",
				       .total = total,
				       .free = available,
				       .free_known = true,
				       .granularity = (uint64_t)sysconf(_SC_PAGESIZE),
			       },
			       error);
}

const struct device_kind device_host = {.kind = &kind_host, .list = list};
