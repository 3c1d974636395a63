#include "keeping.h"

#include "clock.h"
#include "inherited.h"
#include "segment.h"
#include "server.h"
#include "snapshot.h"
#include "state.h"
#include "versions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exit status when the state can't be written; sysexits.h calls it EX_IOERR. */
#define EXIT_STATE 74

struct keeping {
	struct server *server;
	struct state *state; /* NULL: there is no store, or it is locked */
	struct inherited left; /* when locked: what drain lets go */
	struct error locked;
	struct version_id ledger;
	uint64_t epoch, next_name;
	uint64_t adopted, lost;
	uv_timer_t *grace; /* closes on its own */
	uint64_t grace_until_ms; /* steady; 0: over */
};

struct keeping *keeping_new(struct server *server)
{
	struct keeping *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->grace = malloc(sizeof(*k->grace));
	if (!k->grace) {
		free(k);
		return NULL;
	}
	uv_timer_init(&server->loop, k->grace);
	k->grace->data = k;
	k->server = server;
	k->left.state = -1;
	k->ledger = server->instance;
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
	uv_close((uv_handle_t *)k->grace, on_timer_closed);
}

struct keeping *keeping_free(struct keeping *k)
{
	if (!k)
		return NULL;
	inherited_clear(&k->left);
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
	return &k->ledger;
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

/* ---- saving ---- */

static struct snapshot snapshot_of(const struct keeping *k)
{
	return (struct snapshot){
		.ledger = k->ledger,
		.epoch = k->epoch,
		.next_name = k->next_name,
		.registry = k->server->registry,
		.devices = &k->server->devices,
	};
}

static int write_state(const struct keeping *k)
{
	const struct snapshot snapshot = snapshot_of(k);
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
	int r = k->state ? write_state(k) : 0;

	if (r == 0)
		return;
	log_error(
		"the state can't be written (%s): gpuwmd ends, the next one goes on from what was acknowledged",
		strerror(-r));
	_exit(EXIT_STATE);
}

static void add_held(struct keeping *k, struct store_batch *batch, struct held_fd *held, bool put)
{
	if (put)
		held->name = k->next_name++;
	store_batch_add(batch, held->name, held->fd);
}

struct store_batch *keeping_batch(struct keeping *k, struct version *version, bool put)
{
	struct store_batch *batch;
	size_t count = 0;

	for (uint32_t i = 0; i < version->replica_count; i++)
		count += version->replicas[i].segment_count + 1;
	batch = store_batch_new(count);
	if (!batch)
		return NULL;
	for (uint32_t i = 0; i < version->replica_count; i++) {
		struct replica *replica = &version->replicas[i];

		add_held(k, batch, &replica->index, put);
		for (uint32_t j = 0; j < replica->segment_count; j++)
			add_held(k, batch, &replica->segments[j], put);
	}
	return batch;
}

/* ---- grace ---- */

static void on_grace_over(uv_timer_t *timer)
{
	struct keeping *k = timer->data;

	k->grace_until_ms = 0;
	log_info("the grace time is over: what nobody holds may be freed");
	versions_free_all_unused(k->server);
}

uint64_t keeping_grace_ms(const struct keeping *k)
{
	uint64_t now = clock_steady_ms();

	if (k->grace_until_ms == 0)
		return 0;
	return k->grace_until_ms > now ? k->grace_until_ms - now : 1; /* its timer is due */
}

static void begin_grace(struct keeping *k)
{
	uint64_t grace = k->server->config->grace_ms;

	if (k->adopted == 0 || grace == 0)
		return;
	k->grace_until_ms = clock_steady_ms() + grace;
	uv_update_time(&k->server->loop); /* its clock stood still while versions were taken over */
	uv_timer_start(k->grace, on_grace_over, grace, 0);
}

/* ---- taking over ---- */

static bool have(void *data, uint64_t name)
{
	return inherited_have(data, name);
}

static int take(void *data, uint64_t name)
{
	return inherited_take(data, name);
}

/* Nothing of a ledger that was half read is used. */
static int forget_ledger(struct server *server)
{
	struct version *version = NULL;

	while ((version = registry_next_version(server->registry, NULL, version))) {
		for (uint32_t i = 0; i < version->replica_count; i++)
			segment_close(&server->loop, &version->replicas[i], NULL, NULL, NULL);
	}
	registry_free(server->registry);
	device_table_clear(&server->devices);
	server->registry = registry_new();
	return server->registry ? 0 : -ENOMEM;
}

static int read_ledger(struct keeping *k, struct inherited *left, struct error *error)
{
	const struct snapshot_fds fds = {.have = have, .take = take, .data = left};
	struct snapshot snapshot = snapshot_of(k);
	size_t bytes = 0;
	uint32_t format = 0;
	void *data = NULL;
	int r = state_read(k->state, &data, &bytes, &format);

	if (r < 0)
		return error_set(error, -EUCLEAN, NULL, "the state can't be read: %s", strerror(-r));
	r = snapshot_take(data, bytes, format, &fds, &snapshot, &k->lost, error);
	free(data);
	if (r < 0)
		return r;
	k->ledger = snapshot.ledger;
	k->epoch = snapshot.epoch + 1;
	if (k->next_name < snapshot.next_name)
		k->next_name = snapshot.next_name;
	k->adopted = registry_counts(k->server->registry).versions;
	return 0;
}

static int open_ledger(struct keeping *k, struct inherited *left, struct error *error)
{
	int fd = left->state, r;

	left->state = -1;
	r = state_open(fd, &k->state, error);
	return r < 0 ? r : read_ledger(k, left, error);
}

/* The descriptors stay open, so that drain closes them here and not in the service manager. */
static int lock(struct keeping *k, struct inherited *left, const struct error *why)
{
	k->state = state_free(k->state);
	k->left = *left;
	*left = (struct inherited){.state = -1};
	error_set(&k->locked, -EUCLEAN, why->detail, "gpuwmd leaves alone what it was left and can't read: %s",
		  why->message);
	log_error("%s (%s)", k->locked.message, why->detail);
	return forget_ledger(k->server);
}

static int begin_new(struct keeping *k, struct error *error)
{
	int r = state_new(&k->state);

	if (r == 0)
		r = write_state(k);
	if (r < 0)
		return error_set(error, r, NULL, "the state can't be made: %s", strerror(-r));
	return store_put_now(STORE_STATE, state_fd(k->state), error);
}

/* Of what nobody knows, names above all that were in use are not used again either. */
static void skip_names(struct keeping *k, const struct inherited *left)
{
	if (left->count > 0 && left->ours[left->count - 1].name >= k->next_name)
		k->next_name = left->ours[left->count - 1].name + 1;
}

/* The names of what is left, each malloced by inherited or in `texts`. When locked also of what a
 * ledger took that was given up then. */
static size_t list_names(const struct keeping *k, const struct inherited *left, char (*texts)[STORE_NAME_TEXT],
			 const char **names)
{
	size_t count = 0;

	for (size_t i = 0; i < left->strange_count; i++)
		names[count++] = left->strange[i];
	for (size_t i = 0; i < left->count; i++) {
		if (left->ours[i].fd < 0 && !k->locked.code)
			continue;
		store_name_format(left->ours[i].name, texts[i]);
		names[count++] = texts[i];
	}
	return count;
}

/* Closing may take long (57 ms a GiB), or for ever. */
static void close_left(struct keeping *k, struct inherited *left)
{
	struct held_fd none = {.fd = -1};
	struct held_fd *held = calloc(left->count + left->strange_count + 1, sizeof(*held));
	uint32_t count = 0;

	for (size_t i = 0; held && i < left->count; i++) {
		if (left->ours[i].fd >= 0)
			held[count++].fd = left->ours[i].fd;
		left->ours[i].fd = -1;
	}
	for (size_t i = 0; held && i < left->strange_count; i++) {
		held[count++].fd = left->strange_fds[i];
		left->strange_fds[i] = -1;
	}
	if (held)
		segment_close_fds(&k->server->loop, none, held, count);
}

static int remove_left(struct keeping *k, struct inherited *left, struct error *error)
{
	size_t most = left->count + left->strange_count + 1, count;
	char(*texts)[STORE_NAME_TEXT] = calloc(most, sizeof(*texts));
	const char **names = calloc(most, sizeof(*names));
	int r = -ENOMEM;

	if (texts && names) {
		count = list_names(k, left, texts, names);
		if (count > 0)
			log_warning("%zu descriptors in the fd store belong to no version: they are let go",
				    count);
		r = store_remove_now(names, count, error);
	} else {
		error_set(error, r, NULL, "gpuwmd is out of memory");
	}
	free(texts);
	free(names);
	if (r == 0)
		close_left(k, left);
	return r;
}

/* Before anything new is stored, what nobody knows is gone: an unfinished publish, mostly. */
static int take_over(struct keeping *k, struct inherited *left, struct error *error)
{
	bool found = left->state >= 0;
	struct error why;
	int r = 0;

	if (found)
		r = open_ledger(k, left, &why);
	else if (left->count > 0)
		r = error_set(&why, -EUCLEAN, "gpuwmctl drain lets it all go; then restart gpuwmd",
			      "the fd store has %zu descriptors of versions, but no state", left->count);
	if (r == -EUCLEAN)
		return lock(k, left, &why);
	if (r < 0) {
		*error = why;
		return r;
	}
	skip_names(k, left);
	r = remove_left(k, left, error);
	if (r == 0 && !found)
		return begin_new(k, error);
	if (r == 0)
		keeping_save(k);
	return r;
}

int keeping_begin(struct keeping *k, struct error *error)
{
	uint64_t limit = store_limit();
	struct inherited left;
	int r;

	if (limit == 0) {
		log_info("no service manager keeps descriptors here: versions end with this process");
		return 0;
	}
	r = inherited_read(&left, error);
	if (r < 0)
		return r;
	r = take_over(k, &left, error);
	inherited_clear(&left);
	if (r < 0)
		return r;
	registry_fds_max(k->server->registry, limit > STORE_FDS_OWN ? limit - STORE_FDS_OWN : 0);
	begin_grace(k);
	if (k->adopted + k->lost > 0)
		log_info("start %llu with these weights: %llu versions taken over, %llu lost",
			 (unsigned long long)k->epoch, (unsigned long long)k->adopted,
			 (unsigned long long)k->lost);
	return 0;
}

/* ---- letting go ---- */

void keeping_let_go(struct keeping *k)
{
	static const char *const state[] = {STORE_STATE};
	struct error error = {0};

	if (!k->locked.code)
		return;
	if (remove_left(k, &k->left, &error) < 0 || store_remove_now(state, 1, &error) < 0)
		log_error("%s (%s)", error.message, error.detail);
	else
		log_warning("what gpuwmd could not read was let go; restart it to begin empty");
}
