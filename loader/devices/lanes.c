#include "lanes.h"

#include "devices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lanes {
	struct lane *lanes;
	size_t count;
	char note[TEXT_BYTES_MAX + 1];
};

static int write_now(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
		     struct error *error)
{
	const struct memory_device *device = lane->target->device;
	int r = device->ops->enter(device, error);

	(void)slot;
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < count; i++) {
		void *to = lane_place(lane, &spans[i]);

		/* Bytes that were read straight into this memory are there already. */
		if (to != spans[i].from)
			r = device->ops->write(device, to, spans[i].from, spans[i].bytes, error);
	}
	device->ops->leave(device);
	return r;
}

/* Of memory that is written at once. */
static const struct lane_ops at_once = {.send = write_now};

static void lanes_add_note(struct lanes *lanes, const char *device, const char *how, const char *why)
{
	size_t used = strlen(lanes->note);

	snprintf(lanes->note + used, sizeof(lanes->note) - used, "%s%s gets its bytes %s%s", used ? "; " : "",
		 device, how, why);
}

/* Whether the lane before holds the same rank, on a device of the same kind. */
static bool is_replica(const struct lane *before, const struct lane *lane)
{
	return before && before->ops == lane->ops && before->target->rank == lane->target->rank;
}

/* Finds for each replica a device before it that can pass the bytes on. Each link then carries them
 * once each way, so this is as fast over PCIe as over NVLink. */
static void find_peers(struct lanes *lanes)
{
	const struct lane *before = NULL;

	for (size_t i = 0; i < lanes->count; i++) {
		struct lane *lane = &lanes->lanes[i];
		struct error error;

		if (!lane->ops->pass_on)
			continue;
		if (is_replica(before, lane) && lane->ops->pass_on(before, lane, &error) == 0) {
			lane->from = before;
			lanes_add_note(lanes, lane->target->device->id, "over a peer copy from ",
				       before->target->device->id);
		} else if (is_replica(before, lane)) {
			lanes_add_note(lanes, lane->target->device->id, "from the host: ", error.message);
		}
		before = lane;
	}
}

int lanes_open(const struct copy_target *targets, size_t count, size_t slots, struct lanes **ret,
	       struct error *error)
{
	struct lanes *lanes = calloc(1, sizeof(*lanes));
	int r = 0;

	if (lanes)
		lanes->lanes = calloc(count + 1, sizeof(*lanes->lanes));
	if (!lanes || !lanes->lanes) {
		lanes_close(lanes);
		return error_set(error, -ENOMEM, NULL, "out of memory for the way to %zu devices", count);
	}
	for (size_t i = 0; r == 0 && i < count; i++) {
		const struct lane_ops *ops = device_kind_of(targets[i].device->ops->kind)->lanes;
		struct lane *lane = &lanes->lanes[lanes->count++];

		*lane = (struct lane){.target = &targets[i], .ops = ops ? ops : &at_once};
		if (ops)
			r = ops->open(lane, slots, error);
	}
	if (r < 0) {
		lanes_close(lanes);
		return r;
	}
	find_peers(lanes);
	*ret = lanes;
	return 0;
}

int lanes_send_to(struct lanes *lanes, size_t target, size_t slot, const struct lane_span *spans, size_t count,
		  struct error *error)
{
	struct lane *lane = &lanes->lanes[target];

	return lane->ops->send(lane, slot, spans, count, error);
}

int lanes_send(struct lanes *lanes, size_t slot, const struct lane_span *spans, size_t count,
	       struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < lanes->count; i++)
		r = lanes_send_to(lanes, i, slot, spans, count, error);
	return r;
}

int lanes_wait(struct lanes *lanes, size_t slot, struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < lanes->count; i++)
		if (lanes->lanes[i].ops->wait)
			r = lanes->lanes[i].ops->wait(&lanes->lanes[i], slot, error);
	return r;
}

int lanes_drain(struct lanes *lanes, struct error *error)
{
	int r = 0;

	for (size_t i = lanes->count; r == 0 && i > 0; i--)
		if (lanes->lanes[i - 1].ops->drain)
			r = lanes->lanes[i - 1].ops->drain(&lanes->lanes[i - 1], error);
	return r;
}

struct lanes *lanes_close(struct lanes *lanes)
{
	if (!lanes)
		return NULL;
	for (size_t i = 0; i < lanes->count; i++)
		if (lanes->lanes[i].ops->close)
			lanes->lanes[i].ops->close(&lanes->lanes[i]);
	free(lanes->lanes);
	free(lanes);
	return NULL;
}

const char *lanes_note(const struct lanes *lanes)
{
	return lanes->note;
}
