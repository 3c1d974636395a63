/* A take: the way of the bytes, from the request to the taker's last word. */
#include "serve_internal.h"

#include "serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct looking {
	struct serving *serving;
	uint32_t rank;
};

static int take_look(void *user_data, uint32_t segment, uint64_t first, uint64_t count, const void **ret,
		     struct error *error)
{
	const struct looking *looking = user_data;
	const struct server *server = looking->serving->server;
	const struct served_pieces pieces = {looking->rank, segment, first, count};

	return server->source->look(server->user, looking->serving->version, &pieces, ret, error);
}

static void take_sent(void *user_data, uint64_t bytes)
{
	const struct serving *serving = ((const struct looking *)user_data)->serving;

	if (serving->taker)
		takers_count_bytes(serving->server->takers, serving->taker, bytes);
}

/* The wire is open. */
static int send_parts(struct serving *serving, const struct served_part *part,
		      const struct peer_take_params *params, uint64_t id, struct wire *wire,
		      struct error *error)
{
	uint64_t segment_bytes[PART_SEGMENTS_MAX];
	struct looking looking = {serving, part->rank};
	struct sender_part sender = {.device = &part->device,
				     .segment_bytes = segment_bytes,
				     .segment_count = part->segment_count,
				     .look = take_look,
				     .sent = take_sent,
				     .user_data = &looking};
	size_t bytes;
	const void *address = wire_address(wire, &bytes);
	char *worker = wire_text(address, bytes);
	int r;

	for (uint32_t i = 0; i < part->segment_count; i++)
		segment_bytes[i] = part->segments[i].bytes;
	if (!worker)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	r = serve_answer(serving, id, &form_peer_take, &(struct peer_take_result){.worker = worker}, error);
	free(worker);
	if (r < 0)
		return r;
	return sender_run(serving->link, wire, &sender, &(struct sender_taker){params->nonce, params->worker},
			  &serving->report->sent, error);
}

/* Finds the transport that the taker names: one of those that this node has told of. UCX believes what it is sent: who has no card opens nothing
 * with it, whoever asks. */
static int find_way(const char *name, const struct wire_ops **ret, struct error *error)
{
	int r = wire_find(name, ret, error);

	return r == 0 && (*ret)->here ? (*ret)->here(error) : r;
}

/* Inside the device's context, if it has one. */
static int send_inside(struct serving *serving, const struct served_part *part,
		       const struct peer_take_params *params, uint64_t id, bool *ret_refused,
		       struct error *error)
{
	const struct wire_ops *ops;
	struct wire *wire;
	int r = find_way(params->wire, &ops, error);

	if (r == 0)
		r = wire_open(ops, true, &wire, error);
	if (r < 0) {
		*ret_refused = true;
		return r;
	}
	r = send_parts(serving, part, params, id, wire, error);
	wire_close(wire);
	return r;
}

static int take_part(struct serving *serving, const struct served_part *part,
		     const struct peer_take_params *params, uint64_t id, bool *ret_refused, struct error *error)
{
	int r = part->device.ops->enter(&part->device, error);

	if (r < 0) {
		*ret_refused = true;
		return r;
	}
	snprintf(serving->report->version, sizeof(serving->report->version), "%s@%s", serving->version->model,
		 serving->version->tag);
	r = send_inside(serving, part, params, id, ret_refused, error);
	part->device.ops->leave(&part->device);
	return r < 0 ? r : 1;
}

static int redirect(struct serving *serving, uint64_t id, struct peer_redirect *to, struct error *error)
{
	int r = serve_answer(serving, id, &form_peer_take, &(struct peer_take_result){.redirect = to}, error);

	takers_redirect_clear(to);
	return r;
}

int serve_take(struct serving *serving, const struct message *request, bool *ret_refused, struct error *error)
{
	struct takers *takers = serving->server->takers;
	struct peer_redirect to = {0};
	struct peer_take_params params;
	const struct served_part *part;
	int r = record_read(form_peer_take.params, request, &params, error);

	if (r == 0)
		r = serve_part(serving, params.version, params.rank, &part, error);
	if (r == 0 && takers)
		r = takers_enter(takers, &params, serving->link, &serving->taker, &to);
	if (r == -ENOMEM)
		error_set(error, r, NULL, "out of memory");
	if (r == -EALREADY)
		error_set(error, r, NULL, "no way from here is known to be faster");
	if (r > 0)
		return redirect(serving, request->id, &to, error);
	*ret_refused = r < 0;
	if (r == 0)
		r = take_part(serving, part, &params, request->id, ret_refused, error);
	if (serving->taker)
		takers_leave(takers, serving->taker);
	serving->taker = NULL;
	return r;
}
