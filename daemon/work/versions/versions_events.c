#include "versions_internal.h"
#include "../../base/metrics.h"
#include "../../base/probe.h"
#include "../../net/session.h"
#include "../../../base/bytes.h"

/* The model is there: the version is. */
static void emit(struct work *work, const struct message_form *form, const void *event,
		 const struct model *model)
{
	event_emit(work->ledger->events, form, event,
		   &(struct event_about){.model = model_name(model), .owner = model_owner(model)});
}

/* event: what it has besides the version's names. */
static void version_tell(struct work *work, const struct message_form *form, const struct version *version,
			 struct version_event event)
{
	if (version_is_nameless(
		    version)) /* they come and go by the thousand, and nobody but their users knows them */
		return;
	event.version = &version->id;
	event.model = model_name(version->model);
	event.tag = version->tag;
	emit(work, form, &event, version->model);
}

void tell_version(struct work *work, const struct message_form *form, const struct version *version)
{
	version_tell(work, form, version, (struct version_event){0});
}

void tell_retiring(struct work *work, const struct version *version, const uint64_t *after_ms)
{
	version_tell(work, &event_retiring, version, (struct version_event){.force_in_ms = after_ms});
}

void tell_failed(struct work *work, const struct version *version)
{
	version_tell(work, &event_failed, version, (struct version_event){.error = &version->error});
}

void tell_tainted(struct work *work, const struct version *version, const struct replica *replica,
		  const struct error *found)
{
	version_tell(
		work, &event_tainted, version,
		(struct version_event){.device = replica->device->id, .rank = replica->rank, .error = found});
}

void versions_tell_moved(struct work *work, const struct version *version, enum tier from, enum tier to,
			 const char *reason)
{
	emit(work, to > from ? &event_demoted : &event_promoted,
	     &(struct moved_event){
		     .version = &version->id,
		     .model = model_name(version->model),
		     .tag = version->tag,
		     .from = tier_name(from),
		     .to = tier_name(to),
		     .reason = reason,
	     },
	     version->model);
}

void tell_swapped(struct work *work, const char *model, const char *alias, const struct swap_result *result)
{
	metrics_count(work->net->metrics, METRIC_SWAPS, 1);
	PROBE4(swap, model, alias, result->now ? result->now->tag : "", result->old ? result->old->tag : "");
	emit(work, &event_swapped,
	     &(struct swapped_event){
		     .model = model,
		     .alias = alias,
		     .version = result->now ? &result->now->id : NULL,
		     .old = result->old ? &result->old->id : NULL,
		     .generation = result->generation,
	     },
	     registry_model(work->ledger->registry, model));
}

/* ---- what the metrics and the audit are told ---- */

/* A process that has a part in the publish, or had one; NULL: all of them have left. */
static struct session *publisher_of(const struct work *work, const struct publish *publish)
{
	for (struct session *s = work->net->sessions; s; s = s->next) {
		for (uint32_t i = 0; i < publish->part_count; i++) {
			if (publish->parts[i].publisher == s || publish->parts[i].beginner == s)
				return s;
		}
	}
	return NULL;
}

static void say_publish(const struct publish *publish, struct audit *ret)
{
	const struct version *version = publish->version;
	char text[BYTES_TEXT];
	uint64_t bytes = 0;

	*ret = (struct audit){.method = "publish", .has_begun = true};
	for (uint32_t i = 0; i < version->replica_count; i++)
		bytes += version->replicas[i].bytes;
	audit_version(ret, version);
	audit_say(ret, "%s@%s", ret->model, ret->tag);
	if (bytes > 0) /* they are known when the part was checked */
		audit_say(ret, ", %s in %u part%s", bytes_format(bytes, text), version->replica_count,
			  version->replica_count == 1 ? "" : "s");
	if (publish->alias[0])
		audit_say(ret, ", alias %s", publish->alias);
}

void published_look(struct work *work, const struct publish *publish, struct published *ret)
{
	const struct version *version = publish->version;

	/* Whoever asked for a load is told of its job. */
	*ret = (struct published){.owner = version->owner, .is_load = jobs_load(&work->jobs, version)};
	ret->is_told = !ret->is_load && !version_is_nameless(version);
	if (!ret->is_told)
		return;
	say_publish(publish, &ret->audit);
	ret->session = publisher_of(work, publish);
}

void published_tell(struct work *work, const struct published *end, const struct error *failed)
{
	if (!end->is_load)
		metrics_count(work->net->metrics, failed ? METRIC_PUBLISHES_FAILED : METRIC_PUBLISHES, 1);
	if (!end->is_told)
		return;
	if (end->session)
		audit_tell(end->session, &end->audit, failed);
	else
		audit_tell_of_user(work->clients, end->owner, &end->audit, failed);
}
