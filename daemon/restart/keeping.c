#include "keeping_internal.h"

#include "../base/pids.h"
#include "../../base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exit status when the state can't be written; sysexits.h calls it EX_IOERR. */
#define EXIT_STATE 74

struct keeping *keeping_new(uv_loop_t *loop, const struct config *config, struct ledger *ledger,
			    const struct version_id *fresh, keeping_over_fn *over, void *data)
{
	struct keeping *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->grace = malloc(sizeof(*k->grace));
	if (!k->grace) {
		free(k);
		return NULL;
	}
	k->descriptions = descriptions_new(loop, ledger);
	k->unread = calloc(1, sizeof(*k->unread));
	if (!k->descriptions || !k->unread) {
		descriptions_free(k->descriptions);
		free(k->unread);
		free(k->grace);
		free(k);
		return NULL;
	}
	uv_timer_init(loop, k->grace);
	k->grace->data = k;
	k->loop = loop;
	k->config = config;
	k->ledger = ledger;
	k->over = over;
	k->data = data;
	k->left = inherited_none;
	k->id = *fresh;
	k->epoch = 1;
	k->next_name = 1;
	return k;
}

static void on_timer_closed(uv_handle_t *handle)
{
	free(handle);
}

void keeping_end(struct keeping *k)
{
	keeping_leave(k);
	awaited_end(k->awaited);
	uv_close((uv_handle_t *)k->grace, on_timer_closed);
	descriptions_end(k->descriptions);
}

struct keeping *keeping_free(struct keeping *k)
{
	if (!k)
		return NULL;
	inherited_clear(&k->left);
	if (k->unread)
		unread_records_clear(k->unread);
	free(k->unread);
	descriptions_free(k->descriptions);
	awaited_free(k->awaited);
	state_free(k->state);
	free(k);
	return NULL;
}

bool keeping_stores(const struct keeping *k)
{
	return k->state != NULL;
}

const struct error *keeping_locked(const struct keeping *k)
{
	return k->locked.code ? &k->locked : NULL;
}

const struct version_id *keeping_ledger(const struct keeping *k)
{
	return &k->id;
}

uint64_t keeping_epoch(const struct keeping *k)
{
	return k->epoch;
}

uint64_t keeping_adopted(const struct keeping *k)
{
	return k->adopted;
}

uint64_t keeping_lost(const struct keeping *k)
{
	return k->lost;
}

uint64_t keeping_unread(const struct keeping *k)
{
	return k->unread->count;
}

void keeping_describe(struct keeping *k)
{
	if (!k->locked.code)
		descriptions_open(k->descriptions, k->config->tiers_folder);
}

void keeping_settle_descriptions(struct keeping *k)
{
	descriptions_settle(k->descriptions);
}

int keeping_keep_descriptions(struct keeping *k, struct error *error)
{
	int r = descriptions_freeze(k->descriptions, error);

	if (r < 0)
		return r;
	k->has_described = false;
	keeping_save(k);
	return 0;
}

struct descriptions *keeping_descriptions(const struct keeping *k)
{
	return k->descriptions;
}

bool keeping_knows_devices(const struct keeping *k)
{
	return k->knows_devices;
}

uint64_t keeping_found(const struct keeping *k)
{
	return k->found;
}

/* ---- saving ---- */

struct snapshot keeping_snapshot(const struct keeping *k)
{
	return (struct snapshot){
		.ledger = k->id,
		.epoch = k->epoch,
		.next_name = k->next_name,
		.scrub_from_ms = k->ledger->scrub_from_ms,
		.described = k->has_described,
		.registry = k->ledger->registry,
		.devices = &k->ledger->devices,
		.claims = k->ledger->claims,
		.regions = &k->ledger->regions,
		.quota = k->ledger->quota,
		.unread = k->unread,
	};
}

int keeping_write(const struct keeping *k)
{
	const struct snapshot snapshot = keeping_snapshot(k);
	struct message_writer w;
	int r;

	message_writer_init(&w, MESSAGE_BODY_MAX);
	snapshot_put(&w, &snapshot);
	r = message_finish(&w);
	if (r == 0)
		r = state_write(k->state, w.buffer.data, w.buffer.size);
	message_writer_clear(&w);
	return r;
}

void keeping_save(struct keeping *k)
{
	int r = k->state ? keeping_write(k) : 0;

	descriptions_mark(k->descriptions);
	if (r == 0)
		return;
	log_error(
		"the state can't be written (%s): gpuwmd ends, the next one goes on from what was acknowledged. It "
		"is a memfd: see RLIMIT_FSIZE, and the memory of the machine and of gpuwmd's control group",
		strerror(-r));
	_exit(EXIT_STATE);
}

struct store_batch *keeping_batch_new(const struct keeping *k, size_t count)
{
	return store_batch_new(count, k->config->store_confirm_ms);
}

void keeping_add(struct keeping *k, struct store_batch *batch, uint64_t *name, int fd)
{
	if (*name > 0)
		return;
	*name = k->next_name++;
	store_batch_add(batch, *name, fd);
}

static void keeping_add_part(struct keeping *k, struct store_batch *batch, struct replica *part)
{
	keeping_add(k, batch, &part->index.name, part->index.fd);
	for (uint32_t i = 0; i < part->segment_count; i++) {
		struct segment *segment = part->segments[i].segment;

		keeping_add(k, batch, &segment->name, segment->fd);
	}
}

static void keeping_remove_part(struct store_batch *batch, const struct replica *part)
{
	store_batch_add(batch, part->index.name, -1);
	for (uint32_t i = 0; i < part->segment_count; i++) {
		const struct segment_hold *hold = &part->segments[i];

		if (hold->last)
			store_batch_add(batch, hold->segment->name, -1);
	}
}

struct store_batch *keeping_batch(struct keeping *k, struct version *version, bool put)
{
	struct store_batch *batch;
	size_t fds = 0; /* at most: segments that another version has in the store stay out */

	for (uint32_t i = 0; i < version->replica_count; i++)
		fds += version->replicas[i].segment_count + 1;
	batch = keeping_batch_new(k, fds);
	if (batch && !put)
		version_let_go(version);
	for (uint32_t i = 0; batch && i < version->replica_count; i++) {
		if (put)
			keeping_add_part(k, batch, &version->replicas[i]);
		else
			keeping_remove_part(batch, &version->replicas[i]);
	}
	return batch;
}

void keeping_not_removed(struct keeping *k, const struct version *version)
{
	uint64_t max = registry_fds_max(k->ledger->registry), count = 0;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *part = &version->replicas[i];

		count++;
		for (uint32_t j = 0; j < part->segment_count; j++)
			count += part->segments[j].last;
	}
	ledger_set_fds_max(k->ledger, max > count ? max - count : 0);
}

/* ---- grace ---- */

static void on_grace_over(uv_timer_t *timer)
{
	struct keeping *k = timer->data;
	const uint64_t missing = awaited_count(k->awaited);

	k->grace_until_ms = 0;
	awaited_give_up(k->awaited);
	awake_trust(registry_awake(k->ledger->registry), pid_namespace_id());
	if (missing > 0)
		log_info("leases of before the restart whose processes live and have not come back: %llu",
			 (unsigned long long)missing);
	log_info("the grace time is over: what nobody holds may be freed");
	k->over(k->data, false);
}

static void on_all_back(void *data)
{
	struct keeping *k = data;

	log_info("all processes that mapped versions are back, or gone: versions may leave their devices");
	k->over(k->data, true);
}

uint64_t keeping_grace_ms(const struct keeping *k)
{
	return clock_due_in_ms(k->grace_until_ms);
}

uint64_t keeping_await_ms(const struct keeping *k)
{
	return k->awaited && awaited_count(k->awaited) == 0 ? 0 : keeping_grace_ms(k);
}

uint64_t keeping_awaited(const struct keeping *k)
{
	return awaited_count(k->awaited);
}

void keeping_back(const struct keeping *k, uint64_t lease, pid_t pid, uid_t uid)
{
	awaited_back(k->awaited, lease, pid, uid);
}

uint64_t keeping_take_room(const struct keeping *k, uint64_t lease, pid_t pid, uid_t uid)
{
	return awaited_take_room(k->awaited, lease, pid, uid);
}

void keeping_leave(const struct keeping *k)
{
	if (k->ledger->registry) /* a start may have failed before there was one */
		registry_keep_awake(k->ledger->registry);
}

/* Without memory for it gpuwmd waits the whole grace time. */
static void await_leases(struct keeping *k)
{
	struct awake_book *book = registry_awake(k->ledger->registry);
	const uint64_t pid_namespace = pid_namespace_id();
	size_t bytes;
	void *notes = k->state ? state_notes(k->state, &bytes) : NULL;

	if (!notes) /* or gpuwmd is locked */
		return;
	if (awake_begin(book, notes, bytes, pid_namespace))
		k->awaited = awaited_new(k->loop, book, &k->ledger->devices, on_all_back, k);
	else if (k->adopted == 0)
		awake_trust(book, pid_namespace);
}

void keeping_begin_grace(struct keeping *k)
{
	uint64_t grace = k->config->grace_ms;

	await_leases(k);
	if (k->adopted == 0)
		return;
	if (grace > 0)
		k->grace_until_ms = clock_steady_ms() + grace;
	uv_update_time(k->loop); /* its clock stood still while versions were taken over */
	uv_timer_start(k->grace, on_grace_over, grace, 0);
}
