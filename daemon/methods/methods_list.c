#include "methods.h"
#include "../work/claims.h"

static const char *part_state(const struct version *version, const struct replica *replica)
{
	if (version->state > VERSION_CHECKING)
		return version_state_name(version->state);
	if (!replica->committed && !replica->checked)
		return version_state_name(VERSION_BUILDING);
	return version_state_name(replica->committed && replica->checked ? VERSION_READY : VERSION_CHECKING);
}

static uint64_t shared_bytes(const struct replica *replica)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < replica->segment_count; i++) {
		const struct segment_hold *hold = &replica->segments[i];

		if (hold->link && segment_is_shared(hold->segment))
			bytes += hold->segment->bytes;
	}
	return bytes;
}

static void put_part(struct message_writer *w, const struct version *version, const struct replica *replica)
{
	uint64_t shared = shared_bytes(replica);

	message_begin_map(w, NULL);
	message_put_u64(w, "rank", replica->rank);
	message_put_text(w, "device", replica->device->id);
	message_put_text(w, "state", part_state(version, replica));
	message_put_u64(w, "bytes", replica->bytes);
	message_put_u64(w, "index_bytes", replica->index.bytes);
	message_put_u64(w, "segments", replica->segment_count);
	if (shared > 0)
		message_put_u64(w, "shared_bytes", shared);
	message_end(w);
}

/* ---- who shares ---- */

/* The other versions that hold segments of one. */
struct sharers {
	const struct version *list[SHARERS_TOLD_MAX];
	uint32_t count;
};

static void add_sharer(struct sharers *sharers, const struct version *version)
{
	uint32_t i = 0;

	while (i < sharers->count && sharers->list[i] != version)
		i++;
	if (i == sharers->count && i < SHARERS_TOLD_MAX)
		sharers->list[sharers->count++] = version;
}

static void find_sharers(struct session *session, const struct version *version, struct sharers *ret)
{
	ret->count = 0;
	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *replica = &version->replicas[i];

		for (uint32_t k = 0; k < replica->segment_count && ret->count < SHARERS_TOLD_MAX; k++) {
			const struct segment_hold *hold = replica->segments[k].segment->holds;

			for (; hold; hold = hold->next) {
				if (hold->version != version && access_sees(session, hold->version->model))
					add_sharer(ret, hold->version);
			}
		}
	}
}

static void put_shared(struct message_writer *w, struct session *session, const struct version *version)
{
	struct sharers sharers;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < version->replica_count; i++)
		bytes += shared_bytes(&version->replicas[i]);
	if (bytes == 0)
		return;
	find_sharers(session, version, &sharers);
	message_put_u64(w, "shared_bytes", bytes);
	message_begin_array(w, "shared_with");
	for (uint32_t i = 0; i < sharers.count; i++) {
		message_begin_map(w, NULL);
		put_version_id(w, "version", &sharers.list[i]->id);
		message_put_text(w, "model", model_name(sharers.list[i]->model));
		message_put_text(w, "tag", sharers.list[i]->tag);
		message_end(w);
	}
	message_end(w);
}

/* ---- versions ---- */

static bool is_first_of_rank(const struct version *version, uint32_t position)
{
	for (uint32_t i = 0; i < position; i++) {
		if (version->replicas[i].rank == version->replicas[position].rank)
			return false;
	}
	return true;
}

/* bytes count every replica, tensors each rank once. */
static void put_contents(struct message_writer *w, const struct version *version)
{
	uint64_t bytes = 0, tensors = 0;
	const struct replica *first = NULL;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *replica = &version->replicas[i];

		bytes += replica->bytes;
		if (is_first_of_rank(version, i))
			tensors += replica->tensors;
		if (!first && replica->checked && replica->rank == 0)
			first = replica;
	}
	message_put_u64(w, "bytes", bytes);
	message_put_u64(w, "tensors", tensors);
	if (first) {
		message_put_hex128(w, "layout", first->layout.bytes);
		message_put_hex128(w, "content", first->content.bytes);
	}
}

static void put_version(struct message_writer *w, struct session *session, const struct version *version)
{
	message_begin_map(w, NULL);
	put_version_id(w, "version", &version->id);
	message_put_text(w, "model", model_name(version->model));
	message_put_text(w, "tag", version->tag);
	message_put_text(w, "state", version_state_name(version->state));
	message_put_u64(w, "created_ms", version->created_ms);
	if (version->ready_ms)
		message_put_u64(w, "ready_ms", version->ready_ms);
	if (version->force_at_ms)
		message_put_u64(w, "force_at_ms", version->force_at_ms);
	message_put_u64(w, "world", version->world);
	put_contents(w, version);
	put_shared(w, session, version);
	message_put_u64(w, "owner_uid", version->owner);
	message_put_bool(w, "by_operator", version->by_operator);
	message_put_u64(w, "leases", version->lease_count);
	message_begin_array(w, "pins");
	for (uint32_t i = 0; i < version->pin_count; i++)
		message_put_text(w, NULL, version->pins[i]);
	message_end(w);
	if (version->state == VERSION_FAILED)
		message_put_error(w, "error", &version->error);
	if (version->tainted)
		message_put_error(w, "tainted", version->tainted);
	message_begin_array(w, "parts");
	for (uint32_t i = 0; i < version->replica_count; i++)
		put_part(w, version, &version->replicas[i]);
	message_end(w);
	message_end(w);
}

static void put_versions(struct message_writer *w, struct session *session, const char *model)
{
	struct version *version = NULL;

	message_begin_array(w, "versions");
	while ((version = registry_next_version(session->client->clients->ledger->registry, model, version))) {
		if (access_sees(session, version->model))
			put_version(w, session, version);
	}
	message_end(w);
}

/* Those that have an owner. */
static void put_models(struct message_writer *w, struct session *session, const char *of)
{
	struct version *version = NULL;
	const struct model *last = NULL;

	message_begin_array(w, "models");
	while ((version = registry_next_version(session->client->clients->ledger->registry, of, version))) {
		struct model *model = version->model;
		const struct model_owner owner = model_owner(model);

		if (model == last || !owner.known || !access_sees(session, model))
			continue;
		last = model;
		message_begin_map(w, NULL);
		message_put_text(w, "model", model_name(model));
		message_put_u64(w, "owner_uid", owner.uid);
		message_put_bool(w, "by_operator", owner.by_operator);
		message_end(w);
	}
	message_end(w);
}

static void put_aliases(struct message_writer *w, struct session *session, const char *model)
{
	const struct alias *alias = NULL;
	const char *of;

	message_begin_array(w, "aliases");
	while ((alias = registry_next_alias(session->client->clients->ledger->registry, model, alias, &of))) {
		if (!access_sees(session, alias->version->model))
			continue;
		message_begin_map(w, NULL);
		message_put_text(w, "model", of);
		message_put_text(w, "alias", alias->name);
		put_version_id(w, "version", &alias->version->id);
		message_put_u64(w, "generation", alias->generation);
		message_end(w);
	}
	message_end(w);
}

int method_list(struct request *request, const void *given, struct error *error)
{
	const struct list_params *params = given;
	/* An empty name is none. */
	const char *model = params->model && params->model[0] ? params->model : NULL;
	struct message_writer w;

	(void)error;
	request_result(request, &w);
	message_put_u64(&w, "seq", event_last(request->server->ledger.events));
	put_versions(&w, request->session, model);
	put_models(&w, request->session, model);
	put_aliases(&w, request->session, model);
	put_claims(&w, request->session, model);
	request_answer(request, &w);
	return 0;
}
