/* Which versions may move where. */
#include "tiers.h"

#include "../../net/session.h"
#include "../../restart/keeping.h"
#include "../versions/sharing.h"
#include "tiers_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is in the way ---- */

static int check_open(const struct work *work, struct error *error)
{
	if (work->draining)
		return error_set(error, -ESHUTDOWN, NULL, "gpuwmd lets everything go");
	return 0;
}

static int check_ready(const struct version *version, struct error *error)
{
	const char *model = model_name(version->model);

	if (version->state != VERSION_READY || version->freeing)
		return error_set(error, -EINVAL, "only ready versions move to another tier", "%s@%s is %s",
				 model, version->tag,
				 version->freeing ? "being freed" : version_state_name(version->state));
	return version_check_sound(version, error);
}

static int is_moving(const struct version *version, struct error *error)
{
	const struct tier_move *move = version->move;
	uint64_t jobs[PARTS_PER_VERSION_MAX];
	char detail[64] = "wait for the end of that";

	if (tiers_jobs(version, jobs) > 0)
		snprintf(detail, sizeof(detail), "wait for job %llu, or cancel it",
			 (unsigned long long)jobs[0]);
	if (move->describes)
		return error_set(error, -EBUSY, detail, "files are being compared with %s", move->name);
	if (move->copies)
		return error_set(error, -EBUSY, detail, "a host copy of %s is being made", move->name);
	return error_set(error, -EBUSY, detail, "%s is on its way from %s to %s", move->name,
			 tier_name(move->from), tier_name(move->to));
}

/* As many as a line has room for. */
#define HOLDERS_SHOWN 4

static int has_leases(const struct version *version, struct error *error)
{
	const uint64_t awake = version_awake_leases(version);
	char names[TEXT_BYTES_MAX + 1] = "wait until nobody holds it; it is held by: ";
	size_t used = strlen(names);
	unsigned shown = 0;

	for (const struct lease *lease = version->leases;
	     lease && shown < HOLDERS_SHOWN && used < sizeof(names); lease = lease->next_of_version) {
		const struct peer *peer = &((const struct session *)lease->holder)->peer;

		if (lease->parked)
			continue;
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s (pid %d, uid %u)",
					 shown++ ? ", " : "", peer->command, (int)peer->pid,
					 (unsigned)peer->uid);
	}
	if (awake > shown && used < sizeof(names))
		snprintf(names + used, sizeof(names) - used, " and more");
	return error_set(error, -EBUSY, names, "%s@%s has %llu lease%s", model_name(version->model),
			 version->tag, (unsigned long long)awake, awake == 1 ? "" : "s");
}

static int check_unused(const struct work *work, const struct version *version, struct error *error)
{
	const char *model = model_name(version->model);
	const uint64_t grace = keeping_await_ms(work->keeping);
	const struct tier_move *sharing = tiers_sharing(work, version);
	int r = version_check_unpinned(version, error);

	if (r < 0)
		return r;
	if (version_awake_leases(version) > 0)
		return has_leases(version, error);
	if (grace > 0)
		return error_set(error, -EBUSY, "try again then",
				 "gpuwmd has restarted, and leases of %s@%s may come back for %llu s more",
				 model, version->tag, (unsigned long long)(grace + 999) / 1000);
	if (sharing)
		return error_set(error, -EBUSY, "wait for the end of that",
				 "%s is on its way to %s, and will share segments of %s@%s there",
				 sharing->name, tier_name(sharing->to), model, version->tag);
	for (const struct job *job = work->jobs.first; job; job = job->next) {
		if (sharing_of(job) == version)
			return error_set(error, -EBUSY, "wait for the end of that job",
					 "job %llu (%s@%s) shares segments of %s@%s",
					 (unsigned long long)job->id, job->model, job->tag, model,
					 version->tag);
	}
	return 0;
}

static int check_kind(const struct version *version, struct error *error)
{
	if (version_is_nameless(version))
		return error_set(error, -EINVAL, NULL, "%s@%s has no name: it goes with its last lease",
				 model_name(version->model), version->tag);
	if (version->cache.cached)
		return error_set(error, -EINVAL, "retire it instead", "%s@%s is cached, and can be built again",
				 model_name(version->model), version->tag);
	return 0;
}

static bool is_all_on_host(const struct version *version)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (version->replicas[i].device->kind->is_gpu)
			return false;
	}
	return true;
}

static int check_way(const struct version *version, enum tier to, struct error *error)
{
	const char *model = model_name(version->model);
	char remedy[3 * NAME_BYTES_MAX];

	if (tier_is_resident(to) || to < version->tier)
		return error_set(error, -EINVAL, "gpuwmctl promote brings it back to its devices",
				 "%s@%s lies on %s, so it is not demoted to %s", model, version->tag,
				 tier_name(version->tier), tier_name(to));
	if (tier_kinds[to].device && is_all_on_host(version))
		return error_set(error, -EINVAL, "demote it to files",
				 "%s@%s lies in host memory already: that is its device", model, version->tag);
	if (tier_has_memory(to) || description_has_files(version->description))
		return 0;
	snprintf(remedy, sizeof(remedy), "gpuwmctl save %s@%s FOLDER writes files for it", model, version->tag);
	return error_set(error, -EINVAL, remedy,
			 "%s@%s has no source: no files are known from which it would come back", model,
			 version->tag);
}

/* ---- beginning ---- */

/* What all moves have in common. */
struct wish {
	enum tier to;
	const struct description *describes;
	const struct tiers_who *who;
	const char *reason;
	bool by_attach;
	bool copies;
};

static int move_begin(struct work *work, struct version *version, const struct wish *wish, struct error *error)
{
	struct tier_move *move = move_new(work, version, wish->to, wish->describes);
	uint64_t bytes;
	int r;

	if (!move)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	move->who = *wish->who;
	move->by_attach = wish->by_attach;
	move->copies = wish->copies;
	snprintf(move->reason, sizeof(move->reason), "%s", wish->reason);
	r = tiers_place(move, &bytes, error);
	if (r == 0)
		r = tiers_start(move, error);
	if (r < 0) {
		move_free(move);
		return r;
	}
	move_list(move);
	tiers_settle_empty(move);
	return 0;
}

/* A host copy is being made. On the way to host, it becomes the version's memory; else it is in the way, and ends. */
static int demote_copying(struct work *work, struct version *version, const struct wish *wish,
			  struct error *error)
{
	struct tier_move *move = version->move;
	struct error why;
	int r = check_way(version, wish->to, error);

	if (r == 0)
		r = check_unused(work, version, error);
	if (r < 0)
		return r;
	if (wish->to != move->to || move->error.code) {
		r = is_moving(version, error);
		error_set(&why, -ECANCELED, NULL, "%s is to leave for %s", move->name, tier_name(wish->to));
		moves_stop(work, version, &why);
		return r;
	}
	move->copies = version->copying = false;
	version->moving_to = move->to;
	move->who = *wish->who;
	snprintf(move->reason, sizeof(move->reason), "%s", wish->reason);
	work_later(work, LATER_TURN); /* it goes before others now */
	return 0;
}

int tiers_demote(struct work *work, struct version *version, enum tier to, const struct tiers_who *who,
		 const char *reason, struct error *error)
{
	const struct wish wish = {.to = to, .who = who, .reason = reason};
	int r = check_open(work, error);

	if (r == 0)
		r = check_ready(version, error);
	if (r == 0)
		r = check_kind(version, error);
	if (r < 0 || (!version->move && version->tier == to))
		return r;
	if (version->copying)
		return demote_copying(work, version, &wish, error);
	if (version->move && !version->move->describes && version->move->to == to)
		return 0;
	r = version->move ? is_moving(version, error) : check_way(version, to, error);
	if (r == 0)
		r = check_unused(work, version, error);
	return r < 0 ? r : move_begin(work, version, &wish, error);
}

int tiers_copy(struct work *work, struct version *version, const struct tiers_who *who, struct error *error)
{
	const struct wish wish = {.to = ON_HOST, .who = who, .reason = "host_copy = yes", .copies = true};
	int r = check_open(work, error);

	if (r == 0)
		r = check_ready(version, error);
	if (r == 0)
		r = check_kind(version, error);
	if (r == 0)
		r = version->move ? is_moving(version, error) : check_way(version, ON_HOST, error);
	return r < 0 ? r : move_begin(work, version, &wish, error);
}

static int promote(struct work *work, struct version *version, const struct wish *wish, struct error *error)
{
	int r = check_open(work, error);

	if (r == 0)
		r = check_ready(version, error);
	for (uint32_t i = 0; r == 0 && i < version->replica_count; i++)
		r = device_check_there(version->replicas[i].device, error);
	if (r < 0)
		return r;
	r = move_begin(work, version, wish, error);
	if (r < 0)
		return r;
	version->promotion = ++work->promotions;
	free(version->promotion_error);
	version->promotion_error = NULL;
	return 0;
}

int tiers_promote(struct work *work, struct version *version, const struct tiers_who *who, const char *reason,
		  struct error *error)
{
	const struct wish wish = {.to = ON_DEVICE, .who = who, .reason = reason};

	if (version->move && !version->move->describes && tier_is_resident(version->move->to))
		return 0;
	if (version_is_resident(version)) {
		moves_stop_demotion(work, version, "an operator");
		return 0;
	}
	return version->move ? is_moving(version, error) : promote(work, version, &wish, error);
}

int tiers_describe(struct work *work, struct version *version, const struct description *description,
		   const struct tiers_who *who, struct error *error)
{
	const struct wish wish = {
		.to = version->tier, .describes = description, .who = who, .reason = "described"};
	int r = check_open(work, error);

	if (r == 0)
		r = check_ready(version, error);
	if (r == 0)
		r = check_kind(version, error);
	if (r == 0 && version->move)
		r = is_moving(version, error);
	return r < 0 ? r : move_begin(work, version, &wish, error);
}

uint32_t tiers_jobs(const struct version *version, uint64_t ret[PARTS_PER_VERSION_MAX])
{
	const struct tier_move *move = version->move;
	uint32_t count = 0;

	for (uint32_t i = 0; move && i < move->part_count; i++) {
		if (move->parts[i].job)
			ret[count++] = move->parts[i].job->id;
	}
	return count;
}

/* ---- attaching ---- */

int tiers_attach(struct work *work, struct version *version, const struct tiers_who *who, uint64_t promotion,
		 uint64_t *ret_promotion, struct error *error)
{
	char reason[MOVE_REASON_BYTES + 1];
	const struct wish wish = {
		.to = ON_DEVICE, .who = who, .reason = reason, .by_attach = !who->by_operator};
	int r;

	snprintf(reason, sizeof(reason), "a process of uid %u attaches", (unsigned)who->uid);
	*ret_promotion = 0;
	if (version->move) {
		moves_stop_demotion(work, version, "an attach");
		if (tier_is_resident(version->move->to) && !version->move->describes)
			*ret_promotion = version->promotion;
		return 0;
	}
	if (promotion && promotion == version->promotion && version->promotion_error) {
		*error = *version->promotion_error;
		return error->code;
	}
	if (!who->by_operator && moves_by_attach(work, who->uid) >= PROMOTIONS_PER_UID_MAX)
		return error_set(
			error, -EDQUOT, "wait for some of them, or ask an operator to promote the version",
			"attaches of uid %u have begun %d promotions that go on, and one user may have no more",
			(unsigned)who->uid, PROMOTIONS_PER_UID_MAX);
	r = promote(work, version, &wish, error);
	if (r == 0)
		*ret_promotion = version->promotion;
	return r;
}
