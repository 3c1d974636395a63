/* regions: memory that stays writable, who uses it, and what of it is in use. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "table.h"

#include "../../proto/wire/messages_region.h"

#include <gpuwm/region.h>

#include <stdio.h>
#include <string.h>

static bool remove_it;
static const struct option_row regions_options[] = {
	{"remove", "end REGION, whoever uses it", .into = &remove_it},
	ROW_WATCH,
	{0},
};

/* A region without a name is known by its id. */
static const char *region_name(const json_t *region, const char *key, char text[CELL_TEXT])
{
	const char *name = answer_text(region, key);

	(void)text;
	return *name ? name : answer_text(region, "region");
}

static uint64_t blocks_used(const json_t *region)
{
	return answer_number(region, "blocks_owned") + answer_number(region, "blocks_ready") +
	       answer_number(region, "blocks_held");
}

/* In a long list gpuwmd does not count all blocks. */
static const char *blocks_cell(const json_t *region, const char *key, char text[CELL_TEXT])
{
	if (!json_is_integer(json_object_get(region, key)))
		return "";
	snprintf(text, CELL_TEXT, "%llu", (unsigned long long)blocks_used(region));
	return text;
}

static void blocks_print(const json_t *region)
{
	const uint64_t all = answer_number(region, "blocks");
	char size[SHORT_TEXT];

	putchar('\n');
	say("%llu blocks of %s: %llu owned, %llu ready, %llu held, %llu free", (unsigned long long)all,
	    size_text(answer_number(region, "block_bytes"), size),
	    (unsigned long long)answer_number(region, "blocks_owned"),
	    (unsigned long long)answer_number(region, "blocks_ready"),
	    (unsigned long long)answer_number(region, "blocks_held"),
	    (unsigned long long)(all - blocks_used(region)));
}

static void scratch_print(const json_t *region)
{
	putchar('\n');
	if (json_is_integer(json_object_get(region, "holder")))
		say("held by slot %llu, and awaited by %llu",
		    (unsigned long long)answer_number(region, "holder"),
		    (unsigned long long)answer_number(region, "waiting"));
	else
		say("held by nobody");
}

/* What is shown of a kind besides what is shown of all. */
static const struct kind {
	const char *word;
	/* Chunks of a pool, messages of a queue, blocks that are in use. NULL: such regions have none. */
	cell_fn *items;
	const char *key;
	bool is_full; /* all of it is in use from the beginning: a queue has cells */
	bool has_largest; /* of one region: gpuwmd does not look for it in a list of all */
	void (*print)(const json_t *region); /* of one region; NULL: nothing */
} kinds[] = {
	{REGION_KIND_POOL, cell_number, "chunks_used", .has_largest = true},
	{REGION_KIND_QUEUE, cell_number, "messages", .is_full = true},
	{REGION_KIND_BLOCKS, blocks_cell, "blocks_ready", .print = blocks_print},
	{REGION_KIND_SCRATCH, .print = scratch_print},
	{0}, /* a kind of a later gpuwmd: it has what all have */
};

static const struct kind *kind_of(const json_t *region)
{
	const struct kind *kind = kinds;

	while (kind->word && strcmp(answer_text(region, "kind"), kind->word) != 0)
		kind++;
	return kind;
}

static const char *region_used(const json_t *region, const char *key, char text[CELL_TEXT])
{
	return kind_of(region)->is_full ? "" : cell_size_known(region, key, text);
}

static const char *region_largest(const json_t *region, const char *key, char text[CELL_TEXT])
{
	return kind_of(region)->has_largest ? cell_size_known(region, key, text) : "";
}

static const char *region_items(const json_t *region, const char *key, char text[CELL_TEXT])
{
	const struct kind *kind = kind_of(region);

	(void)key;
	return kind->items ? kind->items(region, kind->key, text) : "";
}

/* With whom it ends. */
static const char *region_owner(const json_t *region, const char *key, char text[CELL_TEXT])
{
	const json_t *user;
	size_t i;

	if (strcmp(answer_text(region, key), "uid") == 0) {
		snprintf(text, CELL_TEXT, "uid %llu", (unsigned long long)answer_number(region, "owner_uid"));
		return text;
	}
	json_array_foreach(json_object_get(region, "users"), i, user) {
		if (json_is_true(json_object_get(user, "owns"))) {
			snprintf(text, CELL_TEXT, "pid %llu", (unsigned long long)answer_number(user, "pid"));
			return text;
		}
	}
	return "";
}

/* ---- one region ---------------------------------------------------------- */

static const char *user_rights(const json_t *user, const char *key, char text[CELL_TEXT])
{
	(void)text;
	if (json_is_true(json_object_get(user, "owns")))
		return "owns";
	return json_is_true(json_object_get(user, key)) ? "writes" : "reads";
}

/* "3, 7", or "" for nobody. */
static const char *chunk_slots(const json_t *chunk, const char *key, char text[CELL_TEXT])
{
	const json_t *slot;
	size_t i, used = 0;

	text[0] = '\0';
	json_array_foreach(json_object_get(chunk, key), i, slot) {
		used += (size_t)snprintf(text + used, CELL_TEXT - used, "%s%lld", i ? ", " : "",
					 (long long)json_integer_value(slot));
	}
	return text;
}

static const char *chunk_age(const json_t *chunk, const char *key, char text[CELL_TEXT])
{
	char age[SHORT_TEXT];

	snprintf(text, CELL_TEXT, "%s", time_text(answer_number(chunk, key), age));
	return text;
}

static int chunks_table(const json_t *region)
{
	static const struct column columns[] = {
		{">CHUNK", cell_number, "chunk"},
		{">SIZE", cell_size, "bytes"},
		{">AGE", chunk_age, "age_ms"},
		{"HELD BY SLOT", chunk_slots, "holders"},
		{"AWAITS SLOT", chunk_slots, "awaited"},
		{">AWAITS OTHERS", cell_number, "open"},
		{0},
	};
	const json_t *chunks = json_object_get(region, "oldest");

	if (json_array_size(chunks) == 0)
		return EXIT_DONE;
	putchar('\n');
	say("chunks in use, the oldest first:");
	return table_of(columns, chunks);
}

static int regions_print(const json_t *answer)
{
	static const struct column columns[] = {
		{"REGION", region_name, "name"},
		{"KIND", cell_text, "kind"},
		{"!STATE", cell_text, "state"},
		{"DEVICE", cell_device, "device"},
		{">SIZE", cell_size, "bytes"},
		{">USED", region_used, "bytes_used"},
		{"?>LARGEST FREE", region_largest, "largest_free"},
		{"?>ITEMS", region_items, NULL},
		{">USERS", cell_count, "users"},
		{"?OWNER", region_owner, "owner"},
		{">AGE", cell_age, "created_ms"},
		{"+ID", cell_text, "region"},
		{0},
	};
	const json_t *regions = json_object_get(answer, "regions"), *region;
	char name[CELL_TEXT], text[CELL_TEXT];
	size_t i;
	int code = table_or_say(columns, regions, "no regions");

	json_array_foreach(regions, i, region) {
		snprintf(name, sizeof(name), "%.480s has ended", region_name(region, "name", text));
		answer_error_print(region, "error", name);
	}
	return code;
}

static int region_print(const json_t *answer)
{
	static const struct column user_columns[] = {
		{">SLOT", cell_number, "slot"},    {">PID", cell_number, "pid"},
		{">UID", cell_number, "uid"},      {"RIGHT", user_rights, "write"},
		{">HOLDS", cell_number, "holds"},  {">AGE", cell_age, "since_ms"},
		{"COMMAND", cell_text, "command"}, {0},
	};
	const json_t *region = json_array_get(json_object_get(answer, "regions"), 0);
	int code = regions_print(answer);

	if (!region || code != EXIT_DONE)
		return code;
	if (kind_of(region)->print)
		kind_of(region)->print(region);
	putchar('\n');
	code = table_of(user_columns, json_object_get(region, "users"));
	return code == EXIT_DONE ? chunks_table(region) : code;
}

/* ---- the end of one ------------------------------------------------------- */

static int removed_print(const json_t *result)
{
	const char *region = answer_text(result, "region");

	say("%s has ended: its memory is free when its users have closed it", region);
	return EXIT_DONE;
}

static int regions_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view all = {regions_print, region_name, "name", "regions"};
	static const struct view one = {region_print, region_name, "name", "regions"};
	static const struct view removed = {removed_print, cell_text, "region", NULL};
	const char *region = arguments->positional[0];

	if (remove_it) {
		if (!region)
			return exit_with(EXIT_USAGE, "gpuwmctl regions lists them", "--remove needs a region");
		if (gpuwm_region_remove(client, region) < 0)
			return exit_with_error();
		return result_show(json_pack("{s:s, s:s}", "region", region, "state", "ended"), &removed);
	}
	return answer_show(client, "region_list", region, region ? &one : &all);
}

const struct command command_regions = {
	.name = "regions",
	.words = {{"REGION", WORD_REGION, true}},
	.summary = "list regions: memory that stays writable",
	.about =
		"For each region: kind, device, size, and what of it is in use. With REGION also its users, and its oldest "
		"chunks, its blocks by state, or who holds it.",
	.options = regions_options,
	.example = "gpuwmctl regions kv-cache",
	.run = regions_run,
};
