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

/* What is found out about one device after the other, in the order in which a load asks for their memory: what is demoted for one
 * device frees room on the others too. */
struct foresight {
	const struct work *work;
	const struct job *job;
	struct eviction_plan plans[PARTS_PER_VERSION_MAX]; /* for each device, what would leave for it */
	struct eviction_before before; /* the first ones of them */
};

static bool is_host(const struct device *device)
{
	return strcmp(device->id, DEVICE_HOST) == 0;
}

/* Whether gpuwmd would grant the load what it needs, perhaps once the versions of *ret have left the device. */
static bool fits(const struct foresight *foresight, const struct job_plan_device *part,
		 struct eviction_plan *ret, struct error *refusal)
{
	const struct tiers_need need = {
		.device = part->device,
		.bytes = part->bytes + (is_host(part->device) ? eviction_host_taken(&foresight->before) : 0),
		.who = {.uid = foresight->job->uid, .by_operator = true},
	};
	int r = room_check_load(foresight->work, part->device, need.bytes, refusal);

	/* Nothing is demoted for a context. */
	if (r == 0 || budget_check_context(part->device, NULL) == -ENOSPC)
		return r == 0;
	return evictions_foresee(foresight->work, &need, &foresight->before, ret, refusal) == 0;
}

static void put_device(struct message_writer *w, struct foresight *foresight,
		       const struct job_plan_device *part)
{
	struct eviction_plan *evicted = &foresight->plans[foresight->before.count];
	const struct device *device = part->device;
	struct error refusal;
	bool granted = fits(foresight, part, evicted, &refusal);

	record_put_map(w, NULL, &plan_device_told_record,
		       &(struct plan_device_told){
			       .device = device->id,
			       .bytes = part->bytes,
			       .segments = part->segments,
			       .context = device->context,
			       .free = device->free_at_ms ? &device->free : NULL,
			       .budget_left = budget_left(device),
			       .fits = granted,
			       .refusal = granted ? NULL : &refusal,
			       .short_of_free = is_short_of_free(foresight->work, part,
								 evicted->bytes + evicted->coming),
		       });
	foresight->before.count++;
	if (granted && is_host(device))
		foresight->before.host_bytes += part->bytes;
}

/* One for each of the load's devices that the version would leave. Returns how many there are now; none opens no array. */
static size_t put_demotions(struct message_writer *w, const struct device *device,
			    const struct eviction_plan *evicted, size_t count)
{
	for (size_t i = 0; i < evicted->count && count < JOB_PLAN_DEMOTIONS_MAX; i++) {
		const struct eviction *eviction = &evicted->list[i];
		const struct version *version = eviction->version;
		const uint64_t bytes = eviction_bytes(version, device);

		if (bytes == 0)
			continue;
		if (count++ == 0)
			message_begin_array(w, "demotes");
		record_put_map(w, NULL, &plan_demotion_told_record,
			       &(struct plan_demotion_told){device->id, model_name(version->model),
							    version->tag, tier_name(eviction->to), bytes});
	}
	return count;
}

static void put_all_demotions(struct message_writer *w, const struct job_plan *plan,
			      const struct foresight *foresight)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->device_count; i++) {
		for (size_t j = 0; j < plan->device_count; j++)
			count = put_demotions(w, plan->devices[i].device, &foresight->plans[j], count);
	}
	if (count > 0)
		message_end(w);
}

void job_plan_put(struct message_writer *w, const struct work *work, const struct job *job)
{
	const struct job_plan *plan = job->plan;
	struct foresight foresight = {.work = work, .job = job};

	foresight.before.plans = foresight.plans;
	message_begin_map(w, "plan");
	record_put(w, &plan_told_record,
		   &(struct plan_told){plan->tensors, plan->files, plan->bytes, plan->cached});
	message_begin_array(w, "devices");
	for (size_t i = 0; i < plan->device_count; i++)
		put_device(w, &foresight, &plan->devices[i]);
	message_end(w);
	put_all_demotions(w, plan, &foresight);
	for (size_t i = 0; i < plan->device_count; i++)
		free(foresight.plans[i].list);
	message_end(w);
}
