/* The end of a publish, for the metrics and the audit. */
#include "versions_internal.h"
#include "../../base/metrics.h"
#include "../../net/session.h"
#include "../../../base/bytes.h"

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
