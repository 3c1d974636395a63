#include "report.h"

#include "../proto/methods.h"

#include <errno.h>

static size_t put_part(struct message_writer *w, const char *publish, const struct check_part *part,
		       const struct check_result *result, int *fds)
{
	message_put_text(w, "publish", publish);
	message_put_u64(w, "rank", part->rank);
	message_put_text(w, "device", part->device);
	message_put_hex128(w, "content", result->content.bytes);
	message_put_hex128(w, "layout", result->layout.bytes);
	message_put_u64(w, "tensors", result->tensors);
	return part_write(w, part->part, fds);
}

static void put_shared(struct message_writer *w, const struct share *share, uint32_t segments)
{
	message_begin_array(w, "shared");
	for (uint32_t i = 0; i < segments; i++) {
		if (share->from[i] < 0)
			continue;
		message_begin_map(w, NULL);
		message_put_u64(w, "segment", i);
		message_put_u64(w, "resident", (uint64_t)share->from[i]);
		message_end(w);
	}
	message_end(w);
}

int report_checked(struct work *work, const char *publish, const struct check_part *part,
		   const struct check_result *result, const struct share *share, struct error *error)
{
	struct descriptors with;
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	int r;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), METHOD_LOADER_CHECKED);
	with = (struct descriptors){fds, put_part(&w, publish, part, result, fds)};
	if (share && share->count > 0)
		put_shared(&w, share, part->part->segment_count);
	message_end(&w);
	r = connection_call_with(work->connection, &w, &with, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

static void put_plan(struct message_writer *w, const struct job *job, const struct load_plan *plan)
{
	message_begin_map(w, "plan");
	message_put_u64(w, "tensors", plan->tensors);
	message_put_u64(w, "files", plan->files);
	message_put_u64(w, "bytes", plan->bytes);
	message_put_u64(w, "cached", plan->cached);
	message_begin_array(w, "devices");
	for (size_t i = 0; i < plan->device_count; i++) {
		message_begin_map(w, NULL);
		message_put_text(w, "device", job->devices[i]);
		message_put_u64(w, "bytes", plan->devices[i].bytes);
		message_put_u64(w, "segments", plan->devices[i].segments);
		message_end(w);
	}
	message_end(w);
	message_end(w);
}

int report_done(const struct work *work, const struct error *error, const struct job *job,
		const struct load_plan *plan, bool keeps, bool *ret_stays)
{
	struct message_writer w;
	struct reply reply;
	struct fields f;
	int r;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), METHOD_LOADER_DONE);
	if (error->code)
		message_put_error(&w, "error", error);
	if (error->code && work->damaged >= 0)
		message_put_u64(&w, "segment", (uint64_t)work->damaged);
	if (!error->code && plan)
		put_plan(&w, job, plan);
	if (keeps)
		message_put_bool(&w, "keeps", true);
	message_end(&w);
	r = connection_call(work->connection, &w, CALL_TIMEOUT_MS, &reply, NULL);
	message_writer_clear(&w);
	*ret_stays = false;
	if (r < 0)
		return r;
	fields_of(&f, reply.message.body);
	*ret_stays = keeps && fields_bool_or(&f, "stay", false);
	reply_clear(&reply);
	return 0;
}

int report_warm(struct connection *connection, const struct error *error)
{
	struct message_writer w;
	int r;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, METHOD_LOADER_WARM);
	if (error->code)
		message_put_error(&w, "error", error);
	message_end(&w);
	r = connection_notify(connection, &w, NULL);
	message_writer_clear(&w);
	return r < 0 ? -ECONNRESET : 0;
}
