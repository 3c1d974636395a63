/* What a gpuwmd finds at its start: the ledger and the descriptors of the one before, or none. */
#include "keeping_internal.h"

#include "inherited.h"
#include "../ledger/closing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- taking over ---- */

static int keeping_look_at_fd(void *data, uint64_t name, int wanted, uint64_t bytes)
{
	int fd = inherited_look(data, name), seals, r;
	uint64_t has;

	if (fd < 0)
		return SNAPSHOT_FD_MISSING;
	if (wanted == 0)
		return SNAPSHOT_FD_HERE;
	seals = memfd_seals(fd);
	if (seals == -EINVAL)
		return SNAPSHOT_FD_OTHER;
	r = seals < 0 ? seals : memfd_bytes(fd, &has);
	if (r < 0)
		return r;
	return (seals & wanted) == wanted && has >= bytes ? SNAPSHOT_FD_HERE : SNAPSHOT_FD_OTHER;
}

static int keeping_take_fd(void *data, uint64_t name)
{
	return inherited_take(data, name);
}

static int read_ledger(struct keeping *k, struct inherited *left, struct error *error)
{
	const struct snapshot_fds fds = {.look = keeping_look_at_fd, .take = keeping_take_fd, .data = left};
	struct snapshot snapshot = keeping_snapshot(k);
	struct snapshot_stored stored = {0};
	struct registry_counts counts;
	void *data = NULL;
	int r = state_open(left->state, &k->state, error);

	if (r < 0)
		return r;
	left->state = -1;
	r = state_read(k->state, &data, &stored.bytes, &stored.format);
	if (r < 0)
		return error_set(error, r, NULL, "the state can't be read: %s", strerror(-r));
	stored.data = data;
	r = snapshot_take(&stored, &fds, &snapshot, &k->lost, error);
	free(data);
	if (r < 0)
		return r;
	k->id = snapshot.ledger;
	k->epoch = snapshot.epoch + 1;
	if (k->next_name < snapshot.next_name)
		k->next_name = snapshot.next_name;
	k->has_described = snapshot.described;
	if (snapshot.scrub_from_ms)
		k->ledger->scrub_from_ms = snapshot.scrub_from_ms;
	counts = registry_counts(k->ledger->registry);
	k->adopted = counts.versions + counts.nameless;
	return 0;
}

#define UNREAD_REMEDY                                                                                          \
	"start the gpuwmd that wrote it; or give everything up: gpuwmctl drain, then restart gpuwmd"

/* The descriptors stay open, so that drain closes them here and not in the service manager. */
static int lock_unreadable(struct keeping *k, struct inherited *left, const struct error *why)
{
	struct ledger *ledger = k->ledger;

	k->state = state_free(k->state);
	unread_records_clear(k->unread);
	k->left = *left;
	*left = inherited_none;
	error_set(
		&k->locked, -EUCLEAN, UNREAD_REMEDY,
		"gpuwmd is locked: it can't read the stored state, and leaves all descriptors in the store: %s",
		why->message);
	log_error("%s (%s)", k->locked.message, k->locked.detail);
	/* Nothing of a ledger that was half read is used; it has taken no descriptor. */
	region_table_clear(&ledger->regions);
	registry_free(ledger->registry);
	claim_table_free(ledger->claims);
	device_table_clear(&ledger->devices);
	ledger->registry = registry_new();
	ledger->claims = claim_table_new();
	return ledger->registry && ledger->claims ? 0 : -ENOMEM;
}

void keeping_lock(struct keeping *k, const struct error *why)
{
	char remedy[sizeof(why->detail) + 128];

	snprintf(remedy, sizeof(remedy),
		 "%s; then: gpuwmctl reload (what the command line says, a restart of gpuwmd takes)",
		 why->detail[0] ? why->detail : "correct it");
	error_set(&k->locked, -EUCLEAN, remedy,
		  "gpuwmd is locked: it can't use its configuration, and keeps all that it holds: %s",
		  why->message);
	log_error("%s (%s)", k->locked.message, k->locked.detail);
}

static int begin_new(struct keeping *k, struct error *error)
{
	int r = state_new(&k->state);

	if (r == 0)
		r = keeping_write(k);
	if (r < 0)
		return error_set(
			error, r,
			"it is a memfd: see RLIMIT_FSIZE (ulimit -f, LimitFSIZE=), and the memory of the "
			"machine and of gpuwmd's control group",
			"the state can't be made: %s", strerror(-r));
	return store_put_now(STORE_STATE, state_fd(k->state), k->config->store_confirm_ms, error);
}

/* The names of what is left, each malloced by inherited or in `texts`. By the state's name nothing is
 * removed: ours would go with it. */
static size_t list_names(const struct inherited *left, char (*texts)[STORE_NAME_TEXT], const char **names)
{
	size_t count = 0;

	for (size_t i = 0; i < left->strange_count; i++) {
		if (strcmp(left->strange[i], STORE_STATE) != 0)
			names[count++] = left->strange[i];
	}
	for (size_t i = 0; i < left->count; i++) {
		if (left->ours[i].fd < 0)
			continue;
		store_name_format(left->ours[i].name, texts[i]);
		names[count++] = texts[i];
	}
	return count;
}

/* Closing may take long (57 ms a GiB), or for ever. */
static void close_left(struct keeping *k, struct inherited *left)
{
	int *fds = calloc(left->count + left->strange_count + 1, sizeof(*fds));
	size_t count = 0;

	for (size_t i = 0; fds && i < left->count; i++) {
		fds[count++] = left->ours[i].fd;
		left->ours[i].fd = -1;
	}
	for (size_t i = 0; fds && i < left->strange_count; i++) {
		fds[count++] = left->strange_fds[i];
		left->strange_fds[i] = -1;
	}
	if (fds)
		closing_fds(k->loop, fds, count);
	free(fds);
}

static int remove_left(struct keeping *k, struct inherited *left, struct error *error)
{
	size_t most = left->count + left->strange_count + 1, count;
	char(*texts)[STORE_NAME_TEXT] = calloc(most, sizeof(*texts));
	const char **names = calloc(most, sizeof(*names));
	int r = -ENOMEM;

	if (texts && names) {
		count = list_names(left, texts, names);
		if (count > 0)
			log_warning(
				"descriptors in the fd store that belong to no version and no region are let go: %zu",
				count);
		r = store_remove_now(names, count, k->config->store_confirm_ms, error);
	} else {
		error_set(error, r, NULL, "gpuwmd is out of memory");
	}
	free(texts);
	free(names);
	if (r == 0)
		close_left(k, left);
	return r;
}

static uint64_t count_left(const struct keeping *k)
{
	uint64_t count = k->left.strange_count;

	for (size_t i = 0; i < k->left.count; i++)
		count += k->left.ours[i].fd >= 0;
	return count;
}

/* What belongs to records that can't be read is not known, so all of it stays: to let it go would free memory which the program
 * that wrote them could still use. */
static void keep_left(struct keeping *k, struct inherited *left)
{
	const struct unread_record *record = k->unread->first;

	for (; record; record = record->next)
		log_error("%s: it is not used, and stays in the fd store (" UNREAD_REMEDY ")",
			  record->why.message);
	k->left = *left;
	*left = inherited_none;
	registry_adopt_fds(k->ledger->registry, count_left(k));
}

/* Before anything new is stored, what nobody knows is gone: an unfinished publish, mostly. */
static int take_over(struct keeping *k, struct inherited *left, struct error *error)
{
	bool found = left->state >= 0;
	struct error why;
	int r = 0;

	if (found)
		r = read_ledger(k, left, &why);
	else if (left->count > 0)
		r = error_set(&why, -EUCLEAN, NULL,
			      "the fd store has %zu descriptors of versions, but no state", left->count);
	if (r == -EUCLEAN)
		return lock_unreadable(k, left, &why);
	if (r < 0) {
		*error = why;
		return r;
	}
	/* The names of what nobody knows are not used again either. */
	if (left->count > 0 && left->ours[left->count - 1].name >= k->next_name)
		k->next_name = left->ours[left->count - 1].name + 1;
	if (k->unread->count > 0)
		keep_left(k, left);
	else
		r = remove_left(k, left, error);
	if (r == 0 && !found)
		return begin_new(k, error);
	if (r == 0)
		keeping_save(k);
	return r;
}

static void log_taken_over(const struct keeping *k)
{
	struct version *version = NULL;

	while ((version = registry_next_version(k->ledger->registry, NULL, version))) {
		if (version->state == VERSION_FAILED)
			log_error("%s", version->error.message);
	}
	if (k->unread->count > 0)
		log_error("records of the state that can't be read: %llu",
			  (unsigned long long)k->unread->count);
	if (k->adopted + k->lost > 0)
		log_info("start %llu with these weights: versions taken over: %llu, lost: %llu",
			 (unsigned long long)k->epoch, (unsigned long long)k->adopted,
			 (unsigned long long)k->lost);
}

static int begin_store(struct keeping *k, struct inherited *left, struct error *error)
{
	uint64_t limit = 0;
	struct error why;
	int r = store_limit(&limit, error);

	if (r < 0)
		return r;
	if (limit == 0 && (left->state >= 0 || left->count > 0)) {
		error_set(&why, -EUCLEAN, NULL,
			  "versions were passed, but no $FDSTORE says how many may be kept");
		return lock_unreadable(k, left, &why);
	}
	if (limit == 0) {
		log_info("no service manager keeps descriptors here: versions end with this process");
		return 0;
	}
	r = take_over(k, left, error);
	if (r < 0)
		return r;
	if (limit < STORE_FDS_OWN + 2)
		log_warning(
			"the fd store keeps %llu descriptors, gpuwmd itself needs %d of them: no version fits "
			"(FileDescriptorStoreMax= and FDSTORE= of its unit, --store-max of gpuwm-keeper)",
			(unsigned long long)limit, STORE_FDS_OWN);
	ledger_set_fds_max(k->ledger, limit > STORE_FDS_OWN ? limit - STORE_FDS_OWN : 0);
	keeping_begin_grace(k);
	log_taken_over(k);
	return 0;
}

/* ---- descriptions ---- */

/* The indices that came from the folder. */
static int store_indices(struct keeping *k, struct version *version, struct error *error)
{
	char name[STORE_NAME_TEXT];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < version->replica_count; i++) {
		struct held_fd *index = &version->replicas[i].index;

		if (index->name > 0)
			continue;
		index->name = k->next_name++;
		store_name_format(index->name, name);
		r = store_put_now(name, index->fd, k->config->store_confirm_ms, error);
	}
	return r;
}

/* A kill before the state is written has the next start do it again. */
static int take_descriptions(struct keeping *k, struct error *error)
{
	struct version *version = NULL;
	int r = 0;

	/* After an error gpuwmd serves without the folder, or without what did not come back. */
	if (descriptions_take(k->descriptions, !k->has_described, &k->found) == 0)
		k->has_described = k->config->tiers_folder[0];
	while (r == 0 && keeping_stores(k) && k->found > 0 &&
	       (version = registry_next_version(k->ledger->registry, NULL, version)))
		r = store_indices(k, version, error);
	if (r == 0)
		keeping_save(k);
	return r;
}

int keeping_begin(struct keeping *k, struct inherited *left, struct error *error)
{
	struct error why;
	int r = begin_store(k, left, error);

	if (r < 0 || k->locked.code)
		return r;
	k->knows_devices = k->ledger->devices.count > 0;
	keeping_describe(k);
	r = take_descriptions(k, error);
	descriptions_begin(k->descriptions);
	if (k->unread->count > 0 && keeping_keep_descriptions(k, &why) == 0)
		log_warning(
			"the folder of descriptions stays as it is: it may have versions that can't be read");
	return r;
}

int keeping_settle(const struct keeping *k, struct error *error)
{
	static const char detail[] = "the gpuwmd of the other keeper goes on";

	if (!store_is_on_trial())
		return 0;
	if (k->locked.code)
		return error_set(error, -EUCLEAN, detail, "%s", k->locked.message);
	if (k->unread->count > 0)
		return error_set(error, -EUCLEAN, detail, "%s", k->unread->first->why.message);
	if (k->lost > 0)
		return error_set(error, -EUCLEAN, detail,
				 "of the versions that another keeper handed over, %llu can't be adopted",
				 (unsigned long long)k->lost);
	return store_adopted_now(k->config->store_confirm_ms, error);
}

/* ---- letting go ---- */

int keeping_let_go(struct keeping *k, struct error *error)
{
	static const char *const state[] = {STORE_STATE};
	uint64_t count;
	int r;

	if (!k->locked.code && k->unread->count == 0)
		return 0;
	count = count_left(k);
	r = remove_left(k, &k->left, error);
	if (r == 0 && !k->locked.code) {
		registry_give_fds(k->ledger->registry, count);
		unread_records_clear(k->unread);
		keeping_save(k);
		return 0;
	}
	if (r == 0)
		r = store_remove_now(state, 1, k->config->store_confirm_ms, error);
	if (r == 0)
		error_set(&k->locked, -EUCLEAN, "restart gpuwmd: it begins empty",
			  "what gpuwmd could not read was let go");
	return r;
}
