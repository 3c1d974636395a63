#include "job_load.h"
#include "../../ledger/device.h"
#include "../tiers/tiers.h"
#include "../tiers/room.h"
#include "../work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Together they are what the one device gets. */
static bool has_right_parts(const struct plan_params *params)
{
	uint64_t left;

	if (params->parts.count == 0)
		return true;
	if (params->devices.count != 1)
		return false;
	left = params->devices.items[0].bytes;
	for (uint32_t i = 0; i < params->parts.count; i++) {
		if (params->parts.items[i] > left)
			return false;
		left -= params->parts.items[i];
	}
	return left == 0;
}

int job_plan_take(struct load_job *load, const struct plan_params *params, struct error *error)
{
	const struct job *job = &load->job;
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
	if (!has_right_parts(params))
		return error_set(error, -EINVAL, NULL,
				 "the parts of the plan are not what its one device gets");
	plan = calloc(1, sizeof(*plan) + count * sizeof(plan->devices[0]));
	if (!plan)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	*plan = (struct job_plan){
		.tensors = params->tensors,
		.files = params->files,
		.bytes = params->bytes,
		.cached = params->cached,
		.device_count = count,
		.part_count = params->parts.count,
	};
	for (uint32_t i = 0; i < plan->part_count; i++)
		plan->parts[i] = params->parts.items[i];
	for (uint32_t i = 0; i < count; i++) {
		const struct plan_device *device = &params->devices.items[i];

		plan->devices[i] = (struct job_plan_device){job->devices[i], device->bytes, device->segments};
	}
	load->plan = plan;
	return 0;
}

/* What is found out about one part after the other, in the order in which a load asks for their memory: what is demoted for one part
 * frees room for the others too. */
struct foresight {
	const struct work *work;
	const struct load_job *load;
	struct eviction_plan plans[PARTS_PER_VERSION_MAX]; /* for each part, what would leave for it */
	struct eviction_before before; /* the first ones of them */
};

static bool is_host(const struct device *device)
{
	return strcmp(device->id, DEVICE_HOST) == 0;
}

/* Whether gpuwmd would grant the load so many bytes in all, perhaps once the versions of *ret have left the device. */
static bool grants(const struct foresight *foresight, const struct device *device, uint64_t bytes,
		   struct eviction_plan *ret, struct error *refusal)
{
	const struct tiers_need need = {
		.device = device,
		.bytes = bytes + (is_host(device) ? eviction_host_taken(&foresight->before) : 0),
		.who = {.uid = foresight->load->job.uid, .by_operator = true},
	};
	int r = room_check_load(foresight->work, device, need.bytes, refusal);

	/* Nothing is demoted for a context. */
	if (r == 0 || budget_check_context(device, NULL) == -ENOSPC)
		return r == 0;
	return evictions_foresee(foresight->work, &need, &foresight->before, ret, refusal) == 0;
}

/* Adds what would leave for the next part to the foresight. bytes: of the parts on its device so far, and of this one. */
static bool foresee(struct foresight *foresight, const struct device *device, uint64_t bytes,
		    struct error *refusal)
{
	bool granted = grants(foresight, device, bytes, &foresight->plans[foresight->before.count], refusal);

	foresight->before.count++;
	return granted;
}

/* Looks at all parts on the device. Sets *ret_demoted to the bytes there that demotions give back. */
static bool fits(struct foresight *foresight, const struct job_plan_device *device, uint64_t *ret_demoted,
		 struct error *refusal)
{
	const struct job_plan *plan = foresight->load->plan;
	const struct eviction_plan *last;
	bool granted = true;

	if (plan->part_count == 0)
		granted = foresee(foresight, device->device, device->bytes, refusal);
	for (uint64_t i = 0, bytes = 0; granted && i < plan->part_count; i++) {
		bytes += plan->parts[i];
		granted = foresee(foresight, device->device, bytes, refusal);
	}
	last = &foresight->plans[foresight->before.count - 1];
	*ret_demoted = last->bytes + last->coming;
	if (granted && is_host(device->device))
		foresight->before.host_bytes += device->bytes;
	return granted;
}

static void put_device(struct message_writer *w, struct foresight *foresight,
		       const struct job_plan_device *part)
{
	const struct device *device = part->device;
	struct error refusal;
	uint64_t demoted, coming;
	bool granted = fits(foresight, part, &demoted, &refusal);

	/* What gpuwmd's own jobs, freed versions and demotions give back, besides what the driver or the kernel has free. */
	coming = device->contexts + room_being_freed(foresight->work, device) + demoted;

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
			       .short_of_free = device->free_at_ms &&
						part->bytes + device->context > device->free + coming,
		       });
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

void job_plan_put(struct message_writer *w, const struct work *work, const struct load_job *load)
{
	const struct job_plan *plan = load->plan;
	struct foresight foresight = {.work = work, .load = load};
	size_t demotions = 0;

	foresight.before.plans = foresight.plans;
	message_begin_map(w, "plan");
	record_put(w, &plan_told_record,
		   &(struct plan_told){plan->tensors, plan->files, plan->bytes, plan->cached});
	message_begin_array(w, "devices");
	for (size_t i = 0; i < plan->device_count; i++)
		put_device(w, &foresight, &plan->devices[i]);
	message_end(w);
	for (size_t i = 0; i < plan->device_count; i++) {
		for (size_t k = 0; k < foresight.before.count; k++)
			demotions = put_demotions(w, plan->devices[i].device, &foresight.plans[k], demotions);
	}
	if (demotions > 0)
		message_end(w);
	for (size_t i = 0; i < foresight.before.count; i++)
		free(foresight.plans[i].list);
	message_end(w);
}
