#include "load.h"

#include "copy.h"
#include "report.h"

#include "../client/lib/publish.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One device of a load. */
struct replica {
	struct gpuwm_publish *publish;
	void **addresses; /* of each tensor */
	const struct publish_part *part; /* once it is sealed */
};

struct load {
	const struct job *job;
	struct work *work;
	struct gpuwm_client *client;
	struct source source;
	struct gpuwm_tensor_spec *specs;
	struct digest *digests;
	struct replica replicas[PARTS_PER_VERSION_MAX];
	struct error *error;
};

static int no_memory(struct load *load)
{
	return error_set(load->error, -ENOMEM, NULL, "no room to load %zu tensors", load->source.tensor_count);
}

/* The library's error of this thread. */
static int library_failed(struct load *load, int code)
{
	const struct gpuwm_error *failed = gpuwm_error();

	return error_set(load->error, code, failed->detail, "%s", failed->message);
}

static int open_source(struct load *load)
{
	int r = work_phase(load->work, "opening", 0);

	if (r == 0)
		r = source_open(load->job->source, &load->job->roots, &load->source, load->error);
	if (r == 0 && load->source.warning[0])
		fprintf(stderr, "gpuwm-loader: warning: %s\n", load->source.warning);
	return r;
}

static int make_specs(struct load *load)
{
	size_t count = load->source.tensor_count;
	int r = work_phase(load->work, "planning", load->source.bytes);

	if (r < 0)
		return r;
	load->specs = calloc(count + 1, sizeof(*load->specs));
	load->digests = calloc(count + 1, sizeof(*load->digests));
	if (!load->specs || !load->digests)
		return no_memory(load);
	for (size_t i = 0; i < count; i++) {
		const struct source_tensor *tensor = &load->source.tensors[i];

		load->specs[i] = (struct gpuwm_tensor_spec){
			.name = tensor->name,
			.dtype = tensor->dtype,
			.ndim = tensor->ndim,
			.shape = tensor->shape,
		};
	}
	return 0;
}

static int add_texts(struct load *load, struct gpuwm_publish *publish)
{
	const struct source *source = &load->source;
	int r = 0;

	for (size_t i = 0; r == 0 && source->file_count && i < source->files[0].content.metadata_count; i++) {
		const struct safetensors_pair *pair = &source->files[0].content.metadata[i];

		r = gpuwm_publish_metadata(publish, pair->key, pair->value);
	}
	for (size_t i = 0; r == 0 && i < source->extra_count; i++)
		r = gpuwm_publish_file(publish, source->extras[i].name, source->extras[i].data,
				       source->extras[i].bytes);
	return r < 0 ? library_failed(load, r) : 0;
}

static int find_addresses(struct load *load, struct replica *replica)
{
	size_t count = load->source.tensor_count;
	uint64_t bytes;
	int r = 0;

	replica->addresses = calloc(count + 1, sizeof(*replica->addresses));
	if (!replica->addresses)
		return no_memory(load);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = gpuwm_publish_memory(replica->publish, i, &replica->addresses[i], &bytes);
	return r < 0 ? library_failed(load, r) : 0;
}

static int begin_replica(struct load *load, size_t position)
{
	const struct job *job = load->job;
	struct replica *replica = &load->replicas[position];
	char name[2 * NAME_BYTES_MAX + 2];
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	int r;

	snprintf(name, sizeof(name), "%s@%s", job->model, job->tag);
	options.name = name;
	options.device = job->devices[position];
	options.world = 1;
	options.join = position ? gpuwm_publish_id(load->replicas[0].publish) : NULL;
	options.alias = job->alias[0] && !position ? job->alias : NULL;
	r = gpuwm_publish_begin(load->client, &options, load->specs, load->source.tensor_count,
				&replica->publish);
	if (r < 0)
		return library_failed(load, r);
	r = add_texts(load, replica->publish);
	return r < 0 ? r : find_addresses(load, replica);
}

static int begin_all(struct load *load)
{
	int r = work_phase(load->work, "allocating", load->source.bytes);

	for (size_t i = 0; r == 0 && i < load->job->device_count; i++) {
		r = begin_replica(load, i);
		if (r == 0)
			r = work_advance(0, load->work);
	}
	return r;
}

static int copy_all(struct load *load)
{
	struct copy_target targets[PARTS_PER_VERSION_MAX];
	struct copy copy = {
		.source = &load->source,
		.targets = targets,
		.target_count = load->job->device_count,
		.progress = work_advance,
		.user_data = load->work,
	};
	int r = work_phase(load->work, "copying", load->source.bytes);

	for (size_t i = 0; i < copy.target_count; i++)
		targets[i] = (struct copy_target){
			.device = publish_device(load->replicas[i].publish),
			.addresses = load->replicas[i].addresses,
			.segments = publish_segment(load->replicas[i].publish, 0),
			.segment_count = publish_plan(load->replicas[i].publish)->segment_count,
		};
	if (r == 0)
		r = copy_run(&copy, load->digests, load->error);
	for (size_t i = 0; r == 0 && i < copy.target_count; i++)
		for (size_t k = 0; k < load->source.tensor_count; k++)
			publish_digest(load->replicas[i].publish, k, &load->digests[k]);
	return r;
}

static struct check_part part_of(const struct load *load, size_t position, struct check_segment *segments)
{
	const struct publish_part *part = load->replicas[position].part;

	for (uint32_t i = 0; i < part->segment_count; i++)
		segments[i] =
			(struct check_segment){.fd = part->segments[i].fd, .bytes = part->segments[i].bytes};
	return (struct check_part){
		.device = load->job->devices[position],
		.rank = part->rank,
		.world = 1,
		.bytes_max = UINT64_MAX,
		.index_fd = part->index_fd,
		.index_bytes = part->index_bytes,
		.segments = segments,
		.segment_count = part->segment_count,
	};
}

/* What a GPU holds is read back; on `host` the digests were taken from the very
 * memory that is passed on. */
static int verify(struct load *load, size_t position)
{
	struct check_segment segments[PART_SEGMENTS_MAX];
	struct check_result result;
	struct check_part part;

	if (publish_device(load->replicas[position].publish)->ops == &memory_host)
		return 0;
	part = part_of(load, position, segments);
	return check_part(&part, work_advance, load->work, &result, load->error);
}

static int seal_all(struct load *load)
{
	int r = work_phase(load->work, "checking", load->source.bytes * load->job->device_count);

	for (size_t i = 0; r == 0 && i < load->job->device_count; i++) {
		struct replica *replica = &load->replicas[i];

		r = publish_seal(replica->publish, work_advance, load->work, &replica->part, load->error);
		if (r == 0)
			r = verify(load, i);
	}
	return r;
}

static int hand_in_all(struct load *load)
{
	struct check_segment segments[PART_SEGMENTS_MAX];
	int r = work_phase(load->work, "handing in", 0);

	for (size_t i = 0; r == 0 && i < load->job->device_count; i++) {
		const struct publish_part *sealed = load->replicas[i].part;
		struct check_part part = part_of(load, i, segments);
		struct check_result result = {
			.layout = sealed->layout,
			.content = sealed->content,
			.tensors = sealed->tensors,
		};

		r = report_checked(load->work, gpuwm_publish_id(load->replicas[i].publish), &part, &result,
				   load->error);
	}
	return r;
}

static void load_clear(struct load *load)
{
	for (size_t i = 0; i < load->job->device_count; i++) {
		free(load->replicas[i].addresses);
		publish_free(load->replicas[i].publish);
	}
	free(load->specs);
	free(load->digests);
	source_close(&load->source);
}

int load_run(const struct job *job, struct work *work, struct error *error)
{
	static int (*const steps[])(struct load *) = {open_source, make_specs, begin_all,
						      copy_all,    seal_all,   hand_in_all};
	struct load *load = calloc(1, sizeof(*load));
	int r = 0;

	if (!load)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	load->job = job;
	load->work = work;
	load->error = error;
	load->client = work->client;
	for (size_t i = 0; r == 0 && i < sizeof(steps) / sizeof(steps[0]); i++)
		r = steps[i](load);
	load_clear(load);
	free(load);
	return r;
}
