#include "report.h"

#include "../proto/methods.h"

#include <errno.h>

static void put_part(struct message_writer *w, const char *publish, const struct check_part *part,
		     const struct check_result *result, int *fds)
{
	fds[0] = part->index_fd;
	message_put_text(w, "publish", publish);
	message_put_u64(w, "rank", part->rank);
	message_put_text(w, "device", part->device);
	message_put_hex128(w, "content", result->content.bytes);
	message_put_hex128(w, "layout", result->layout.bytes);
	message_put_u64(w, "tensors", result->tensors);
	message_put_u64(w, "index", 0);
	message_put_u64(w, "index_bytes", part->index_bytes);
	message_begin_array(w, "segments");
	for (uint32_t i = 0; i < part->segment_count; i++) {
		fds[i + 1] = part->segments[i].fd;
		message_begin_map(w, NULL);
		message_put_u64(w, "fd", i + 1);
		message_put_u64(w, "bytes", part->segments[i].bytes);
		message_end(w);
	}
	message_end(w);
}

int report_checked(struct work *work, const char *publish, const struct check_part *part,
		   const struct check_result *result, struct error *error)
{
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	int r;

	if (part->segment_count > PART_SEGMENTS_MAX)
		return error_set(error, -EINVAL, NULL, "%u segments are above the limit of %d",
				 part->segment_count, PART_SEGMENTS_MAX);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), METHOD_LOADER_CHECKED);
	put_part(&w, publish, part, result, fds);
	message_end(&w);
	r = connection_call_with(work->connection, &w, &(struct descriptors){fds, part->segment_count + 1}, -1,
				 NULL, error);
	message_writer_clear(&w);
	return r;
}

int report_done(struct connection *connection, const struct error *error, const struct job *job,
		const struct load_plan *plan, bool keeps, bool *ret_stays)
{
	struct plan_device devices[PARTS_PER_VERSION_MAX];
	struct plan_params told = {.devices.items = devices};
	struct loader_done_params params = {.error = error->code ? error : NULL, .keeps = keeps};
	struct loader_done_result result;
	struct message_writer w;
	struct reply reply;
	int r;

	if (!error->code && plan) {
		told.tensors = plan->tensors;
		told.files = plan->files;
		told.bytes = plan->bytes;
		told.cached = plan->cached;
		told.devices.count = (uint32_t)plan->device_count;
		for (size_t i = 0; i < plan->device_count; i++)
			devices[i] = (struct plan_device){job->devices[i], plan->devices[i].bytes,
							  plan->devices[i].segments};
		params.plan = &told;
	}
	message_write_request(&w, request_next_id(), &form_loader_done, &params);
	r = connection_call(connection, &w, CALL_TIMEOUT_MS, &reply, NULL);
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
