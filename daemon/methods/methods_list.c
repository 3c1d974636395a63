#include "methods.h"
#include "../ledger/companion.h"
#include "../restart/descriptions.h"
#include "../restart/keeping.h"
#include "../work/versions/claims.h"

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
	const uint64_t shared = shared_bytes(replica);

	record_put_map(w, NULL, &part_listed_record,
		       &(struct part_listed){
			       .rank = replica->rank,
			       .device = replica->device->id,
			       .state = part_state(version, replica),
			       .bytes = replica->bytes,
			       .index_bytes = replica->index.bytes,
			       .segments = replica->segment_count,
			       .shared_bytes = shared ? &shared : NULL,
		       });
}

/* ---- who shares ---- */

/* What a version shares, and the other versions that hold it. */
struct sharers {
	uint64_t bytes;
	struct version_named list[SHARERS_TOLD_MAX];
	uint32_t count;
};

static void add_sharer(struct sharers *sharers, const struct version *version)
{
	uint32_t i = 0;

	while (i < sharers->count && sharers->list[i].version != &version->id)
		i++;
	if (i == sharers->count && i < SHARERS_TOLD_MAX)
		sharers->list[sharers->count++] =
			(struct version_named){&version->id, model_name(version->model), version->tag};
}

static void find_sharers(struct session *session, const struct version *version, struct sharers *ret)
{
	ret->bytes = 0;
	ret->count = 0;
	for (uint32_t i = 0; i < version->replica_count; i++)
		ret->bytes += shared_bytes(&version->replicas[i]);
	for (uint32_t i = 0; ret->bytes > 0 && i < version->replica_count; i++) {
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

/* ---- versions ---- */

/* `bytes` counts every replica, `tensors` each rank once. */
static void list_contents(const struct version *version, struct version_listed *ret)
{
	uint64_t ranks = 0;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *replica = &version->replicas[i];
		const uint64_t rank = UINT64_C(1) << replica->rank;

		ret->bytes += replica->bytes;
		if (!(ranks & rank))
			ret->tensors += replica->tensors;
		ranks |= rank;
		if (!ret->layout && replica->checked && replica->rank == 0) {
			ret->layout = &replica->layout;
			ret->content = &replica->content;
		}
	}
}

static void put_version(struct message_writer *w, const struct request *request, const struct version *version)
{
	struct sharers sharers;
	const char *pins[PINS_PER_VERSION_MAX];
	const uint64_t host_copy = version_host_copy_bytes(version);
	struct version_listed listed = {
		.version = &version->id,
		.model = model_name(version->model),
		.tag = version->tag,
		.state = version_state_name(version->state),
		.created_ms = version->created_ms,
		.ready_ms = version->ready_ms ? &version->ready_ms : NULL,
		.force_at_ms = version->force_at_ms ? &version->force_at_ms : NULL,
		.expire_at_ms = version->expire_at_ms ? &version->expire_at_ms : NULL,
		.cached = version->cache.cached,
		.companion_of = version_is_companion(version) ? &version->cache.companion_of : NULL,
		.world = version->world,
		.owner_uid = version->owner,
		.by_operator = version->by_operator,
		.leases = version->lease_count,
		.pins = {pins, version->pin_count},
		.error = version->state == VERSION_FAILED ? &version->error : NULL,
		.tainted = version->tainted,
		.tier = version_is_resident(version) ? NULL : tier_name(version->tier),
		.moving = version->moving_to == version->tier ? NULL : tier_name(version->moving_to),
		.source = version->description ? version->description->source : NULL,
		.last_used_ms = version->last_used_ms ? &version->last_used_ms : NULL,
		.promotion_error = version->promotion_error,
		.host_copy_bytes = host_copy ? &host_copy : NULL,
		.described = descriptions_have(keeping_descriptions(request->server->keeping), version),
	};

	list_contents(version, &listed);
	for (uint32_t i = 0; i < version->pin_count; i++)
		pins[i] = version->pins[i];
	find_sharers(request->session, version, &sharers);
	if (sharers.bytes > 0) {
		listed.shared_bytes = &sharers.bytes;
		listed.shared_with.items = sharers.list;
		listed.shared_with.count = sharers.count;
	}
	message_begin_map(w, NULL);
	record_put(w, &version_listed_record, &listed);
	message_begin_array(w, "parts");
	for (uint32_t i = 0; i < version->replica_count; i++)
		put_part(w, version, &version->replicas[i]);
	message_end(w);
	message_end(w);
}

/* Those without a name are for whoever asks for them: a user may have hundreds. */
static bool is_listed(struct session *session, struct model *model, const char *asked)
{
	return (asked || !name_is_nameless(model_name(model))) && access_sees(session, model);
}

static void put_versions(struct message_writer *w, const struct request *request, const char *model)
{
	struct session *session = request->session;
	struct version *version = NULL;

	message_begin_array(w, "versions");
	while ((version = registry_next_version(session->client->clients->ledger->registry, model, version))) {
		if (is_listed(session, version->model, model))
			put_version(w, request, version);
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

		if (model == last || !owner.known || !is_listed(session, model, of))
			continue;
		last = model;
		record_put_map(w, NULL, &model_listed_record,
			       &(struct model_listed){model_name(model), owner.uid, owner.by_operator});
	}
	message_end(w);
}

static void put_aliases(struct message_writer *w, struct session *session, const char *model)
{
	const struct alias *alias = NULL;
	const char *of;

	message_begin_array(w, "aliases");
	while ((alias = registry_next_alias(session->client->clients->ledger->registry, model, alias, &of))) {
		const struct version *before = registry_alias_before(alias);

		if (access_sees(session, alias->version->model))
			record_put_map(w, NULL, &alias_listed_record,
				       &(struct alias_listed){of, alias->name, &alias->version->id,
							      alias->generation, before ? &before->id : NULL});
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
	record_put(&w, request->form->result,
		   &(struct list_result){event_last(request->server->ledger.events)});
	put_versions(&w, request, model);
	put_models(&w, request->session, model);
	put_aliases(&w, request->session, model);
	put_claims(&w, request->session, model);
	put_copies(&w, request->session, model);
	request_answer(request, &w);
	return 0;
}
