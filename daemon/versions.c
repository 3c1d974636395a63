#include "versions.h"
#include "loader.h"
#include "mourning.h"
#include "segment.h"
#include "session.h"
#include "../proto/methods.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- events ---- */

static void begin(struct server *server, struct message_writer *w, const char *kind,
		  const struct version *version)
{
	event_begin(server->events, w, kind);
	message_put_hex128(w, "version", version->id.bytes);
	message_put_text(w, "model", model_name(version->model));
	message_put_text(w, "tag", version->tag);
}

static void tell(struct server *server, const char *kind, const struct version *version)
{
	struct message_writer w;

	begin(server, &w, kind, version);
	event_emit(server->events, &w);
}

static void tell_failed(struct server *server, const struct version *version)
{
	struct message_writer w;

	begin(server, &w, EVENT_FAILED, version);
	message_put_error(&w, "error", &version->error);
	event_emit(server->events, &w);
}

static void tell_swapped(struct server *server, const char *model, const char *alias,
			 const struct swap_result *result)
{
	struct message_writer w;

	event_begin(server->events, &w, EVENT_SWAPPED);
	message_put_text(&w, "model", model);
	message_put_text(&w, "alias", alias);
	if (result->now)
		message_put_hex128(&w, "version", result->now->id.bytes);
	if (result->old)
		message_put_hex128(&w, "old", result->old->id.bytes);
	message_put_u64(&w, "generation", result->generation);
	event_emit(server->events, &w);
}

/* ---- ready ---- */

static void tell_current(struct server *server, struct version *version)
{
	const char *model = model_name(version->model);
	struct swap_result result = {.now = version, .changed = true};
	struct version *found;
	struct ref ref = {0};

	snprintf(ref.model, sizeof(ref.model), "%s", model);
	snprintf(ref.name, sizeof(ref.name), "%s", ALIAS_CURRENT);
	registry_find(server->registry, &ref, &found, &result.generation, NULL);
	tell_swapped(server, model, ALIAS_CURRENT, &result);
}

/* It was free when the publish began; the version is ready in any case. */
static void move_alias(struct server *server, struct version *version, const char *alias)
{
	const char *model = model_name(version->model);
	struct swap_result swapped;
	struct error error;

	if (versions_swap(server, model, alias, version, NULL, &swapped, &error) == 0)
		return;
	error_set(&version->error, error.code, error.detail,
		  "%s@%s is ready, but its alias %s was not moved: %s", model, version->tag, alias,
		  error.message);
	log_warning("%s", version->error.message);
	job_note(&server->jobs, &version->id, &version->error);
}

int versions_complete(struct server *server, struct publish *publish, struct error *error)
{
	struct version *version = publish->version;
	char alias[NAME_BYTES_MAX + 1];
	struct error reason;
	bool current;

	if (!version_complete(version))
		return 0;
	if (registry_ready(server->registry, version, &current, &reason) < 0) {
		versions_fail(server, publish, &reason, NULL);
		*error = reason;
		return reason.code;
	}
	snprintf(alias, sizeof(alias), "%s", publish->alias);
	publish_end(server->publishes, publish);
	tell(server, EVENT_READY, version);
	if (current)
		tell_current(server, version);
	if (alias[0])
		move_alias(server, version, alias);
	waiters_wake(server, WAIT_CHECKED, version);
	waiters_wake(server, WAIT_READY, version);
	return 0;
}

int versions_swap(struct server *server, const char *model, const char *alias, struct version *to,
		  const struct version_id *expect, struct swap_result *ret, struct error *error)
{
	int r = registry_swap(server->registry, model, alias, to, expect, ret, error);

	if (r < 0)
		return r;
	if (ret->changed)
		tell_swapped(server, model, alias, ret);
	if (ret->changed && to)
		waiters_wake(server, WAIT_READY, to);
	return 0;
}

/* ---- failed ---- */

/* Whatever may still hold the part's memory lets go of its grant by itself. With one use
 * for the caller. */
static struct grant *give_up_part(struct server *server, struct publish *publish, struct publish_part *part)
{
	struct replica *replica = &publish->version->replicas[part->replica];
	struct grant *grant = grant_new(&replica->charge);
	struct loader *maker = loader_of(server->loaders, part->publisher);
	struct loader *checker = loader_of(server->loaders, part->checker);

	if (maker)
		loader_keep(maker, grant_use(grant));
	if (checker && checker != maker)
		loader_keep(checker, grant_use(grant));
	grant_use(grant);
	segment_close(&server->loop, replica, grant, NULL, NULL);
	return grant;
}

/* `dead` has left, but its process may still be there, with the memory of its parts. */
static void give_up_all(struct server *server, struct publish *publish, const struct session *dead)
{
	struct grant *mourned[PARTS_PER_VERSION_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < publish->part_count; i++) {
		struct grant *grant = give_up_part(server, publish, &publish->parts[i]);

		if (dead && publish->parts[i].publisher == dead && !dead->dead)
			mourned[count++] = grant;
		else
			grant_drop(grant);
	}
	if (count > 0)
		mourn(server, dead->peer.pidfd, mourned, count, &publish->charge);
}

void versions_fail(struct server *server, struct publish *publish, const struct error *reason,
		   const struct session *dead)
{
	struct version *version = publish->version;
	struct job *checkers[PARTS_PER_VERSION_MAX];
	uint32_t count = publish->part_count;

	for (uint32_t i = 0; i < count; i++)
		checkers[i] = publish->parts[i].checker;
	give_up_all(server, publish, dead);
	publish_end(server->publishes, publish);
	registry_fail(server->registry, version, reason);
	log_warning("%s@%s failed: %s", model_name(version->model), version->tag, reason->message);
	tell_failed(server, version);
	waiters_wake(server, WAIT_CHECKED, version);
	waiters_wake(server, WAIT_READY, version);
	for (uint32_t i = 0; i < count; i++) {
		if (checkers[i])
			job_cancel(server, checkers[i], reason);
	}
	waiters_wake(server, WAIT_STARTED, NULL);
	loader_pool_report(server->loaders);
}

static bool is_publisher(const struct publish *publish, const void *publisher)
{
	for (uint32_t i = 0; i < publish->part_count; i++) {
		if (publish->parts[i].publisher == publisher)
			return true;
	}
	return false;
}

void versions_fail_of(struct server *server, const void *publisher, const struct error *reason,
		      const struct session *dead)
{
	struct publish *publish = publish_next(server->publishes, NULL), *next;

	for (; publish; publish = next) {
		next = publish_next(server->publishes, publish);
		if (is_publisher(publish, publisher))
			versions_fail(server, publish, reason, dead);
	}
}

/* ---- retired ---- */

/* A version whose descriptors are being closed. */
struct freeing {
	struct server *server;
	struct version *version;
	uint32_t left;
};

static void freed(struct server *server, struct version *version)
{
	tell(server, EVENT_FREED, version);
	registry_remove(server->registry, version);
	waiters_wake(server, WAIT_FREED, NULL);
	loader_pool_report(server->loaders);
}

static void on_part_closed(void *data)
{
	struct freeing *freeing = data;

	if (--freeing->left > 0)
		return;
	freed(freeing->server, freeing->version);
	free(freeing);
}

void versions_free_unused(struct server *server, struct version *version)
{
	struct freeing *freeing;
	uint32_t count = version->replica_count;

	if (version->user || !version_unused(version))
		return;
	freeing = malloc(sizeof(*freeing));
	if (!freeing) {
		log_error("out of memory: %s@%s is not freed before the next of its leases ends",
			  model_name(version->model), version->tag);
		return;
	}
	*freeing = (struct freeing){.server = server, .version = version, .left = count};
	version->user = freeing;
	for (uint32_t i = 0; i < count; i++) {
		struct grant *grant = grant_new(&version->replicas[i].charge);

		segment_close(&server->loop, &version->replicas[i], grant, on_part_closed, freeing);
	}
}

int versions_retire(struct server *server, struct version *version, bool *ret_freed, struct error *error)
{
	bool before = version->state == VERSION_RETIRING;
	int r = registry_retire(server->registry, version, error);

	if (r < 0)
		return r;
	if (!before)
		tell(server, EVENT_RETIRING, version);
	waiters_wake(server, WAIT_READY, version);
	*ret_freed = version_unused(version);
	versions_free_unused(server, version);
	return 0;
}

void versions_retire_all(struct server *server)
{
	struct version *version = registry_next_version(server->registry, NULL, NULL), *next;
	bool freed_now;

	registry_remove_aliases(server->registry);
	for (; version; version = next) {
		next = registry_next_version(server->registry, NULL, version);
		if (version->state == VERSION_READY)
			versions_retire(server, version, &freed_now, NULL);
	}
}
