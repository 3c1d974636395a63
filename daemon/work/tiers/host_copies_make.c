/* Host copies that gpuwmd makes in the background, as `host_copy = yes` of a section [model.N] says. */
#include "tiers.h"

#include "../../../base/clock.h"
#include "../../../service/log.h"
#include "../../clients/access.h"
#include "../../ledger/relocation.h"
#include "host_copies.h"

static bool wants_copy(const struct work *work, const struct version *version)
{
	const struct rule *rule = access_rule(work->clients, version->model);

	return rule && rule->tiers.host_copy == HOST_COPY_YES && version->state == VERSION_READY &&
	       version_is_resident(version) && !version->freeing && !version->tainted &&
	       !version->cache.cached && !version_is_nameless(version) &&
	       version_may_lie_on(version, ON_HOST) && !version_has_whole_copy(version) &&
	       version->copy_again_ms <= clock_wall_ms();
}

static bool copy_fits(const struct work *work, const struct version *version)
{
	uint64_t bytes = 0, fds = 0;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *part = &version->replicas[i];

		bytes += part->spares ? 0 : part->bytes;
		fds += part->spares ? 0 : part->segment_count;
	}
	return host_copies_fit(work, bytes, fds);
}

static bool others_are_busy(const struct work *work)
{
	const struct job *job = work->jobs.first;

	while (job && (job_ended(job) || job->is_routine))
		job = job->next;
	return job || work->moves;
}

/* For copies that failed, some of them later than others. */
static void on_copy_again(uv_timer_t *timer)
{
	struct work *work = timer->data;

	work_later(work, LATER_TURN);
	if (!rules_make_host_copies(&work->config->rules))
		uv_timer_stop(timer);
}

static void copy_make(struct work *work, struct version *version)
{
	static const struct tiers_who by_rule = {.by_operator = true};
	struct error why;

	if (tiers_copy(work, version, &by_rule, &why) < 0) {
		log_info("%s@%s gets no host copy now: %s", model_name(version->model), version->tag,
			 why.message);
		version->copy_again_ms = clock_wall_ms() + DEMOTE_AGAIN_MS;
	}
	if (uv_is_active((uv_handle_t *)&work->host_copies_timer))
		return;
	uv_update_time(work->loop);
	uv_timer_start(&work->host_copies_timer, on_copy_again, DEMOTE_AGAIN_MS, DEMOTE_AGAIN_MS);
}

void host_copies_make(struct work *work)
{
	struct version *version = NULL;

	if (!work_is_due(work, LATER_TURN) || work->draining || work->net->stopping ||
	    !rules_make_host_copies(&work->config->rules) || others_are_busy(work))
		return;
	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (wants_copy(work, version) && copy_fits(work, version)) {
			copy_make(work, version);
			return;
		}
	}
}
