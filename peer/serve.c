/* The requests of one connection, up to the first take. */
#include "serve_internal.h"

#include "wire_tls.h"

#include "../base/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long a taker may pause between requests. It takes a part on another connection meanwhile, or asks the next node. */
#define SERVE_IDLE_MS 120000

/* ---- answers ---- */

int serve_answer(struct serving *serving, uint64_t id, const struct message_form *form, const void *result,
		 struct error *error)
{
	struct message_writer w;

	message_writer_init(&w, PEER_MESSAGE_BYTES_MAX);
	message_response(&w, id);
	record_put(&w, form->result, result);
	message_end(&w);
	return peer_send(serving->link, &w, error);
}

static int send_refusal(struct link *link, const struct message *request, const struct error *why,
			struct error *error)
{
	struct message_writer w;

	message_writer_init(&w, PEER_MESSAGE_BYTES_MAX);
	message_response_error(&w, &request->id, why);
	return peer_send(link, &w, error);
}

void serve_refuse(struct link *link, const struct error *why)
{
	struct peer_message message;
	struct error unused;

	if (peer_receive(link, PEER_HELLO_BYTES_MAX, LINK_HANDSHAKE_MS, &message, &unused) < 0)
		return;
	send_refusal(link, &message.message, why, &unused);
	peer_message_clear(&message);
}

/* ---- hello ---- */

static int serve_hello(struct serving *serving, const struct message *request, struct error *error)
{
	struct peer_hello_params params;
	const char *names[WIRES_MAX] = {NULL};
	char node[HOST_NAME_MAX + 1] = "";
	struct error why;
	int r;

	if (request->type != MESSAGE_REQUEST || strcmp(request->method, form_peer_hello.name) != 0)
		return error_set(error, -EPROTO, NULL, "%s did not begin with hello", link_peer(serving->link));
	r = record_read(form_peer_hello.params, request, &params, &why);
	if (r == 0)
		snprintf(serving->report->program, sizeof(serving->report->program), "%s", params.program);
	if (r == 0 && (params.protocol_min > PEER_PROTOCOL_MAX || params.protocol_max < PEER_PROTOCOL_MIN))
		r = error_set(&why, -EPROTONOSUPPORT, "update the older one of the two",
			      "%s speaks protocols %llu to %llu; %s speaks %d to %d", params.program,
			      (unsigned long long)params.protocol_min, (unsigned long long)params.protocol_max,
			      serving->server->program, PEER_PROTOCOL_MIN, PEER_PROTOCOL_MAX);
	if (r == 0) {
		gethostname(node, sizeof(node) - 1);
		return serve_answer(serving, request->id, &form_peer_hello,
				    &(struct peer_hello_result){.protocol = PEER_PROTOCOL_MAX,
								.node = node,
								.program = serving->server->program,
								.ledger = serving->server->ledger,
								.machine = machine_name(),
								.wires = {names, wire_names(names)}},
				    error);
	}
	send_refusal(serving->link, request, &why, error);
	*error = why;
	return r;
}

/* ---- list ---- */

static int serve_list(struct serving *serving, const struct message *request, bool *ret_refused,
		      struct error *error)
{
	const struct server *server = serving->server;
	struct peer_list_params params;
	struct message_writer w;
	int r = record_read(form_peer_list.params, request, &params, error);

	if (r == 0 && !server->source->list)
		r = error_set(error, -ENOSYS, NULL, "%s tells no list", server->program);
	message_writer_init(&w, PEER_MESSAGE_BYTES_MAX);
	message_response(&w, request->id);
	if (r == 0)
		r = server->source->list(server->user, params.from, &w, error);
	if (r < 0) {
		*ret_refused = true;
		message_writer_clear(&w);
		return r;
	}
	message_end(&w);
	return peer_send(serving->link, &w, error);
}

/* ---- find ---- */

static int hold(struct serving *serving, const char *ref, struct error *error)
{
	const struct server *server = serving->server;
	struct served_version *found;
	int r = server->source->find(server->user, ref, &found, error);

	if (r < 0)
		return r;
	if (serving->version)
		server->source->leave(server->user, serving->version);
	serving->version = found;
	return 0;
}

static void parts_list(const struct served_version *version, struct peer_part ret[PARTS_PER_VERSION_MAX])
{
	for (uint32_t i = 0; i < version->world; i++) {
		const struct served_part *part = &version->parts[i];

		ret[i] = (struct peer_part){.rank = part->rank,
					    .device = part->device.id,
					    .kind = part->device.ops->kind->name,
					    .segments = part->segment_count,
					    .index_bytes = part->index_bytes};
		for (uint32_t k = 0; k < part->segment_count; k++)
			ret[i].bytes += part->segments[k].bytes;
	}
}

static int serve_find(struct serving *serving, const struct message *request, bool *ret_refused,
		      struct error *error)
{
	const struct server *server = serving->server;
	struct peer_part parts[PARTS_PER_VERSION_MAX];
	struct served_version *version;
	char fingerprint[SUM_TEXT];
	bool is_known;
	struct peer_find_params params;
	int r = record_read(form_peer_find.params, request, &params, error);

	if (r == 0)
		r = hold(serving, params.ref, error);
	if (r < 0) {
		*ret_refused = true;
		return r;
	}
	version = serving->version;
	parts_list(version, parts);
	is_known =
		server->source->fingerprint && server->source->fingerprint(server->user, version, fingerprint);
	return serve_answer(serving, request->id, &form_peer_find,
			    &(struct peer_find_result){.version = &version->id,
						       .model = version->model,
						       .tag = version->tag,
						       .world = version->world,
						       .parts = {parts, version->world},
						       .piece_bytes = SUMS_PIECE_BYTES,
						       .fingerprint = is_known ? fingerprint : NULL},
			    error);
}

int serve_part(struct serving *serving, const struct version_id *version, uint64_t rank,
	       const struct served_part **ret, struct error *error)
{
	char id[VERSION_ID_TEXT];
	int r = 0;

	if (!serving->version || !version_id_equal(&serving->version->id, version)) {
		hex128_format(version->bytes, id);
		r = hold(serving, id, error);
	}
	if (r < 0)
		return r;
	if (rank >= serving->version->world)
		return error_set(error, -ENOENT, NULL, "%s@%s has no rank %llu: it has %u",
				 serving->version->model, serving->version->tag, (unsigned long long)rank,
				 serving->version->world);
	*ret = &serving->version->parts[rank];
	return 0;
}

/* ---- index and sums ---- */

static int send_index(struct serving *serving, const struct message *request, bool *ret_refused,
		      struct error *error)
{
	struct peer_index_params params;
	const struct served_part *part;
	int r = record_read(form_peer_index.params, request, &params, error);

	if (r == 0)
		r = serve_part(serving, params.version, params.rank, &part, error);
	if (r < 0) {
		*ret_refused = true;
		return r;
	}
	r = serve_answer(serving, request->id, &form_peer_index, &(struct peer_index_result){part->index_bytes},
			 error);
	if (r == 0)
		r = link_write(serving->link, part->index, part->index_bytes, LINK_SILENCE_MS, error);
	return r;
}

/* Sends them as they are computed. After the answer has told how many there are, an error can only end the connection. */
static int stream_sums(struct serving *serving, const struct peer_sums_params *params, uint64_t count,
		       struct error *error)
{
	const struct server *server = serving->server;
	struct served_pieces pieces = {
		.rank = (uint32_t)params->rank, .segment = (uint32_t)params->segment, .first = params->from};
	const struct sum *sums;
	int64_t known;
	int r = 0;

	while (r == 0 && pieces.first < count) {
		known = server->source->sums(server->user, serving->version, &pieces, &sums, error);
		if (known < 0)
			return (int)known;
		r = link_write(serving->link, sums, (size_t)known * sizeof(*sums), LINK_SILENCE_MS, error);
		pieces.first += (uint64_t)known;
	}
	return r;
}

static int read_sums(struct serving *serving, const struct message *request, struct peer_sums_params *params,
		     uint64_t *ret_count, struct error *error)
{
	const struct served_part *part;
	int r = record_read(form_peer_sums.params, request, params, error);

	if (r == 0)
		r = serve_part(serving, params->version, params->rank, &part, error);
	if (r < 0)
		return r;
	*ret_count = params->segment < part->segment_count
			     ? sums_piece_count(part->segments[params->segment].bytes)
			     : 0;
	if (params->from >= *ret_count)
		return error_set(error, -ENOENT, NULL, "rank %llu has no segment %llu with a piece %llu",
				 (unsigned long long)params->rank, (unsigned long long)params->segment,
				 (unsigned long long)params->from);
	return 0;
}

static int send_sums(struct serving *serving, const struct message *request, bool *ret_refused,
		     struct error *error)
{
	struct peer_sums_params params;
	uint64_t count;
	int r = read_sums(serving, request, &params, &count, error);

	if (r < 0) {
		*ret_refused = true;
		return r;
	}
	r = serve_answer(serving, request->id, &form_peer_sums, &(struct peer_sums_result){count - params.from},
			 error);
	return r < 0 ? r : stream_sums(serving, &params, count, error);
}

/* ---- lanes ---- */

/* The connection belongs to a take of another one from here on, which says why it ends. */
static int serve_lane(struct serving *serving, const struct message *request, bool *ret_refused,
		      struct error *error)
{
	struct peer_lane_params params;
	struct peer_lane_result result;
	struct tls_lane *lane = NULL;
	int r = record_read(form_peer_lane.params, request, &params, error);

	if (r == 0) {
		lane = tls_lane_enter(params.secret, serving->link);
		if (!lane)
			r = error_set(error, -ENOENT, NULL, "no take has this secret, or it has lanes enough");
	}
	if (r < 0) {
		*ret_refused = true;
		return r;
	}
	result.clear = params.clear && serving->server->clear;
	r = serve_answer(serving, request->id, &form_peer_lane, &result, error);
	if (r == 0 && result.clear)
		link_clear(serving->link);
	tls_lane_run(lane, r == 0);
	return 1;
}

/* ---- the connection ---- */

static const struct {
	const struct message_form *form;
	int (*serve)(struct serving *serving, const struct message *request, bool *ret_refused,
		     struct error *error);
} methods[] = {
	{&form_peer_list, serve_list}, {&form_peer_find, serve_find}, {&form_peer_index, send_index},
	{&form_peer_sums, send_sums},  {&form_peer_take, serve_take}, {&form_peer_lane, serve_lane},
};
#define METHODS (sizeof(methods) / sizeof(*methods))

/* Returns 0 if the connection goes on, and 1 if it is over. */
static int serve_request(struct serving *serving, const struct message *request, struct error *error)
{
	bool refused = false;
	struct error why;
	size_t i = 0;
	int r;

	if (request->type != MESSAGE_REQUEST)
		return error_set(error, -EPROTO, NULL, "%s sent what is no request", link_peer(serving->link));
	while (i < METHODS && strcmp(methods[i].form->name, request->method) != 0)
		i++;
	if (i < METHODS) {
		r = methods[i].serve(serving, request, &refused, &why);
	} else {
		refused = true;
		r = error_set(&why, -ENOSYS, NULL, "%s knows no method \"%s\"", serving->server->program,
			      request->method);
	}
	if (refused)
		return send_refusal(serving->link, request, &why, error);
	if (r < 0)
		*error = why;
	return r;
}

static int serve_all(struct serving *serving, struct error *error)
{
	struct peer_message message;
	int r;

	do {
		r = peer_receive(serving->link, PEER_MESSAGE_BYTES_MAX, SERVE_IDLE_MS, &message, error);
		if (r < 0)
			break;
		r = serve_request(serving, &message.message, error);
		peer_message_clear(&message);
	} while (r == 0);
	return r == -ENOLINK || r > 0 ? 0 : r;
}

int serve_link(const struct server *server, struct link *link, struct serve_report *ret_report,
	       struct error *error)
{
	struct serving serving = {.server = server, .link = link, .report = ret_report};
	struct peer_message message;
	int r;

	*ret_report = (struct serve_report){0};
	r = peer_receive(link, PEER_HELLO_BYTES_MAX, LINK_HANDSHAKE_MS, &message, error);
	if (r < 0)
		return r;
	r = serve_hello(&serving, &message.message, error);
	peer_message_clear(&message);
	if (r == 0)
		r = serve_all(&serving, error);
	if (serving.version)
		server->source->leave(server->user, serving.version);
	return r;
}
