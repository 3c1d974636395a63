#include "load_internal.h"

#include "../service/log.h"
#include "jobs.h"
#include "files/source.h"

#include "../client/lib/publish/publish.h"
#include "../proto/wire/reference.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int load_library_failed(struct load *load, int code)
{
	const struct gpuwm_error *failed = gpuwm_error();

	return error_set(load->error, code, failed->detail, "%s", failed->message);
}

static int open_source(struct load *load)
{
	const struct job_load_params *params = load->params;
	struct roots roots = *load->roots;
	int r = work_phase(load->work, "opening", 0);

	if (r == 0 && load->files >= 0) {
		r = handed_receive(load->files, params->wish.source, load->work, &load->handed, load->error);
		roots.handed = &load->handed;
	}
	if (r == 0)
		r = source_open(params->wish.source, &params->wish.choice, &roots, &load->source, load->error);
	if (r == 0)
		r = source_read_extras(&load->source, &roots, load->error);
	handed_close(&load->handed);
	for (size_t i = 0; r == 0 && i < SOURCE_NOTES_MAX && load->source.notes[i][0]; i++) {
		log_plain("note: %s", load->source.notes[i]);
		work_note(load->work, "%s", load->source.notes[i]);
	}
	for (size_t i = 0; r == 0 && i < SOURCE_LEFT_MAX && load->source.left[i][0]; i++)
		work_note(load->work, "%s", load->source.left[i]);
	return r < 0 ? r : prepare_buffers(load->prepare, load->source.bytes, load->error);
}

/* Plans the parts: replicas of one rank on every device, or one rank on each device in their order,
 * or all ranks on one device. */
static int plan_parts(struct load *load)
{
	const struct job_load_params *params = load->params;
	uint32_t world;
	bool apart;
	int r = work_phase(load->work, "planning", 0);

	if (r == 0)
		r = load_make_ranks(load);
	if (r < 0)
		return r;
	world = load->world;
	apart = world > 1 || params->wish.choice.cut;
	if (apart && params->wish.devices.count != 1 && params->wish.devices.count != world)
		return error_set(load->error, -EINVAL, "name one device for each rank, or one for all of them",
				 params->wish.choice.cut
					 ? "%s is to be cut into %u ranks, but %u devices are named"
					 : "%s has files for %u ranks, but %u devices are named",
				 params->wish.source, world, params->wish.devices.count);
	load->part_count = apart ? world : params->wish.devices.count;
	for (size_t i = 0; i < load->part_count; i++)
		load->parts[i] = (struct load_part){
			.device = params->wish.devices.items[params->wish.devices.count == 1 ? 0 : i],
			.rank = apart ? (uint32_t)i : 0,
		};
	return 0;
}

static int add_files(struct load *load, const struct load_part *part)
{
	const struct source *source = &load->source;
	int r = 0;

	for (size_t i = 0; r == 0 && i < source->extra_count; i++)
		r = gpuwm_publish_file(part->publish, source->extras[i].name, source->extras[i].data,
				       source->extras[i].bytes);
	return r < 0 ? load_library_failed(load, r) : 0;
}

static int begin_part(struct load *load, struct load_part *part)
{
	const struct job_load_params *params = load->params;
	struct gpuwm_key_field key[KEY_FIELDS_MAX];
	const struct source_rank *rank = rank_of(load, part);
	bool first = part == load->parts;
	char name[2 * NAME_BYTES_MAX + 2];
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	uint64_t bytes;
	int r;

	snprintf(name, sizeof(name), "%s@%s", params->model, params->tag);
	options.name = name;
	options.device = part->device;
	options.rank = part->rank;
	options.world = load->world;
	options.join = first ? NULL : gpuwm_publish_id(load->parts[0].publish);
	options.alias = first ? params->wish.alias : NULL;
	for (uint32_t i = 0; i < params->wish.key.count; i++)
		key[i] = (struct gpuwm_key_field){params->wish.key.items[i].name,
						  params->wish.key.items[i].value};
	options.segment_bytes = params->wish.segment_bytes ? *params->wish.segment_bytes : 0;
	options.key = key;
	options.key_count = params->wish.key.count;
	r = publish_begin_bare(load->client, &options, load->specs + rank->tensor, rank->tensor_count,
			       &part->publish);
	if (r < 0)
		return load_library_failed(load, r);
	r = load_add_texts(load, part);
	if (r == 0)
		r = add_files(load, part);
	if (r < 0)
		return r;
	part->addresses = calloc(rank->tensor_count + 1, sizeof(*part->addresses));
	if (!part->addresses)
		return error_set(load->error, -ENOMEM, NULL, "no room to load %zu tensors",
				 load->source.tensor_count);
	for (size_t i = 0; r == 0 && i < rank->tensor_count; i++)
		r = gpuwm_publish_memory(part->publish, i, &part->addresses[i], &bytes);
	return r < 0 ? load_library_failed(load, r) : 0;
}

int load_begin_all(struct load *load)
{
	int r = work_phase(load->work, "allocating", 0);

	for (size_t i = 0; r == 0 && i < load->part_count; i++) {
		r = begin_part(load, &load->parts[i]);
		if (r == 0)
			r = work_advance(0, load->work);
	}
	return r;
}

/* ---- handing in ---------------------------------------------------------- */

/* `part` gets the list of its descriptors. */
static struct check_part part_of(const struct load *load, const struct load_part *of, struct part *part)
{
	publish_part_list(of->sealed, part);
	if (of->share)
		share_list(of->share, part);
	return (struct check_part){
		.device = of->device,
		.rank = of->rank,
		.world = load->world,
		.bytes_max = UINT64_MAX,
		.part = part,
	};
}

/* What lies on GPUs is read again: if the load shares, once it has compared. */
static int begin_checking(struct load *load)
{
	return work_phase(load->work, "checking", load->bytes * load->part_count / load->world);
}

static int seal_all(struct load *load)
{
	int r = load->params->wish.share_with ? work_phase(load->work, "sealing", 0) : begin_checking(load);

	for (size_t i = 0; r == 0 && i < load->part_count; i++) {
		struct load_part *part = &load->parts[i];

		r = publish_seal(part->publish, work_advance, load->work, &part->sealed, load->error);
	}
	return r;
}

static int share_all(struct load *load)
{
	int r = 0;

	if (!load->params->wish.share_with)
		return 0;
	for (size_t i = 0; r == 0 && i < load->part_count; i++) {
		struct load_part *part = &load->parts[i];
		const struct source_rank *rank = rank_of(load, part);
		const struct share_part of = {
			.device = part->device,
			.rank = part->rank,
			.publish = part->publish,
			.sealed = part->sealed,
			.specs = load->specs + rank->tensor,
			.digests = load->digests + rank->tensor,
			.tensor_count = rank->tensor_count,
		};

		r = share_run(load->work, load->params->wish.share_with, &of, &part->share, load->error);
	}
	return r < 0 ? r : begin_checking(load);
}

/* On a GPU a kernel digests what arrived there. On host nobody wrote into the memory after the digest: this CPU
 * digested the very bytes that it wrote. What is shared is checked too: it is what the version has. */
static int verify_all(struct load *load)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < load->part_count; i++) {
		const struct load_part *part = &load->parts[i];
		struct part list;
		struct check_result result;
		struct check_part checked;

		if (publish_device(part->publish)->ops->cpu_addresses)
			continue;
		checked = part_of(load, part, &list);
		r = check_part(&checked, work_advance, load->work, &result, load->error);
		if (r == 0 && result.report.note[0])
			work_note(load->work, "%s", result.report.note);
		if (r == -EBADMSG) {
			struct error inner = *load->error;

			error_set(load->error, -EBADMSG,
				  "load it again; where that fails too, suspect the device, or the way to it",
				  "the bytes that arrived on %s are not those that were read: %s", part->device,
				  inner.message);
		}
	}
	return r;
}

static int hand_in_all(struct load *load)
{
	struct part list;
	int r = work_phase(load->work, "handing in", 0);

	for (size_t i = 0; r == 0 && i < load->part_count; i++) {
		const struct load_part *part = &load->parts[i];
		struct check_part checked = part_of(load, part, &list);
		struct check_result result = {
			.layout = part->sealed->layout,
			.content = part->sealed->content,
			.tensors = part->sealed->tensors,
		};

		r = report_checked(load->work, publish_number(part->publish), &checked, &result, part->share,
				   load->error);
	}
	return r;
}

static void load_clear(struct load *load)
{
	for (size_t i = 0; i < load->part_count; i++) {
		free(load->parts[i].addresses);
		share_free(load->parts[i].share);
		publish_free(load->parts[i].publish);
	}
	load_clear_ranks(load);
	source_close(&load->source);
}

/* ---- a dry run ----------------------------------------------------------- */

/* Computes what the part's segments take. */
static int size_part(struct load *load, const struct load_part *part, struct load_plan *ret)
{
	const struct source_rank *rank = rank_of(load, part);
	const uint64_t wanted = load->params->wish.segment_bytes ? *load->params->wish.segment_bytes : 0;
	struct memory_device device;
	uint64_t granularity;
	struct plan plan;
	int r = memory_device_open(part->device, &device, load->error);

	if (r == 0)
		r = device.ops->granularity(&device, &granularity, load->error);
	if (r == 0)
		r = plan_make(load->specs + rank->tensor, rank->tensor_count,
			      &(struct plan_policy){granularity, TENSOR_ALIGN,
						    wanted ? wanted : SEGMENT_BYTES_TARGET, wanted > 0},
			      &plan, load->error);
	if (r < 0)
		return r;
	load_plan_add(ret, plan.total, plan.segment_count);
	plan_clear(&plan);
	return 0;
}

/* The files that tensors come from. */
static size_t files_read(const struct source *source)
{
	size_t count = 0;

	for (size_t i = 0; i < source->tensor_count; i++)
		count += i == 0 || source->tensors[i].file != source->tensors[i - 1].file;
	return count;
}

static int size_all(struct load *load)
{
	struct load_plan plan;
	int r = 0;

	load_plan_begin(&plan, load->params);
	plan.told.tensors = load->source.tensor_count;
	plan.told.files = files_read(&load->source);
	plan.told.bytes = load->source.bytes;
	for (size_t i = 0; r == 0 && i < load->part_count; i++)
		r = size_part(load, &load->parts[i], &plan);
	if (r == 0)
		r = work_phase(load->work, "looking at the cache", 0);
	if (r < 0)
		return r;
	r = residency_of(&load->source, work_advance, load->work, &plan.told.cached, load->error);
	/* If a file system can't tell what is cached, that is not an error. */
	if (r == -EOPNOTSUPP)
		work_note(load->work, "%s", load->error->message);
	else if (r != 0)
		return r;
	return load_plan_end(&plan, load->work, load->error);
}

/* ---- the order ----------------------------------------------------------- */

int load_run(const struct job_load_params *params, const struct roots *roots, int files, struct work *work,
	     struct error *error)
{
	static int (*const dry_run[])(struct load *) = {open_source, plan_parts, size_all, NULL};
	static int (*const all[])(struct load *) = {open_source, plan_parts, load_copy_all, seal_all,
						    share_all,   verify_all, hand_in_all,   NULL};
	struct load *load = calloc(1, sizeof(*load));
	int r = 0;

	if (!load)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	load->params = params;
	load->roots = roots;
	load->files = files;
	load->work = work;
	load->prepare = params->wish.dry_run ? NULL : work->prepare;
	load->client = work->client;
	load->error = error;
	for (int (*const *step)(struct load *) = params->wish.dry_run ? dry_run : all; r == 0 && *step; step++)
		r = (*step)(load);
	load_clear(load);
	free(load);
	return r;
}
