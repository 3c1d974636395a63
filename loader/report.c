#include "load_internal.h"

#include <errno.h>

int report_checked(struct work *work, const struct version_id *publish, const struct check_part *part,
		   const struct check_result *result, const struct share *share, struct error *error)
{
	struct segment_shared shared[PART_SEGMENTS_MAX];
	struct loader_checked_params params = {
		.publish = publish,
		.rank = part->rank,
		.device = part->device,
		.content = &result->content,
		.layout = &result->layout,
		.tensors = result->tensors,
	};
	struct descriptors with;
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	int r;

	for (uint32_t i = 0; share && i < part->part->segment_count; i++) {
		if (share->from[i] < 0)
			continue;
		shared[params.shared.count++] = (struct segment_shared){i, (uint64_t)share->from[i]};
		params.shared.items = shared;
	}
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), form_loader_checked.name);
	record_put(&w, form_loader_checked.params, &params);
	with = (struct descriptors){fds, part_write(&w, part->part, fds)};
	message_end(&w);
	r = connection_call_with(work->connection, &w, &with, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

int report_moved(struct work *work, const struct job *job, const struct part *part, struct error *error)
{
	const struct loader_moved_params params = {.rank = job->rank, .device = job->device};
	struct descriptors with;
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	int r;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), form_loader_moved.name);
	record_put(&w, form_loader_moved.params, &params);
	with = (struct descriptors){fds, part_segments_write(&w, part, fds)};
	message_end(&w);
	r = connection_call_with(work->connection, &w, &with, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

/* `devices` and *ret are the caller's, and live as long as each other. */
static void tell_plan(const struct job *job, const struct load_plan *plan, struct plan_device *devices,
		      struct plan_params *ret)
{
	*ret = (struct plan_params){
		.tensors = plan->tensors,
		.files = plan->files,
		.bytes = plan->bytes,
		.cached = plan->cached,
		.devices = {devices, (uint32_t)plan->device_count},
	};
	for (size_t i = 0; i < plan->device_count; i++)
		devices[i] = (struct plan_device){job->devices[i], plan->devices[i].bytes,
						  plan->devices[i].segments};
	if (plan->part_count > plan->device_count) {
		ret->parts.items = plan->parts;
		ret->parts.count = (uint32_t)plan->part_count;
	}
}

int report_done(const struct work *work, const struct error *error, const struct job *job,
		const struct load_plan *plan, bool keeps, bool *ret_stays)
{
	struct plan_device devices[PARTS_PER_VERSION_MAX];
	struct plan_params told;
	uint64_t segment = (uint64_t)work->damaged;
	struct loader_done_params params = {.error = error->code ? error : NULL,
					    .segment = error->code && work->damaged >= 0 ? &segment : NULL,
					    .keeps = keeps};
	struct loader_done_result result;
	struct message_writer w;
	struct reply reply;
	int r;

	if (!error->code && plan) {
		tell_plan(job, plan, devices, &told);
		params.plan = &told;
	}
	message_write_request(&w, request_next_id(), &form_loader_done, &params);
	r = connection_call(work->connection, &w, CALL_TIMEOUT_MS, &reply, NULL);
	message_writer_clear(&w);
	*ret_stays = false;
	if (r < 0)
		return r;
	*ret_stays = keeps && reply_read(&reply, &form_loader_done, &result, NULL) == 0 && result.stay;
	reply_clear(&reply);
	return 0;
}

int report_warm(struct connection *connection, const struct error *error)
{
	struct message_writer w;
	int r;

	message_write_notification(&w, &form_loader_warm,
				   &(struct loader_warm_params){error->code ? error : NULL});
	r = connection_notify(connection, &w, NULL);
	message_writer_clear(&w);
	return r < 0 ? -ECONNRESET : 0;
}
