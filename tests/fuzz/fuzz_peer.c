/* Mutates messages between nodes and reads them as a server and a taker do: fuzz_peer [iterations [seed]]. Build it with the sanitizers. What
 * is accepted must keep the limits of its form. */
#include "../../peer/messages.h"
#include "fuzz.h"

#include <string.h>

#define SEEDS_MAX 24
#define ROOM 2048

static struct {
	char bytes[ROOM];
	size_t count;
	const struct record *record;
} seeds[SEEDS_MAX];
static size_t seed_count;

static const struct version_id id = {{1, 2, 3}};
static const struct digest digest = {{4, 5, 6}};

static void keep(const struct record *record, const void *value)
{
	struct message_writer w;

	message_writer_init(&w, ROOM);
	message_begin_map(&w, NULL);
	record_put(&w, record, value);
	message_end(&w);
	must(message_finish(&w) == 0 && seed_count < SEEDS_MAX, "a seed is no message");
	memcpy(seeds[seed_count].bytes, w.buffer.data, w.buffer.size);
	seeds[seed_count].count = w.buffer.size;
	seeds[seed_count++].record = record;
	message_writer_clear(&w);
}

/* What a server reads. */
static void make_requests(void)
{
	const uint64_t port = 4711;
	struct error error;

	error_set(&error, -EBADMSG, "ask another", "a piece is wrong");
	keep(form_peer_hello.params, &(struct peer_hello_params){1, 1, "node7", "gpuwm-loader 0.1.0"});
	keep(form_peer_list.params, &(struct peer_list_params){128});
	keep(form_peer_find.params, &(struct peer_find_params){"llama@prod"});
	keep(form_peer_index.params, &(struct peer_index_params){&id, 3});
	keep(form_peer_sums.params, &(struct peer_sums_params){&id, 3, 7, 1 << 20});
	keep(form_peer_take.params,
	     &(struct peer_take_params){&id, 3, "tls", "00ff00ff00ff", 77, &port, true, &port});
	keep(form_peer_want.params, &(struct peer_want_params){7, 12, 16});
	keep(form_peer_lane.params, &(struct peer_lane_params){"00ff", true});
	keep(form_peer_done.params, &(struct peer_done_params){UINT64_MAX, &error});
}

/* What a taker reads. */
static void make_answers(void)
{
	static const char *const aliases[] = {"current", "prod"}, *const wires[] = {"tls", "rope"};
	const struct peer_part parts[] = {{0, "host", "host", 1 << 30, 2, 4096}, {1, "GPU-1", "cuda", 1, 1, 1}};
	const struct peer_redirect redirect = {"fd00::7", 9465, "node7.example.org"};
	struct error error;

	error_set(&error, -ESHUTDOWN, NULL, "gpuwm-peer is stopping");
	keep(form_peer_hello.result,
	     &(struct peer_hello_result){1, "node7", "gpuwm-peer 0.1.0", &id, "4f1c", {wires, 2}});
	keep(&peer_version_record,
	     &(struct peer_version){
		     &id, "llama", "v1", {aliases, 2}, 2, 1 << 30, "device", &digest, "00ff", &id});
	keep(form_peer_find.result,
	     &(struct peer_find_result){&id, "llama", "v1", 2, {parts, 2}, 1 << 22, "00ff"});
	keep(form_peer_index.result, &(struct peer_index_result){4096});
	keep(form_peer_sums.result, &(struct peer_sums_result){1 << 20});
	keep(form_peer_take.result, &(struct peer_take_result){&redirect, NULL});
	keep(form_peer_lane.result, &(struct peer_lane_result){true});
	keep(form_peer_take.result, &(struct peer_take_result){NULL, "00ff"});
	keep(form_peer_gone.params, &(struct peer_gone_params){&error});
}

static size_t mutate(char *bytes, size_t count)
{
	size_t at = draw(count + 1), length = draw(1 + (count - at < 16 ? count - at : 16));

	switch (draw(5)) {
	case 0:
		if (at < count)
			bytes[at] = (char)(bytes[at] ^ 1 << draw(8));
		return count;
	case 1:
		memset(bytes + at, draw(2) ? 0xff : 0, length);
		return count;
	case 2:
		return draw(8) ? count : at;
	case 3:
		memmove(bytes + at, bytes + at + length, count - at - length);
		return count - length;
	default:
		if (count + length > ROOM)
			return count;
		memmove(bytes + at + length, bytes + at, count - at);
		return count + length;
	}
}

static void check_rows(const struct record *record, const void *value);

/* The limits of the form, as far as they have room in the struct. */
static void check_row(const struct record_field *row, const void *value)
{
	const char *at = (const char *)value + row->offset;
	uint32_t count;

	if (row->type == RECORD_SPLICE)
		check_rows(row->record, at);
	if (row->type == RECORD_U64 && row->presence != RECORD_MAYBE)
		must(*(const uint64_t *)at <= row->most, "a number above its limit was accepted");
	if (row->type == RECORD_TEXT && *(const char *const *)at)
		must(strlen(*(const char *const *)at) <= row->bytes, "a text above its limit was accepted");
	if (row->type == RECORD_ARRAY) {
		memcpy(&count, (const char *)value + row->count_offset, sizeof(count));
		must(count <= row->elements, "an array above its limit was accepted");
	}
	if (row->presence == RECORD_REQUIRED && (row->type == RECORD_ID || row->type == RECORD_TEXT))
		must(*(const void *const *)at, "a message without a required key was accepted");
}

static void check_rows(const struct record *record, const void *value)
{
	for (size_t i = 0; i < record->field_count; i++)
		check_row(&record->fields[i], value);
}

/* An exact copy on the heap, so that a sanitizer sees one byte too far. */
static bool read_copy(const char *bytes, size_t count, const struct record *record)
{
	uint64_t value[RECORD_BYTES_MAX / sizeof(uint64_t)];
	char *copy = malloc(count ? count : 1);
	struct error error = {0};
	const char *why = NULL;
	struct message m;
	int r;

	must(copy, "out of memory");
	memcpy(copy, bytes, count);
	r = message_read_body(copy, count, &m, &why);
	must(r == 0 || (r == -EPROTO && why), "an error other than EPROTO, or without a reason");
	if (r == 0)
		r = record_read(record, &m, value, &error);
	must(r == 0 || r == -EPROTO || (r == -EINVAL && error.message[0]), "refused without a reason");
	if (r == 0)
		check_rows(record, value);
	message_clear(&m);
	free(copy);
	return r == 0;
}

int main(int argc, char **argv)
{
	uint64_t iterations = fuzz_begin(argc, argv, 1000000), accepted = 0;
	char bytes[ROOM];

	make_requests();
	make_answers();
	for (size_t i = 0; i < seed_count; i++)
		must(read_copy(seeds[i].bytes, seeds[i].count, seeds[i].record), "a seed was refused");
	for (uint64_t i = 0; i < iterations; i++) {
		size_t which = draw(seed_count), count = seeds[which].count;

		memcpy(bytes, seeds[which].bytes, count);
		for (uint64_t n = 1 + draw(4); n > 0; n--)
			count = mutate(bytes, count);
		/* Half of them as another form reads them. */
		accepted += read_copy(bytes, count, seeds[draw(2) ? which : draw(seed_count)].record);
	}
	return fuzz_end(accepted, iterations);
}
