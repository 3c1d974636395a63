#include "peer_way.h"

#include "../../base/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void add_better(struct peer_way *way, const struct wire_ops *ops, const struct error *why)
{
	size_t used = strlen(way->better);

	snprintf(way->better + used, sizeof(way->better) - used, "%snot by %s: %s%s%s", used > 0 ? "; " : "",
		 ops->title, why->message, why->detail[0] ? ": " : "", why->detail);
}

static bool server_has(const struct peer_hello_result *hello, const struct wire_ops *ops)
{
	for (uint32_t i = 0; i < hello->wires.count; i++) {
		if (strcmp(hello->wires.items[i], ops->name) == 0)
			return true;
	}
	return false;
}

/* Returns 0 if the transport may be tried. */
static int judge(const struct wire_ops *ops, const struct peer_hello_result *hello, struct error *error)
{
	int r = ops->here ? ops->here(error) : 0;

	if (r == 0 && !server_has(hello, ops))
		r = error_set(error, -ENOTSUP, NULL, "%.64s has none", hello->node);
	return r;
}

/* Within one GPU UCX copies by the processor: 0.1 GB/s. */
static bool are_two_gpus(const char *device, const struct taken_part *part)
{
	return !part->device.ops->cpu_addresses && strcmp(device, part->device.id) != 0;
}

int peer_way_choose(struct peer_way *way, const struct peer_hello_result *hello, const char *device,
		    const struct taken_part *part, struct error *error)
{
	bool near_gpu = machine_is_this(hello->machine) && are_two_gpus(device, part);
	struct error why;

	/* Reasons of those that were tried stay. */
	if (way->without == 0)
		way->better[0] = '\0';
	way->ops = NULL;
	for (size_t i = 0; wires[i] && !way->ops; i++) {
		if (way->without & 1U << i || (wires[i]->of_one_machine && !near_gpu))
			continue;
		if (judge(wires[i], hello, &why) == 0)
			way->ops = wires[i];
		else if (way->without == 0)
			add_better(way, wires[i], &why);
	}
	return way->ops ? 0
			: error_set(error, -EPROTONOSUPPORT, "update the older one of the two nodes",
				    "%.64s and this node have no way for the bytes in common", hello->node);
}

bool peer_way_next(struct peer_way *way, bool met, const struct error *error)
{
	size_t i = 0;

	if (!way->ops ||
	    (error->code != -ENOTSUP && error->code != -EHOSTUNREACH && (error->code != -ETIMEDOUT || met)))
		return false;
	while (wires[i] != way->ops)
		i++;
	if (!wires[i + 1])
		return false;
	way->without |= 1U << i;
	add_better(way, way->ops, error);
	return true;
}
