#include "job_plan.h"
#include "../ledger/device.h"
#include "evictions.h"
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

/* What the driver or the kernel has free, besides what gpuwmd's own jobs, freed versions and demotions give back. */
static bool is_short_of_free(const struct work *work, const struct job_plan_device *part, uint64_t demoted)
{
	const struct device *device = part->device;
	uint64_t coming = device->contexts + room_being_freed(work, device) + demoted;

	return device->free_at_ms && part->bytes + device->context > device->free + coming;
}

/* Whether gpuwmd would grant the load what it needs, perhaps once the versions of *ret have left the device. */
static bool fits(const struct work *work, const struct job *job, const struct job_plan_device *part,
		 struct eviction_plan *ret, struct error *refusal)
{
	const struct tiers_need need = {
		.device = part->device,
		.bytes = part->bytes,
		.who = {.uid = job->uid, .by_operator = true},
	};
	int r = room_check_load(work, part->device, part->bytes, refusal);

	/* Nothing is demoted for a context. */
	if (r == 0 || budget_check_context(part->device, NULL) == -ENOSPC)
		return r == 0;
	return evictions_foresee(work, &need, ret, refusal) == 0;
}

/* Sets *ret_evicted to what would leave the device; the caller frees its list. */
static void put_device(struct message_writer *w, const struct work *work, const struct job *job,
		       const struct job_plan_device *part, struct eviction_plan *ret_evicted)
{
	const struct device *device = part->device;
	struct error refusal;
	bool granted = fits(work, job, part, ret_evicted, &refusal);

	record_put_map(
		w, NULL, &plan_device_told_record,
		&(struct plan_device_told){
			.device = device->id,
			.bytes = part->bytes,
			.segments = part->segments,
			.context = device->context,
			.free = device->free_at_ms ? &device->free : NULL,
			.budget_left = budget_left(device),
			.fits = granted,
			.refusal = granted ? NULL : &refusal,
			.short_of_free = is_short_of_free(work, part, ret_evicted->bytes + ret_evicted->coming),
		});
}

/* One for each device that the version would leave. Returns how many there are now; none opens no array. */
static size_t put_demotions(struct message_writer *w, const struct device *device,
			    const struct eviction_plan *evicted, size_t count)
{
	for (size_t i = 0; i < evicted->count && count < JOB_PLAN_DEMOTIONS_MAX; i++) {
		const struct eviction *eviction = &evicted->list[i];

		if (count++ == 0)
			message_begin_array(w, "demotes");
		record_put_map(w, NULL, &plan_demotion_told_record,
			       &(struct plan_demotion_told){device->id, model_name(eviction->version->model),
							    eviction->version->tag, tier_name(eviction->to),
							    eviction->bytes});
	}
	return count;
}

void job_plan_put(struct message_writer *w, const struct work *work, const struct job *job)
{
	const struct job_plan *plan = job->plan;
	struct eviction_plan evicted[PARTS_PER_VERSION_MAX] = {0};
	size_t demotions = 0;

	message_begin_map(w, "plan");
	record_put(w, &plan_told_record,
		   &(struct plan_told){plan->tensors, plan->files, plan->bytes, plan->cached});
	message_begin_array(w, "devices");
	for (size_t i = 0; i < plan->device_count; i++)
		put_device(w, work, job, &plan->devices[i], &evicted[i]);
	message_end(w);
	for (size_t i = 0; i < plan->device_count; i++) {
		demotions = put_demotions(w, plan->devices[i].device, &evicted[i], demotions);
		free(evicted[i].list);
	}
	if (demotions > 0)
		message_end(w);
	message_end(w);
}
