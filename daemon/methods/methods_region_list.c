/* region_list: what regions there are, and what their control memory says. */
#include "methods.h"
#include "../../base/clock.h"
#include "../work/regions/regions.h"

/* The slots of a chunk's users in this state. */
static uint32_t list_slots(uint64_t word, enum chunk_state state, uint64_t ret[REGION_USERS_MAX])
{
	uint32_t count = 0;

	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (chunk_word_state(word, slot) == state)
			ret[count++] = slot;
	}
	return count;
}

static void put_chunk(struct message_writer *w, const struct region_chunk *chunk)
{
	const uint64_t now = clock_boot_ms();
	uint64_t holders[REGION_USERS_MAX], awaited[REGION_USERS_MAX];

	record_put_map(w, NULL, &region_chunk_told_record,
		       &(struct region_chunk_told){
			       .chunk = chunk->chunk,
			       .offset = chunk->offset,
			       .bytes = chunk->bytes,
			       .age_ms = now > chunk->since_ms ? now - chunk->since_ms : 0,
			       .holders = {holders, list_slots(chunk->word, CHUNK_HOLDING, holders)},
			       .awaited = {awaited, list_slots(chunk->word, CHUNK_WAITING, awaited)},
			       .open = chunk_word_open(chunk->word),
		       });
}

/* holds NULL: they are not told. */
static void put_users(struct message_writer *w, const struct region *region, const uint64_t *holds)
{
	message_begin_array(w, "users");
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		const struct region_user *user = region->users[slot];

		if (!user || user->state != USER_HERE)
			continue;
		record_put_map(w, NULL, &region_user_told_record,
			       &(struct region_user_told){
				       .slot = slot,
				       .pid = user->pid,
				       .uid = user->uid,
				       .command = user->command,
				       .write = user->write,
				       .owns = user->owns && region->is.kind->has_owner,
				       .since_ms = user->since_ms,
				       .holds = holds ? &holds[slot] : NULL,
			       });
	}
	message_end(w);
}

/* How much of a region is told. What takes long would keep others waiting if it were told of all regions. */
enum depth { NOT_COUNTED, COUNTED /* what one pass tells */, WHOLE };

static void put_facts(const struct work *work, struct message_writer *w, const struct region *region,
		      enum depth depth, const struct region_figures *figures)
{
	const struct region_user *holder = region_scratch_holder(region);
	const uint64_t slot = holder ? holder->slot : 0;
	const bool counted = depth != NOT_COUNTED;

	record_put(w, &region_told_record,
		   &(struct region_told){
			   .region = &region->id,
			   .name = region->name[0] ? region->name : NULL,
			   .device = region->is.device->id,
			   .kind = region->is.kind->name,
			   .writers = region->is.many_writers ? REGION_WRITERS_MANY : REGION_WRITERS_ONE,
			   .owner = region->is.owned_by_uid ? REGION_OWNER_UID : REGION_OWNER_PROCESS,
			   .state = region_state_name(region->state),
			   .owner_uid = region->is.uid,
			   .bytes = region->is.bytes,
			   .created_ms = region->created_ms,
			   .chunks = region->is.shape.chunks,
			   .chunks_used = figures->chunks_used,
			   .bytes_used = counted ? &figures->bytes_used : NULL,
			   .largest_free = depth == WHOLE ? &figures->largest_free : NULL,
			   .messages = figures->messages,
			   .blocks = region->is.shape.blocks,
			   .block_bytes = region->is.block_bytes,
			   .blocks_owned = counted ? &figures->blocks_owned : NULL,
			   .blocks_ready = counted ? &figures->blocks_ready : NULL,
			   .blocks_held = counted ? &figures->blocks_held : NULL,
			   .holder = holder ? &slot : NULL,
			   .waiting = scratch_waiting(work, region),
			   .error = region->error.code ? &region->error : NULL,
		   });
}

static void put_region(const struct work *work, struct message_writer *w, const struct region *region,
		       enum depth depth)
{
	struct region_chunk oldest[REGION_OLDEST_TOLD];
	struct region_figures figures = {0};
	size_t oldest_count;

	if (depth == WHOLE)
		region_look(region, &figures);
	else if (depth == COUNTED)
		region_count(region, &figures);
	message_begin_map(w, NULL);
	put_facts(work, w, region, depth, &figures);
	put_users(w, region, depth == WHOLE ? figures.holds : NULL);
	if (depth == WHOLE) {
		oldest_count = region_oldest(region, oldest, REGION_OLDEST_TOLD);
		message_begin_array(w, "oldest");
		for (size_t i = 0; i < oldest_count; i++)
			put_chunk(w, &oldest[i]);
		message_end(w);
	}
	message_end(w);
}

static bool is_asked_for(const struct request *request, struct region *region, const char *reference)
{
	struct version_id id = {0};

	if (!access_sees_region(request->session, region))
		return false;
	if (!reference || strcmp(region->name, reference) == 0)
		return true;
	return hex128_parse(reference, id.bytes) == 0 && version_id_equal(&region->id, &id);
}

int method_region_list(struct request *request, const void *given, struct error *error)
{
	const struct region_list_params *params = given;
	struct work *work = &request->server->work;
	struct region *region = work->ledger->regions.first, *next;
	uint64_t blocks_left = REGION_LIST_BLOCKS_MAX; /* that may still be counted for a list of all regions */
	enum depth depth;
	struct message_writer w;
	struct error ignored;

	while (params->region && region && !is_asked_for(request, region, params->region))
		region = region->next;
	if (params->region && !region)
		return region_unknown(params->region, error);
	request_result(request, &w);
	record_put(&w, request->form->result, &(struct region_list_result){event_last(work->ledger->events)});
	message_begin_array(&w, "regions");
	for (; region; region = next) {
		next = region->next;
		if (!is_asked_for(request, region, params->region))
			continue;
		depth = NOT_COUNTED;
		if (params->region) {
			regions_check(work, region, &ignored);
			depth = WHOLE;
		} else if (region->is.shape.blocks <= blocks_left) {
			blocks_left -= region->is.shape.blocks;
			depth = COUNTED;
		}
		put_region(work, &w, region, depth);
		regions_settle(work, region);
	}
	message_end(&w);
	request_answer(request, &w);
	return 0;
}
