#include "peer_part.h"

#include "../jobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int check_sizes(const struct taken_part *part, struct error *error)
{
	uint64_t granularity;
	int r = part->device.ops->granularity(&part->device, &granularity, error);

	for (uint32_t i = 0; r == 0 && i < part->offer->segment_count; i++) {
		if (part->offer->segment_bytes[i] % granularity == 0)
			continue;
		r = error_set(error, -ENOTSUP,
			      "load it there with --segment-bytes, or from its files here: a copy has the "
			      "same segments",
			      "segment %u of rank %u has %" PRIu64
			      " bytes, on %s segments are multiples of %" PRIu64,
			      i, part->rank, part->offer->segment_bytes[i], part->id, granularity);
	}
	return r;
}

static int ask_begin(struct taken_part *part, const struct job_load_params *load, struct work *work,
		     const struct version_id *join, struct error *error)
{
	char name[2 * NAME_BYTES_MAX + 2], fingerprint[SUM_TEXT];
	const struct publish_begin_params params = {
		.name.text = name,
		.device = part->id,
		.rank = part->rank,
		.world = part->world,
		.bytes = part->offer->bytes,
		.publish = join,
		.alias = join ? NULL : load->wish.alias,
		.fingerprint = fingerprint,
	};
	struct publish_begin_result result;
	struct message_writer w;
	struct reply reply;
	int r;

	snprintf(name, sizeof(name), "%s@%s", load->model, load->tag);
	sum_format(part->fingerprint, fingerprint);
	message_write_request(&w, request_next_id(), &form_publish_begin, &params);
	r = connection_call(work->connection, &w, -1, &reply, error);
	message_writer_clear(&w);
	if (r < 0)
		return r;
	r = reply_read(&reply, &form_publish_begin, &result, error);
	if (r == 0)
		part->publish = *result.publish;
	reply_clear(&reply);
	return r;
}

int peer_part_make(struct taken_part *part, memory_progress_fn *look, void *user_data, struct error *error)
{
	const struct memory_ops *ops = part->device.ops;
	uint32_t count = part->offer->segment_count;
	int r = 0;

	part->segments = calloc((size_t)count + 1, sizeof(*part->segments));
	part->pieces = peer_pieces_new(part->offer);
	if (!part->segments || !part->pieces)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	for (uint32_t i = 0; i < count; i++)
		part->segments[i].fd = -1;
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		r = ops->create(&part->device, part->offer->segment_bytes[i], &part->segments[i], error);
		if (r == 0)
			r = ops->map(&part->device, &part->segments[i], MEMORY_WRITE, error);
		if (r == 0)
			r = look(0, user_data);
	}
	return r;
}

int peer_part_begin(struct taken_part *part, const struct job_load_params *params, struct work *work,
		    const struct version_id *join, struct error *error)
{
	int r = memory_device_open(part->id, &part->device, error);

	part->index = -1;
	if (r == 0)
		r = check_sizes(part, error);
	if (r == 0)
		r = ask_begin(part, params, work, join, error);
	if (r == 0)
		r = index_copy(part->offer->index, part->offer->index_bytes, &part->index, error);
	return r < 0 ? r : peer_part_make(part, work_advance, work, error);
}

int peer_part_seal(struct taken_part *part, struct error *error)
{
	const struct memory_ops *ops = part->device.ops;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < part->offer->segment_count; i++) {
		ops->unmap(&part->device, &part->segments[i]);
		r = ops->export(&part->device, &part->segments[i], error);
	}
	return r;
}

static struct check_part peer_part_list(const struct taken_part *part, struct part *ret)
{
	part_init(ret);
	ret->index = (struct part_fd){part->index, part->offer->index_bytes};
	ret->segment_count = part->offer->segment_count;
	for (uint32_t i = 0; i < ret->segment_count; i++)
		ret->segments[i] = (struct part_fd){part->segments[i].fd, part->segments[i].bytes};
	return (struct check_part){
		.device = part->id,
		.rank = part->rank,
		.world = part->world,
		.bytes_max = part->offer->bytes,
		.part = ret,
	};
}

int peer_part_check(const struct taken_part *part, struct work *work, struct check_result *ret,
		    struct error *error)
{
	struct part fds;
	struct check_part checked = peer_part_list(part, &fds);
	int r = check_part(&checked, work_advance, work, ret, error);

	if (r == 0 && ret->report.note[0])
		work_note(work, "%s", ret->report.note);
	return r;
}

int peer_part_hand_in(const struct taken_part *part, struct work *work, const struct check_result *result,
		      struct error *error)
{
	struct part fds;
	struct check_part checked = peer_part_list(part, &fds);

	return report_checked(work, &part->publish, &checked, result, NULL, error);
}

void peer_part_end(struct taken_part *part)
{
	for (uint32_t i = 0; part->segments && i < part->offer->segment_count; i++)
		part->device.ops->release(&part->device, &part->segments[i]);
	free(part->segments);
	part->segments = NULL;
	part->pieces = peer_pieces_free(part->pieces);
	if (part->offer && part->index >= 0)
		close(part->index);
	part->index = -1;
}

void *peer_part_address(const struct taken_part *part, const struct peer_run *run)
{
	return (uint8_t *)part->segments[run->segment].address + peer_run_offset(run);
}
