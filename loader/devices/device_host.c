/* The machine's memory as a device: what the machine has, or what the control groups of this process leave of it. Memory of the device
 * is charged to the group of the loader that made it. */
#include "devices.h"
#include "memory_limit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static int read_memory(uint64_t *ret_total, uint64_t *ret_available, struct error *error)
{
	FILE *file = fopen("/proc/meminfo", "re");
	uint64_t kib, limit;
	char line[256];

	*ret_total = *ret_available = 0;
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1)
			*ret_total = KIB(kib);
		else if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			*ret_available = KIB(kib);
	}
	if (file)
		fclose(file);
	if (!*ret_total)
		return error_set(error, -EIO, NULL, "/proc/meminfo does not tell the machine's memory");
	limit = memory_limit("");
	if (*ret_total > limit)
		*ret_total = limit;
	if (*ret_available > limit)
		*ret_available = limit;
	return 0;
}

static int device_host_total(const char *id, uint64_t *ret_bytes, struct error *error)
{
	uint64_t available;

	(void)id;
	return read_memory(ret_bytes, &available, error);
}

static int device_host_list(struct device_list *list, struct error *error)
{
	uint64_t bytes, available;
	int r = read_memory(&bytes, &available, error);

	if (r < 0)
		return r;
	return device_list_add(list,
			       &(struct device){
				       .id = DEVICE_HOST,
				       .kind = &kind_host,
				       .name = "host memory",
				       .total = bytes,
				       .free = available,
				       .free_known = true,
				       .granularity = (uint64_t)sysconf(_SC_PAGESIZE),
			       },
			       error);
}

const struct device_kind device_host = {
	.kind = &kind_host,
	.list = device_host_list,
	.total = device_host_total,
};
