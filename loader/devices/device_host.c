/* The machine's memory as a device: what the machine has, or what the control groups of this process leave of it. Memory of the device
 * is charged to the group of the loader that made it. */
#include "devices.h"
#include "memory_limit.h"

#include <unistd.h>

static int device_host_total(const char *id, uint64_t *ret_bytes, struct error *error)
{
	uint64_t available;

	(void)id;
	return memory_of_host("", ret_bytes, &available, error);
}

static int device_host_list(struct device_list *list, struct error *error)
{
	uint64_t bytes, available;
	int r = memory_of_host("", &bytes, &available, error);

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
