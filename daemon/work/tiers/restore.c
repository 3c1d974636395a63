#include "restore.h"

#include "tiers.h"
#include "../../ledger/relocation.h"
#include "../work.h"
#include "../../base/metrics.h"

#include <stdlib.h>
#include <string.h>

/* As many promotions as keep a reader of files and a copy to a GPU busy; more only take turns. As many more come from other nodes, which
 * may wait for each other: a node that starts as well has the content when its own files are read. */
#define RESTORE_AT_ONCE 2

/* ---- the order ---- */

enum need { NEED_CURRENT, NEED_ALIAS, NEED_PIN, NEED_NONE };

static enum need need_of(const struct registry *registry, const struct version *version)
{
	const struct alias *alias = NULL;
	const char *model;
	enum need need = version->pin_count > 0 ? NEED_PIN : NEED_NONE;

	while ((alias = registry_next_alias(registry, model_name(version->model), alias, &model))) {
		if (alias->version != version)
			continue;
		if (strcmp(alias->name, ALIAS_CURRENT) == 0)
			return NEED_CURRENT;
		need = NEED_ALIAS;
	}
	return need;
}

static bool goes_before(const struct registry *registry, const struct version *a, const struct version *b)
{
	const enum need x = need_of(registry, a), y = need_of(registry, b);

	return x != y ? x < y : a->last_used_ms > b->last_used_ms;
}

static bool waits(const struct version *version)
{
	return version->restores && !version->restore_failed && version->state == VERSION_READY;
}

/* Returns whether a version from files is still to come that shares memory with this one, which nodes have. It goes first: it would wait
 * for this one, and need not, because nodes may not have it. */
static bool awaits_akin(struct registry *registry, const struct version *version)
{
	struct version *other = NULL;

	while ((other = registry_next_version(registry, NULL, other))) {
		if (waits(other) && description_has_files(other->description) && !other->move &&
		    !other->promotion_error && version_is_akin(version, other))
			return true;
	}
	return false;
}

/* The next one that comes from files, or from nodes. NULL: there is none, or enough of them are on their way. */
static struct version *next_of(const struct work *work, bool from_files)
{
	struct registry *registry = work->ledger->registry;
	struct version *version = NULL, *next = NULL;
	unsigned running = 0;

	while ((version = registry_next_version(registry, NULL, version))) {
		if (!waits(version) || description_has_files(version->description) != from_files)
			continue;
		if (version->move)
			running++;
		else if (!version->promotion_error && (!next || goes_before(registry, version, next)) &&
			 (from_files || !awaits_akin(registry, version)))
			next = version;
	}
	return running < RESTORE_AT_ONCE ? next : NULL;
}

/* ---- one version ---- */

static void restore_note_failed(struct work *work, struct version *version, const struct error *why)
{
	version->restore_failed = true;
	work->restore.failed++;
	metrics_count(work->net->metrics, METRIC_RESTORES_FAILED, 1);
	log_error("%s@%s is not restored, and stays on %s: %s%s%s", model_name(version->model), version->tag,
		  tier_name(version->tier), why->message, why->detail[0] ? ": " : "", why->detail);
}

static void promote(struct work *work, struct version *version)
{
	static const struct tiers_who by_rule = {.by_operator = true, .restores = true};
	struct error error = {0};

	if (tiers_promote(work, version, &by_rule, "it was resident before gpuwmd started", &error) < 0) {
		/* So that `list` shows it, also of a promotion that did not begin. */
		if (!version->promotion_error)
			version->promotion_error = malloc(sizeof(error));
		if (version->promotion_error)
			*version->promotion_error = error;
	}
	if (!version->move && !version->promotion_error) /* there was no memory for it */
		restore_note_failed(work, version, &error);
}

/* Attaches promote too. */
static void note_back(struct work *work)
{
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (!version->restores || !version_is_resident(version))
			continue;
		version->restores = false;
		/* One that was given up has been counted, and without `restore` none is. */
		if (version->restore_failed || !work->restore.left)
			continue;
		work->restore.done++;
		metrics_count(work->net->metrics, METRIC_RESTORED, 1);
	}
}

static uint64_t note_ends(struct work *work)
{
	struct version *version = NULL;
	uint64_t left = 0;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (!waits(version))
			continue;
		if (!version->move && version->promotion_error)
			restore_note_failed(work, version, version->promotion_error);
		else
			left++;
	}
	return left;
}

/* ---- all ---- */

static bool loads_wait(const struct work *work)
{
	for (const struct job *job = work->jobs.first; job; job = job->next) {
		if (job->kind == JOB_LOAD && !job_ended(job))
			return true;
	}
	return false;
}

/* While loads wait, it is looked at again whenever the loop has turned. */
void restore_settle(struct work *work)
{
	struct restore *restore = &work->restore;
	struct version *next;

	if (!work_is_due(work, LATER_RESTORE) || work->draining)
		return;
	note_back(work);
	if (restore->left && note_ends(work) > 0 && loads_wait(work))
		return;
	work_done(work, LATER_RESTORE);
	if (!restore->left)
		return;
	while ((next = next_of(work, true)) || (next = next_of(work, false)))
		promote(work, next);
	if (note_ends(work) > 0)
		return;
	restore->left = false;
	log_info("versions that were resident before: %llu; they are back: %llu, they are not: %llu",
		 (unsigned long long)restore->total, (unsigned long long)restore->done,
		 (unsigned long long)restore->failed);
}

void restore_begin(struct work *work, uint64_t described)
{
	struct version *version = NULL;
	struct restore *restore = &work->restore;

	restore->described = described;
	while ((version = registry_next_version(work->ledger->registry, NULL, version)))
		restore->total += waits(version);
	restore->left = work->config->tiers_restore && restore->total > 0;
	if (restore->left)
		work_later(work, LATER_RESTORE);
	if (described > 0)
		log_info("versions found in the folder of descriptions: %llu; they were resident, and %s: %llu",
			 (unsigned long long)described,
			 work->config->tiers_restore ? "come back" : "stay on files",
			 (unsigned long long)restore->total);
}
