#include "store.h"

#include "../service/log.h"

#include "../base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A taker gives up after LINK_SILENCE_MS. */
#define SUMS_WAIT_MS (LINK_SILENCE_MS * 2 / 3)

struct entry {
	struct served_version served; /* first: a served_version of this source is an entry */
	struct entry *next;
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1];
	struct attached *attached; /* NULL: it is not */
	struct hashing **hashing; /* of each rank; they outlive `attached` */
	unsigned holds;
	uint64_t idle_since_ms;
	bool is_lost; /* gpuwmd took a lease back */
	char fingerprint[SUM_TEXT]; /* "": not known yet */
};

struct store {
	struct gpuwmd gpuwmd;
	/* Held while something is attached or detached, which takes a moment. `lock` is not: it is for a few instructions. */
	pthread_mutex_t attaching, lock;
	struct entry *first;
	unsigned count, threads;
	bool stopping;
};

/* ---- one entry ---- */

static struct entry *entry_of(struct served_version *version)
{
	return (struct entry *)version;
}

static void detach_entry(struct entry *entry)
{
	for (uint32_t i = 0; entry->hashing && i < entry->served.world; i++)
		hashing_stop(entry->hashing[i]);
	entry->attached = attached_free(entry->attached);
	entry->served.parts = NULL;
}

static struct entry *entry_free(struct entry *entry)
{
	if (!entry)
		return NULL;
	detach_entry(entry);
	for (uint32_t i = 0; entry->hashing && i < entry->served.world; i++)
		hashing_free(entry->hashing[i]);
	free(entry->hashing);
	free(entry);
	return NULL;
}

/* The parts are attached. */
static bool make_hashing(struct entry *entry, unsigned threads)
{
	uint32_t world = entry->served.world;

	if (entry->hashing)
		return true;
	entry->hashing = calloc(world, sizeof(*entry->hashing));
	for (uint32_t i = 0; entry->hashing && i < world; i++) {
		entry->hashing[i] = hashing_new(&entry->served.parts[i], threads > world ? threads / world : 1);
		if (!entry->hashing[i])
			return false;
	}
	return entry->hashing != NULL;
}

static struct entry *entry_new(const struct listed *listed)
{
	struct entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	strncpy(entry->model, listed->version.model, NAME_BYTES_MAX);
	strncpy(entry->tag, listed->version.tag, NAME_BYTES_MAX);
	entry->served = (struct served_version){.id = listed->id,
						.model = entry->model,
						.tag = entry->tag,
						.world = (uint32_t)listed->version.world};
	return entry;
}

static bool is_held(struct store *store, const struct entry *entry)
{
	bool held;

	pthread_mutex_lock(&store->lock);
	held = entry->holds > 0;
	pthread_mutex_unlock(&store->lock);
	return held;
}

static bool is_lost(struct store *store, const struct entry *entry)
{
	bool lost;

	pthread_mutex_lock(&store->lock);
	lost = entry->is_lost;
	pthread_mutex_unlock(&store->lock);
	return lost;
}

/* ---- the table: with store->attaching ---- */

static void remove_entry(struct store *store, struct entry *entry)
{
	struct entry **at = &store->first;

	pthread_mutex_lock(&store->lock);
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	store->count--;
	pthread_mutex_unlock(&store->lock);
	entry_free(entry);
}

static struct entry *add_entry(struct store *store, const struct listed *listed)
{
	struct entry *entry = entry_new(listed), *oldest = NULL;

	if (!entry)
		return NULL;
	for (struct entry *at = store->first; at; at = at->next) {
		if (!is_held(store, at) && (!oldest || at->idle_since_ms < oldest->idle_since_ms))
			oldest = at;
	}
	if (oldest && store->count >= STORE_VERSIONS_MAX)
		remove_entry(store, oldest);
	pthread_mutex_lock(&store->lock);
	entry->next = store->first;
	store->first = entry;
	store->count++;
	pthread_mutex_unlock(&store->lock);
	return entry;
}

/* ---- finding: with store->attaching ---- */

static int attach_entry(struct store *store, struct entry *entry, const struct listing *listing,
			size_t position, struct error *error)
{
	int r = attached_new(&store->gpuwmd, listing, position, &entry->attached, error);

	if (r < 0)
		return r;
	entry->served.parts = attached_parts(entry->attached);
	if (make_hashing(entry, store->threads))
		return 0;
	return error_set(error, -ENOMEM, NULL, "out of memory");
}

static int find_listed(struct store *store, const struct listing *listing, const char *ref, struct entry **ret,
		       struct error *error)
{
	int64_t position = listing_find(listing, ref, error);
	struct listed listed;
	struct entry *entry;
	int r;

	if (position < 0)
		return (int)position;
	listing_at(listing, (size_t)position, &listed);
	/* A version whose lease was lost may be found again, under a new lease and beside what is left of the old one. */
	entry = store->first;
	while (entry && (!version_id_equal(&entry->served.id, &listed.id) || is_lost(store, entry)))
		entry = entry->next;
	if (!entry)
		entry = add_entry(store, &listed);
	if (!entry)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	r = entry->attached ? 0 : attach_entry(store, entry, listing, (size_t)position, error);
	if (r < 0) {
		if (!is_held(store, entry))
			remove_entry(store, entry);
		return r;
	}
	pthread_mutex_lock(&store->lock);
	entry->holds++;
	pthread_mutex_unlock(&store->lock);
	*ret = entry;
	return 0;
}

/* gpuwmd's rules count for each request: it is asked anew. */
static int store_find(void *user, const char *ref, struct served_version **ret, struct error *error)
{
	struct store *store = user;
	struct listing listing;
	struct entry *entry = NULL;
	int r = gpuwmd_list(&store->gpuwmd, &listing, error);

	if (r < 0)
		return r;
	pthread_mutex_lock(&store->attaching);
	r = find_listed(store, &listing, ref, &entry, error);
	pthread_mutex_unlock(&store->attaching);
	listing_clear(&listing);
	if (r == 0)
		*ret = &entry->served;
	return r;
}

static void store_leave(void *user, struct served_version *version)
{
	struct entry *entry = entry_of(version);
	struct store *store = user;

	pthread_mutex_lock(&store->lock);
	entry->holds--;
	entry->idle_since_ms = clock_steady_ms();
	pthread_mutex_unlock(&store->lock);
}

/* ---- what a source does besides ---- */

static int64_t store_sums(void *user, struct served_version *version, const struct served_pieces *pieces,
			  const struct sum **ret_sums, struct error *error)
{
	struct entry *entry = entry_of(version);

	(void)user;
	return hashing_wait(entry->hashing[pieces->rank], &entry->served.parts[pieces->rank], pieces,
			    SUMS_WAIT_MS, ret_sums, error);
}

/* Sets the entry's fingerprint once all sums are there. */
static void compute_fingerprint(struct store *store, struct entry *entry)
{
	struct sum parts[PARTS_PER_VERSION_MAX], sum;
	char text[SUM_TEXT];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < entry->served.world; i++)
		r = hashing_part(entry->hashing[i], &entry->served.parts[i], &parts[i]);
	if (r < 0 || sums_fingerprint(parts, entry->served.world, &sum) < 0)
		return;
	sum_format(&sum, text);
	pthread_mutex_lock(&store->lock);
	strcpy(entry->fingerprint, text);
	pthread_mutex_unlock(&store->lock);
}

static void copy_fingerprint(struct store *store, const struct entry *entry, char ret[SUM_TEXT])
{
	pthread_mutex_lock(&store->lock);
	strcpy(ret, entry->fingerprint);
	pthread_mutex_unlock(&store->lock);
}

static bool store_fingerprint(void *user, struct served_version *version, char ret[SUM_TEXT])
{
	struct entry *entry = entry_of(version);
	struct store *store = user;

	copy_fingerprint(store, entry, ret);
	if (!ret[0])
		compute_fingerprint(store, entry);
	copy_fingerprint(store, entry, ret);
	return ret[0] != '\0';
}

/* What is known of a version that was taken before, also if it is not attached now. */
static void known_fingerprint(struct store *store, const struct version_id *id, char ret[SUM_TEXT])
{
	ret[0] = '\0';
	pthread_mutex_lock(&store->lock);
	for (struct entry *at = store->first; at; at = at->next) {
		if (version_id_equal(&at->served.id, id))
			strcpy(ret, at->fingerprint);
	}
	pthread_mutex_unlock(&store->lock);
}

static int store_list(void *user, uint64_t from, struct message_writer *w, struct error *error)
{
	struct store *store = user;
	struct listing listing;
	char known[SUM_TEXT];
	struct listed listed;
	int r = gpuwmd_list(&store->gpuwmd, &listing, error);

	if (r < 0)
		return r;
	record_put(w, form_peer_list.result, &(struct peer_list_result){listing.count});
	message_begin_array(w, "versions");
	for (uint64_t i = from; i < listing.count && i - from < PEER_LIST_PAGE; i++) {
		listing_at(&listing, i, &listed);
		known_fingerprint(store, &listed.id, known);
		listed.version.fingerprint = known[0] ? known : NULL;
		record_put_map(w, NULL, &peer_version_record, &listed.version);
	}
	message_end(w);
	listing_clear(&listing);
	return 0;
}

static int is_over(struct store *store, const struct entry *entry, struct error *error)
{
	bool stopping;

	pthread_mutex_lock(&store->lock);
	stopping = store->stopping;
	pthread_mutex_unlock(&store->lock);
	if (stopping)
		return error_set(error, -ESHUTDOWN, NULL, "gpuwm-peer is stopping");
	return is_lost(store, entry) ? error_set(error, -ESTALE, NULL, "%s@%s: gpuwmd took the lease back",
						 entry->model, entry->tag)
				     : 0;
}

static int store_address(void *user, struct served_version *version, const struct served_pieces *pieces,
			 const void **ret, struct error *error)
{
	struct entry *entry = entry_of(version);
	int r = is_over(user, entry, error);

	if (r == 0)
		*ret = (const char *)version->parts[pieces->rank].segments[pieces->segment].data +
		       pieces->first * SUMS_PIECE_BYTES;
	return r;
}

const struct serve_source store_source = {.list = store_list,
					  .find = store_find,
					  .leave = store_leave,
					  .sums = store_sums,
					  .fingerprint = store_fingerprint,
					  .look = store_address};

/* ---- the store ---- */

/* A thread of the library calls it. The memory stays mapped until nobody reads it. */
static void on_lost(const struct gpuwm_lost *lost, void *user_data)
{
	struct store *store = user_data;
	struct version_id id;

	if (hex128_parse(lost->version, id.bytes) < 0)
		return;
	log_warning("%s@%s is served no longer: %s", lost->model, lost->tag, lost->error.message);
	pthread_mutex_lock(&store->lock);
	for (struct entry *at = store->first; at; at = at->next) {
		if (version_id_equal(&at->served.id, &id))
			at->is_lost = true;
	}
	pthread_mutex_unlock(&store->lock);
}

struct store *store_new(const char *socket)
{
	struct store *store = calloc(1, sizeof(*store));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (!store)
		return NULL;
	/* Half of them: the machine's own work goes on. */
	store->threads = cores > 3 ? (unsigned)cores / 2 : 1;
	if (store->threads > SUMS_THREADS_MAX)
		store->threads = SUMS_THREADS_MAX;
	pthread_mutex_init(&store->attaching, NULL);
	pthread_mutex_init(&store->lock, NULL);
	gpuwmd_begin(&store->gpuwmd, socket, on_lost, store);
	return store;
}

struct store *store_free(struct store *store)
{
	if (!store)
		return NULL;
	while (store->first)
		remove_entry(store, store->first);
	gpuwmd_end(&store->gpuwmd);
	pthread_mutex_destroy(&store->attaching);
	pthread_mutex_destroy(&store->lock);
	free(store);
	return NULL;
}

void store_look(struct store *store)
{
	uint64_t now = clock_steady_ms();
	struct entry *next;
	bool is_idle;

	/* Somebody attaches: next time. */
	if (pthread_mutex_trylock(&store->attaching) != 0)
		return;
	for (struct entry *at = store->first; at; at = next) {
		next = at->next;
		pthread_mutex_lock(&store->lock);
		is_idle = at->holds == 0 &&
			  (at->is_lost || (at->attached && now - at->idle_since_ms >= STORE_LINGER_MS));
		pthread_mutex_unlock(&store->lock);
		if (!is_idle)
			continue;
		if (is_lost(store, at))
			remove_entry(store, at);
		else
			detach_entry(at);
	}
	pthread_mutex_unlock(&store->attaching);
}

void store_stop(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	store->stopping = true;
	pthread_mutex_unlock(&store->lock);
}

bool store_ledger(struct store *store, struct version_id *ret_ledger)
{
	struct gpuwm_client *client;
	struct error error;

	return gpuwmd_client(&store->gpuwmd, &client, &error) == 0 &&
	       hex128_parse(gpuwm_ledger(client), ret_ledger->bytes) == 0;
}
