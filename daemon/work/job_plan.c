#include "job_plan.h"
#include "../ledger/device.h"
#include "job.h"
#include "room.h"
#include "work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int job_plan_take(const struct job *job, const struct plan_params *params, struct job_plan **ret_plan,
		  struct error *error)
{
	const uint32_t count = params->devices.count;
	struct job_plan *plan;

	if (count != job->device_count)
		return error_set(error, -EINVAL, NULL, "the plan has %u devices, the job %zu", count,
				 job->device_count);
	for (uint32_t i = 0; i < count; i++) {
		if (strcmp(params->devices.items[i].device, job->devices[i]->id) != 0)
			return error_set(error, -EINVAL, NULL, "the plan has the device %s in the place of %s",
					 params->devices.items[i].device, job->devices[i]->id);
	}
	plan = calloc(1, sizeof(*plan) + count * sizeof(plan->devices[0]));
	if (!plan)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	*plan = (struct job_plan){params->tensors, params->files, params->bytes, params->cached, count};
	for (uint32_t i = 0; i < count; i++) {
		const struct plan_device *device = &params->devices.items[i];

		plan->devices[i] = (struct job_plan_device){job->devices[i], device->bytes, device->segments};
	}
	*ret_plan = plan;
	return 0;
}

/* What the driver or the kernel has free, besides what gpuwmd's own jobs and freed versions give back. */
static bool is_short_of_free(const struct work *work, const struct job_plan_device *part)
{
	const struct device *device = part->device;
	uint64_t coming = device->contexts + room_being_freed(work, device);

	return device->free_at_ms && part->bytes + device->context > device->free + coming;
}

static void put_device(struct message_writer *w, const struct work *work, const struct job_plan_device *part)
{
	const struct device *device = part->device;
	struct error refusal;
	bool fits = room_check_load(work, device, part->bytes, &refusal) == 0;

	record_put_map(w, NULL, &plan_device_told_record,
		       &(struct plan_device_told){
			       .device = device->id,
			       .bytes = part->bytes,
			       .segments = part->segments,
			       .context = device->context,
			       .free = device->free_at_ms ? &device->free : NULL,
			       .budget_left = budget_left(device),
			       .fits = fits,
			       .refusal = fits ? NULL : &refusal,
			       .short_of_free = is_short_of_free(work, part),
		       });
}

void job_plan_put(struct message_writer *w, const struct work *work, const struct job_plan *plan)
{
	message_begin_map(w, "plan");
	record_put(w, &plan_told_record,
		   &(struct plan_told){plan->tensors, plan->files, plan->bytes, plan->cached});
	message_begin_array(w, "devices");
	for (size_t i = 0; i < plan->device_count; i++)
		put_device(w, work, &plan->devices[i]);
	message_end(w);
	message_end(w);
}
