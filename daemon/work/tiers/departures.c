#include "departures.h"

#include "../loaders/loader.h"
#include "../work.h"
#include "../../../base/bytes.h"
#include "../../../base/clock.h"
#include "../../../service/log.h"
#include "../../net/peer.h"
#include "moves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* An idle loader answers within some milliseconds, and one that starts reports within 0.2 s, on a busy machine later. If none does, nothing
 * is compared. */
#define DEPARTURE_BEFORE_MS 500
/* The driver frees memory when its last descriptor is closed. Whoever still unmaps has this long. */
#define DEPARTURE_MS 1000
#define LOOK_AGAIN_MS 20
/* So that the line fits into the log. */
#define HOLDERS_NAMED 8
#define HOLDERS_BYTES 800

/* The figures of a device, before anything was closed. */
enum before {
	BEFORE_ASKED,
	BEFORE_KNOWN,
	BEFORE_UNKNOWN, /* nobody told them in time */
};

/* What leaves one device at a time, of all versions. */
struct departure {
	struct device *device;
	enum before before;
	uint64_t free_before, used_before, contexts_before;
	uint64_t bytes, least; /* that leave; of the smallest part */
	unsigned parts; /* that are not closed yet */
	struct budget_charge charge; /* of those that are closed */
	uint64_t asked_ms; /* steady: when it began */
	uint64_t closed_ms; /* when the last part was closed */
	struct version_id *versions; /* malloced */
	size_t version_count;
	struct departure *prev, *next;
};

static void departure_free(struct work *work, struct departure *departure)
{
	DL_DELETE(work->departures, departure);
	if (departure->charge.device)
		work_later(work, LATER_ROOM);
	budget_release(&departure->charge);
	free(departure->versions);
	free(departure);
}

/* ---- who is named ---- */

static void name_holder(const struct lease *lease, char text[HOLDERS_BYTES], unsigned *named)
{
	const size_t used = strlen(text);
	const struct peer *peer = lease->peer;

	if (++*named <= HOLDERS_NAMED && peer)
		snprintf(text + used, HOLDERS_BYTES - used, "%s%s (pid %d, uid %u)", used ? ", " : "",
			 peer->command, (int)peer->pid, (unsigned)peer->uid);
	else if (*named == HOLDERS_NAMED + 1)
		snprintf(text + used, HOLDERS_BYTES - used, " and others");
}

void departure_warn(struct work *work, const struct version_id *id, const struct device *device, uint64_t left,
		    uint64_t missing)
{
	const struct ref ref = {.has_id = true, .id = *id};
	char text[HOLDERS_BYTES] = "", lacks[BYTES_TEXT], all[BYTES_TEXT];
	struct version *version = NULL;
	unsigned named = 0;
	struct error unused;
	uint64_t generation;

	registry_find(work->ledger->registry, &ref, &version, &generation, &unused);
	for (const struct lease *l = version ? version->leases : NULL; l; l = l->next_of_version) {
		if (l->missing > 0 && lease_device(l) == device)
			name_holder(l, text, &named);
	}
	if (named > 0)
		log_warning(
			"%s lacks %s of the %s that left it with %s@%s: a worker that said that it parked still has "
			"them; end %s%s",
			device->id, bytes_format(missing, lacks), bytes_format(left, all),
			model_name(version->model), version->tag, named > 1 ? "one of " : "", text);
}

static void departure_name(struct work *work, const struct departure *departure, uint64_t missing)
{
	for (size_t i = 0; i < departure->version_count; i++) {
		const struct ref ref = {.has_id = true, .id = departure->versions[i]};
		struct version *version = NULL;
		struct error unused;
		uint64_t generation;

		registry_find(work->ledger->registry, &ref, &version, &generation, &unused);
		for (struct lease *l = version ? version->leases : NULL; l; l = l->next_of_version) {
			if (l->parked && lease_device(l) == departure->device)
				l->missing = missing;
		}
		departure_warn(work, &ref.id, departure->device, departure->bytes, missing);
	}
}

/* ---- comparing ---- */

static uint64_t departure_missing(const struct departure *departure)
{
	const struct device *device = departure->device;
	const uint64_t used = device->used - device->contexts;
	const uint64_t used_before = departure->used_before - departure->contexts_before;
	/* What was charged since is taken from what is free, or will be. What was given back since may have been free before: the room of a worker
	 * that parks. */
	const uint64_t taken = used > used_before ? used - used_before : 0;
	const uint64_t expected = departure->free_before + departure->bytes, there = device->free + taken;

	return expected > there ? expected - there : 0;
}

/* Awake workers go on to take memory and to free it. Nobody knows to the byte what a context takes: one that comes is not missed, and one
 * that goes may hide as much as it had. */
static uint64_t departure_tolerance(const struct departure *departure)
{
	const uint64_t now = departure->device->contexts, before = departure->contexts_before;

	return departure->least / 2 + (now > before ? now - before : 0);
}

/* Ends it when all has come free, or when that takes too long. */
static void departure_look(struct work *work, struct departure *departure)
{
	const bool known = departure->before == BEFORE_KNOWN;
	const bool seen = known && departure->device->free_at_ms >= departure->closed_ms;
	const uint64_t missing = seen ? departure_missing(departure) : 0;
	const bool lacks = seen && missing > departure_tolerance(departure);

	if (departure->parts > 0)
		return;
	if ((!known || seen) && !lacks) {
		departure_free(work, departure);
	} else if (clock_steady_ms() >= departure->closed_ms + DEPARTURE_MS) {
		if (lacks)
			departure_name(work, departure, missing);
		departure_free(work, departure);
	}
}

static void look_at_all(struct work *work)
{
	struct departure *departure, *next;

	for (departure = work->departures; departure; departure = next) {
		next = departure->next;
		departure_look(work, departure);
	}
}

/* ---- before ---- */

static void departures_go_on(struct work *work)
{
	struct tier_move *move;

	for (struct departure *departure = work->departures; departure; departure = departure->next) {
		if (departure->before == BEFORE_ASKED)
			departure->before = BEFORE_UNKNOWN;
	}
	while ((move = work->departing)) {
		work->departing = move->next;
		move->next = NULL;
		move->then(move);
	}
}

static void on_look(uv_timer_t *timer)
{
	struct work *work = timer->data;

	if (work->departing &&
	    (clock_steady_ms() >= work->departing_until_ms || !loader_pool_may_report(work->loaders)))
		departures_go_on(work);
	look_at_all(work);
	if (work->departures || work->departing)
		work_later(work, LATER_REPORT);
	else
		uv_timer_stop(timer);
}

static struct departure *departure_find(const struct work *work, const struct device *device)
{
	struct departure *departure;

	DL_SEARCH_SCALAR(work->departures, departure, device, device);
	return departure;
}

static struct departure *departure_on(struct work *work, struct device *device)
{
	struct departure *departure = departure_find(work, device);

	if (departure)
		return departure;
	departure = calloc(1, sizeof(*departure));
	if (!departure)
		return NULL;
	departure->device = device;
	departure->asked_ms = clock_steady_ms();
	departure->least = UINT64_MAX;
	DL_APPEND(work->departures, departure);
	return departure;
}

static bool departure_add_version(struct departure *departure, const struct version *version)
{
	struct version_id *more;

	for (size_t i = 0; i < departure->version_count; i++) {
		if (version_id_equal(&departure->versions[i], &version->id))
			return true;
	}
	more = reallocarray(departure->versions, departure->version_count + 1, sizeof(*more));
	if (!more)
		return false;
	departure->versions = more;
	more[departure->version_count++] = version->id;
	return true;
}

static uint64_t leaving_bytes(const struct relocated *memory)
{
	uint64_t bytes = 0;

	for (uint32_t k = 0; memory->moves && k < memory->count; k++)
		bytes += memory->segments[k].last ? memory->segments[k].segment->bytes : 0;
	return bytes;
}

static void part_leaves(struct tier_move *move, uint32_t i)
{
	struct device *device = move->version->replicas[i].device;
	const uint64_t bytes = leaving_bytes(&move->memory[i]);
	struct departure *departure;

	if (bytes == 0)
		return;
	if (!device->kind->is_gpu) {
		departure_look_at_host(move, i);
		return;
	}
	/* Without NVML nobody knows what is free. */
	if (device->free_at_ms == 0)
		return;
	departure = departure_on(move->work, device);
	if (!departure || !departure_add_version(departure, move->version))
		return;
	departure->bytes += bytes;
	departure->least = bytes < departure->least ? bytes : departure->least;
	departure->parts++;
	move->parts[i].leaves = device;
	move->parts[i].bytes = bytes;
}

static bool none_asked(const struct work *work)
{
	const struct departure *departure;

	DL_SEARCH_SCALAR(work->departures, departure, before, BEFORE_ASKED);
	return !departure;
}

void departures_begin(struct tier_move *move)
{
	struct work *work = move->work;
	const struct version *version = move->version;

	/* Nobody leases a host copy. What revoked leases may map is known already. */
	if (!tier_is_resident(move->from) || move->to == move->from || version->parked_count == 0 ||
	    version_awake_leases(version) > 0 || version->revoked || work->net->stopping)
		return;
	for (uint32_t i = 0; i < move->part_count; i++)
		part_leaves(move, i);
	if (!work->departures)
		return;
	work_later(work, LATER_REPORT);
	uv_timer_start(&work->departures_timer, on_look, LOOK_AGAIN_MS, LOOK_AGAIN_MS);
}

void departures_await(struct tier_move *move, departures_then_fn *then)
{
	struct work *work = move->work;

	if (none_asked(work)) {
		then(move);
		return;
	}
	move->then = then;
	if (!work->departing)
		work->departing_until_ms = clock_steady_ms() + DEPARTURE_BEFORE_MS;
	move->next = work->departing;
	work->departing = move;
}

/* ---- after ---- */

void departures_closed(struct move_part *part)
{
	struct departure *departure = part->leaves ? departure_find(part->move->work, part->leaves) : NULL;
	struct budget_charge more;

	if (!departure)
		return;
	budget_adopt(departure->device, part->bytes, &more);
	if (departure->charge.device)
		more.bytes += departure->charge.bytes;
	departure->charge = more;
	departure->closed_ms = clock_steady_ms();
	departure->parts--;
}

void departures_reported(struct work *work)
{
	for (struct departure *departure = work->departures; departure; departure = departure->next) {
		const struct device *device = departure->device;

		if (departure->before != BEFORE_ASKED || device->free_at_ms < departure->asked_ms)
			continue;
		departure->before = BEFORE_KNOWN;
		departure->free_before = device->free;
		departure->used_before = device->used;
		departure->contexts_before = device->contexts;
	}
	if (work->departing && none_asked(work))
		departures_go_on(work);
	look_at_all(work);
}

void departures_clear(struct work *work)
{
	departures_go_on(work);
	while (work->departures)
		departure_free(work, work->departures);
}
