#include "sharing.h"
#include "../jobs/job_load.h"
#include "../../config/config.h"
#include "versions.h"
#include "../../../proto/wire/messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- which version may be shared ---- */

/* "section [model.3]". */
static void name_section(const struct rules *rules, int position, char text[40])
{
	if (position == RULE_NONE)
		snprintf(text, 40, "no section");
	else
		snprintf(text, 40, "section [model.%u]", rules->list[position]->number);
}

static int check_rules(const struct rules *rules, const char *resident, const char *model, struct error *error)
{
	int a = rules_match(rules, resident), b = rules_match(rules, model);
	char first[40], second[40];

	if (a == b)
		return 0;
	name_section(rules, a, first);
	name_section(rules, b, second);
	return error_set(
		error, -EACCES, "whoever may attach to one of them could write to what the other reads",
		"%s has other rules than %s: %s counts for it, not %s", resident, model, first, second);
}

int sharing_check(const struct work *work, const struct version *resident, const char *model,
		  struct device *const *devices, size_t device_count, struct error *error)
{
	const char *shared = model_name(resident->model);
	int r;

	if (resident->state != VERSION_READY)
		return error_set(error, -EINVAL, "only a version that is ready can be shared", "%s@%s is %s",
				 shared, resident->tag, version_state_name(resident->state));
	if (!version_is_resident(resident) || !tier_is_resident(resident->moving_to))
		return error_set(error, -EINVAL, "promote it first", "%s@%s lies on %s, or is on its way there",
				 shared, resident->tag, tier_name(resident->moving_to));
	r = version_check_sound(resident, error);
	if (r == 0 && !resident->by_operator)
		r = error_set(
			error, -EACCES, "share a version that an operator loaded",
			"%s@%s was published by uid %u, and whoever made its memory may still write to it",
			shared, resident->tag, (unsigned)resident->owner);
	if (r == 0)
		r = check_rules(&work->config->rules, shared, model, error);
	for (size_t i = 0; r == 0 && i < device_count; i++) {
		if (!version_is_on(resident, devices[i]))
			r = error_set(error, -ENODEV, "share a version that is on each device of the load",
				      "%s@%s is not on %s", shared, resident->tag, devices[i]->id);
	}
	return r;
}

bool sharing_may(const struct work *work, const struct version *resident, const struct version *version)
{
	return check_rules(&work->config->rules, model_name(resident->model), model_name(version->model),
			   NULL) == 0;
}

void sharing_begin(struct load_job *load, struct version *resident)
{
	load->shares = resident;
	resident->readers++;
}

void sharing_end(struct work *work, struct load_job *load)
{
	struct version *resident = load->shares;

	if (!resident)
		return;
	load->shares = NULL;
	resident->readers--;
	versions_free_unused(work, resident);
}

/* ---- what is shared ---- */

struct version *sharing_of(const struct job *job)
{
	const struct load_job *load = load_job_of(job);

	return load ? load->shares : NULL;
}

int sharing_part(const struct job *job, uint64_t rank, const char *device, const struct replica **ret,
		 struct error *error)
{
	const struct version *resident = sharing_of(job);

	if (!resident)
		return error_set(error, -EINVAL, NULL, "job %llu shares no version",
				 (unsigned long long)job->id);
	for (uint32_t i = 0; i < resident->replica_count; i++) {
		const struct replica *replica = &resident->replicas[i];

		if (replica->rank == rank && strcmp(replica->device->id, device) == 0) {
			*ret = replica;
			return 0;
		}
	}
	return error_set(error, -ENODEV, NULL, "rank %llu of %s@%s is not on %s", (unsigned long long)rank,
			 model_name(resident->model), resident->tag, device);
}

static bool is_taken(const struct publish_checked *checked, const struct segment *segment)
{
	for (uint32_t i = 0; i < checked->part.segment_count; i++) {
		if (checked->resident[i] == segment)
			return true;
	}
	return false;
}

static int take_pair(const struct replica *part, const struct segment_shared *pair,
		     struct publish_checked *checked, struct error *error)
{
	struct segment *segment;

	if (pair->segment >= checked->part.segment_count || pair->resident >= part->segment_count)
		return error_set(error, -EBADMSG, NULL,
				 "segment %llu of %u can't be segment %llu of the %u that are resident",
				 (unsigned long long)pair->segment, checked->part.segment_count,
				 (unsigned long long)pair->resident, part->segment_count);
	segment = part->segments[pair->resident].segment;
	if (checked->resident[pair->segment] || is_taken(checked, segment))
		return error_set(error, -EBADMSG, NULL, "segment %u or resident segment %u is there twice",
				 (unsigned)pair->segment, (unsigned)pair->resident);
	checked->resident[pair->segment] = segment;
	return 0;
}

int sharing_take(const struct work *work, const struct job *job, const struct replica *part,
		 const struct sharing_pairs *pairs, struct publish_checked *checked, struct error *error)
{
	const struct version *resident = sharing_of(job);
	int r = version_check_sound(resident, error);

	if (r == 0)
		r = check_rules(&work->config->rules, model_name(resident->model), job->model, error);
	for (uint32_t i = 0; r == 0 && i < pairs->count; i++)
		r = take_pair(part, &pairs->list[i], checked, error);
	return r;
}

/* ---- damage ---- */

/* except: the version that is tainted by now; NULL: none is. */
static void taint_holders(struct work *work, struct segment *segment, const struct version *except,
			  const struct error *why)
{
	segment->damaged = true;
	work_later(work, LATER_HOST_COPIES);
	for (const struct segment_hold *hold = segment->holds; hold; hold = hold->next) {
		const enum version_state state = hold->version->state;
		const bool is_tainted = except && except == hold->version;

		/* A damaged host copy goes, and its version is sound. */
		if (!is_tainted && !hold->spare && (state == VERSION_READY || state == VERSION_RETIRING))
			versions_taint(work, hold->version, segment_hold_part(hold), why);
	}
}

void sharing_damn_copy(struct work *work, const struct replica *replica, uint32_t position,
		       const struct error *found)
{
	taint_holders(work, replica->spares[position].segment, NULL, found);
}

void sharing_taint(struct work *work, const struct version *version, const struct replica *replica,
		   uint32_t position, const struct error *found)
{
	struct error why;

	error_set(&why, found->code, found->detail,
		  "segment %u, which it shares with %s@%s, is damaged: %.700s", position,
		  model_name(version->model), version->tag, found->message);
	taint_holders(work, replica->segments[position].segment, version, &why);
}

void sharing_taint_twin(struct work *work, const char *name, struct segment *segment, const struct error *found)
{
	struct error why;

	error_set(&why, -EBADMSG, NULL, "found by the move of %s: %.700s", name, found->message);
	taint_holders(work, segment, NULL, &why);
}

int sharing_check_segments(const struct version *version, struct error *error)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *replica = &version->replicas[i];

		for (uint32_t k = 0; k < replica->segment_count; k++) {
			if (replica->segments[k].segment->damaged)
				return error_set(error, -EBADMSG, "load it again without sharing",
						 "segment %u of rank %u on %s, which it shares, is damaged", k,
						 replica->rank, replica->device->id);
		}
	}
	return 0;
}
