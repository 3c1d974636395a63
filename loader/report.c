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

int report_moved(struct work *work, const struct loader_moved_params *params, const struct part *part,
		 struct error *error)
{
	struct descriptors with;
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	int r;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), form_loader_moved.name);
	record_put(&w, form_loader_moved.params, params);
	with = (struct descriptors){fds, part_segments_write(&w, part, fds)};
	message_end(&w);
	r = connection_call_with(work->connection, &w, &with, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

void load_plan_begin(struct load_plan *plan, const struct job_load_params *params)
{
	*plan = (struct load_plan){.told.devices.count = params->wish.devices.count};
	for (uint32_t i = 0; i < params->wish.devices.count; i++)
		plan->devices[i].device = params->wish.devices.items[i];
}

void load_plan_add(struct load_plan *plan, uint64_t bytes, uint64_t segments)
{
	struct plan_device *device = &plan->devices[plan->told.devices.count == 1 ? 0 : plan->part_count];

	device->bytes += bytes;
	device->segments += segments;
	plan->parts[plan->part_count++] = bytes;
}

int load_plan_end(struct load_plan *plan, struct work *work, struct error *error)
{
	plan->told.devices.items = plan->devices;
	if (plan->part_count > plan->told.devices.count) {
		plan->told.parts.items = plan->parts;
		plan->told.parts.count = plan->part_count;
	}
	work->plan = record_copy(&plan_params_record, &plan->told);
	return work->plan ? 0 : error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
}

int report_done(const struct work *work, const struct error *error, bool keeps, bool *ret_stays)
{
	uint64_t segment = (uint64_t)work->damaged;
	struct loader_done_params params = {.error = error->code ? error : NULL,
					    .segment = error->code && work->damaged >= 0 ? &segment : NULL,
					    .keeps = keeps,
					    .plan = error->code ? NULL : work->plan};
	struct loader_done_result result;
	struct message_writer w;
	struct reply reply;
	int r;

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
