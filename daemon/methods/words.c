#include "methods.h"
#include "../../base/bytes.h"

#include <stdio.h>
#include <string.h>

/* What a reference names now. An alias, or an id, is told with the name of its version. */
static void say_version(const struct request *request, const struct ref *ref, struct audit *audit)
{
	char id[VERSION_ID_TEXT];
	struct version *version;
	uint64_t generation;

	if (ref->has_id) {
		hex128_format(ref->id.bytes, id);
		audit_say(audit, "%s", id);
	} else {
		audit_say(audit, "%s@%s", ref->model, ref->name);
		snprintf(audit->model, sizeof(audit->model), "%s", ref->model);
		snprintf(audit->tag, sizeof(audit->tag), "%s", ref->name);
	}
	if (registry_find(request->server->ledger.registry, ref, &version, &generation, NULL) < 0)
		return;
	audit_version(audit, version);
	if (ref->has_id || strcmp(ref->name, version->tag) != 0)
		audit_say(audit, " (%s@%s)", audit->model, audit->tag);
}

/* What the alias has to name for it to move. */
static void say_expect(const struct version_id *expect, struct audit *audit)
{
	char id[VERSION_ID_TEXT];

	if (!expect)
		return;
	hex128_format(expect->bytes, id);
	audit_say(audit, ", if it is %s now", id);
}

/* ---- loads and jobs ---- */

bool words_load(const struct request *request, const void *given, struct audit *audit)
{
	const struct load_params *params = given;

	say_version(request, &params->name.ref, audit);
	audit_say(audit, " from %s", params->wish.source);
	if (params->wish.choice.ranks)
		audit_say(audit, ", cut into %llu ranks,", (unsigned long long)*params->wish.choice.ranks);
	for (uint32_t i = 0; i < params->wish.devices.count; i++)
		audit_say(audit, "%s%s", i ? ", " : " onto ", params->wish.devices.items[i]);
	if (params->wish.alias)
		audit_say(audit, ", alias %s%s", params->wish.alias,
			  params->retire_old ? " instead of the old" : "");
	say_expect(params->expect, audit);
	if (params->wish.share_with)
		audit_say(audit, ", sharing with %s", params->wish.share_with);
	if (params->wish.companion_of)
		audit_say(audit, ", as a companion");
	return !params->wish.dry_run;
}

bool words_cancel(const struct request *request, const void *given, struct audit *audit)
{
	const struct cancel_params *params = given;
	const struct job *job = job_find(&request->server->work.jobs, params->job);

	audit_say(audit, "job %llu", (unsigned long long)params->job);
	if (!job)
		return true;
	audit_say(audit, " (%s %s@%s)", job_kind_name(job->kind), job->model, job->tag);
	snprintf(audit->model, sizeof(audit->model), "%s", job->model);
	snprintf(audit->tag, sizeof(audit->tag), "%s", job->tag);
	return true;
}

bool words_verify(const struct request *request, const void *given, struct audit *audit)
{
	const struct verify_params *params = given;

	say_version(request, &params->ref.ref, audit);
	if (params->rank)
		audit_say(audit, ", rank %llu", (unsigned long long)*params->rank);
	if (params->device)
		audit_say(audit, ", on %s", params->device);
	if (params->source)
		audit_say(audit, ", its files");
	return true;
}

/* ---- publishes: those without a name come by the thousand, and nobody but their users knows them ---- */

bool words_publish_begin(const struct request *request, const void *given, struct audit *audit)
{
	const struct publish_begin_params *params = given;
	char bytes[BYTES_TEXT];

	if (!params->name.ref.model[0])
		return false;
	say_version(request, &params->name.ref, audit);
	audit_say(audit, ", rank %llu of %llu, %s on %s", (unsigned long long)params->rank,
		  (unsigned long long)params->world, bytes_format(params->bytes, bytes), params->device);
	if (params->alias)
		audit_say(audit, ", alias %s", params->alias);
	return true;
}

/* The id of a publish is a secret of its publishers. */
bool words_publish_commit(const struct request *request, const void *given, struct audit *audit)
{
	const struct publish_commit_params *params = given;
	const struct version *version = registry_by_publish(request->server->ledger.registry, params->publish);

	if (!version) {
		audit_say(audit, "an unknown publish");
		return true;
	}
	audit_version(audit, version);
	audit_say(audit, "%s@%s, rank %llu on %s", audit->model, audit->tag, (unsigned long long)params->rank,
		  params->device);
	return !version_is_nameless(version);
}

/* ---- versions ---- */

bool words_hot_swap(const struct request *request, const void *given, struct audit *audit)
{
	const struct hot_swap_params *params = given;

	(void)request;
	snprintf(audit->model, sizeof(audit->model), "%s", params->model);
	if (params->to)
		audit_say(audit, "%s: %s to %s%s", params->model, params->alias, params->to,
			  params->retire_old ? ", and retire the old" : "");
	else
		audit_say(audit, "%s: remove %s%s", params->model, params->alias,
			  params->retire_old ? ", and retire what it named" : "");
	say_expect(params->expect, audit);
	return true;
}

static bool say_pin(const struct request *request, const void *given, struct audit *audit)
{
	const struct pin_params *params = given;

	say_version(request, &params->ref.ref, audit);
	audit_say(audit, ", pin %s", params->pin);
	return true;
}

bool words_pin_version(const struct request *request, const void *given, struct audit *audit)
{
	return say_pin(request, given, audit);
}

bool words_unpin_version(const struct request *request, const void *given, struct audit *audit)
{
	return say_pin(request, given, audit);
}

bool words_demote(const struct request *request, const void *given, struct audit *audit)
{
	const struct demote_params *params = given;

	say_version(request, &params->ref.ref, audit);
	audit_say(audit, " to %s", params->to);
	return true;
}

bool words_promote(const struct request *request, const void *given, struct audit *audit)
{
	const struct promote_params *params = given;

	say_version(request, &params->ref.ref, audit);
	return true;
}

bool words_describe(const struct request *request, const void *given, struct audit *audit)
{
	const struct describe_params *params = given;

	say_version(request, &params->ref.ref, audit);
	audit_say(audit, " by %s", params->source);
	return true;
}

bool words_retire(const struct request *request, const void *given, struct audit *audit)
{
	const struct retire_params *params = given;

	say_version(request, &params->ref.ref, audit);
	if (params->force)
		audit_say(audit, " by force in %llu ms", (unsigned long long)params->after_ms);
	return true;
}

bool words_remove(const struct request *request, const void *given, struct audit *audit)
{
	const struct remove_params *params = given;

	say_version(request, &params->ref.ref, audit);
	return true;
}

/* ---- all that there is ---- */

bool words_kick(const struct request *request, const void *given, struct audit *audit)
{
	const struct kick_params *params = given;

	(void)request;
	if (params->lease)
		audit_say(audit, "lease %llu", (unsigned long long)*params->lease);
	if (params->pid)
		audit_say(audit, "pid %llu", (unsigned long long)*params->pid);
	if (params->uid)
		audit_say(audit, "uid %llu", (unsigned long long)*params->uid);
	return true;
}

bool words_drain(const struct request *request, const void *given, struct audit *audit)
{
	const struct drain_params *params = given;

	(void)request;
	if (params->device)
		audit_say(audit, "what was lost with %s", params->device);
	else
		audit_say(audit, "everything");
	return true;
}

bool words_reload(const struct request *request, const void *given, struct audit *audit)
{
	const char *file = request->server->config->file;

	(void)given;
	audit_say(audit, "%s", file ? file : "the flags");
	return true;
}

/* ---- regions ---- */

bool words_region_create(const struct request *request, const void *given, struct audit *audit)
{
	const struct region_create_params *params = given;
	char bytes[BYTES_TEXT];

	(void)request;
	audit_say(audit, "%s %s of %s on %s", params->kind, params->name ? params->name : "without a name",
		  bytes_format(params->bytes, bytes), params->device);
	return true;
}

bool words_region_remove(const struct request *request, const void *given, struct audit *audit)
{
	const struct region_remove_params *params = given;

	(void)request;
	audit_say(audit, "%s", params->region);
	return true;
}
