#include "retire_user.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "table.h"
#include "version.h"

#include <string.h>

static int user_print(const json_t *result)
{
	static const struct column columns[] = {
		{"VERSION", cell_text, "name"},     {"STATE", cell_text, "state"},
		{">LEASES", cell_number, "leases"}, {"ERROR", cell_text, "error"},
		{"+ID", cell_text, "version"},      {0}};
	const uint64_t retired = answer_number(result, "retired"), freed = answer_number(result, "freed");
	const uint64_t regions = answer_number(result, "regions");
	const unsigned long long uid = answer_number(result, "uid");
	const json_t *stay = json_object_get(result, "stay");

	say("%llu version%s of uid %llu %s retired, and %llu of them freed or being freed",
	    (unsigned long long)retired, retired == 1 ? "" : "s", uid, retired == 1 ? "is" : "are",
	    (unsigned long long)freed);
	if (regions > 0)
		say("uid %llu also has %llu region%s: gpuwmctl regions lists them, and --remove ends one", uid,
		    (unsigned long long)regions, regions == 1 ? "" : "s");
	return json_array_size(stay) > 0 ? table_of(columns, stay) : EXIT_DONE;
}

/* Whether it is this user's, and was not retired before. */
static bool is_to_go(const json_t *version, uid_t uid)
{
	const char *state = answer_text(version, "state");

	return answer_number(version, "owner_uid") == uid &&
	       !json_is_true(json_object_get(version, "by_operator")) && strcmp(state, "failed") != 0 &&
	       strcmp(state, "retiring") != 0;
}

/* Adds those that stay with the reason. Sets *ret_asked to the ids of the others. */
static int retire_each(struct gpuwm_client *client, const json_t *list, uid_t uid, const uint64_t *after_ms,
		       json_t *asked, json_t *stay)
{
	const json_t *version;
	char name[CELL_TEXT];
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		const char *id = answer_text(version, "version");
		json_t *aliases;
		int code;

		if (!is_to_go(version, uid))
			continue;
		aliases = json_array();
		code = aliases_drop(client, list, id, aliases);
		json_decref(aliases);
		if (code != EXIT_DONE)
			return code;
		if (version_retire(client, id, id, after_ms, 0) == 0)
			json_array_append_new(asked, json_string(id));
		else
			json_array_append_new(stay, json_pack("{s:s, s:s, s:s, s:I, s:s}", "version", id,
							      "name", cell_ref(version, NULL, name), "state",
							      answer_text(version, "state"), "leases",
							      (json_int_t)answer_number(version, "leases"),
							      "error", gpuwm_error()->message));
	}
	return EXIT_DONE;
}

/* Those that leases and pins still hold stay, too. Returns how many do not. */
static json_int_t count_freed(const json_t *list, const json_t *asked, json_t *stay)
{
	json_int_t freed = 0;
	const json_t *id;
	char name[CELL_TEXT];
	size_t i;

	json_array_foreach(asked, i, id) {
		const json_t *version = answer_version(list, json_string_value(id));
		const bool held = answer_number(version, "leases") > 0 ||
				  json_array_size(json_object_get(version, "pins")) > 0;

		if (held)
			json_array_append_new(stay, json_pack("{s:O, s:s, s:s, s:I}", "version", id, "name",
							      cell_ref(version, NULL, name), "state",
							      answer_text(version, "state"), "leases",
							      (json_int_t)answer_number(version, "leases")));
		freed += !held;
	}
	return freed;
}

static json_int_t count_regions(const json_t *regions, uid_t uid)
{
	const json_t *region;
	json_int_t count = 0;
	size_t i;

	json_array_foreach(json_object_get(regions, "regions"), i, region)
		count += answer_number(region, "owner_uid") == uid &&
			 strcmp(answer_text(region, "state"), "ended") != 0;
	return count;
}

int retire_user(struct gpuwm_client *client, const struct arguments *arguments, uid_t uid,
		const uint64_t *after_ms)
{
	static const struct view view = {user_print, cell_text, "name", "stay"};
	json_t *list = NULL, *regions = NULL, *asked = json_array(), *stay = json_array(), *result = NULL;
	bool refused = false;
	int code = bound_begin(arguments, "some of the user's versions may be retired: gpuwmctl ls shows them");

	if (code == EXIT_DONE)
		code = answer_get(client, "list", NULL, &list);
	if (code == EXIT_DONE)
		code = retire_each(client, list, uid, after_ms, asked, stay);
	json_decref(list);
	list = NULL;
	refused = json_array_size(stay) > 0;
	if (code == EXIT_DONE)
		code = answer_get(client, "list", NULL, &list);
	if (code == EXIT_DONE)
		code = answer_get(client, "region_list", NULL, &regions);
	if (code == EXIT_DONE)
		result = json_pack("{s:I, s:I, s:I, s:I, s:O}", "uid", (json_int_t)uid, "retired",
				   (json_int_t)json_array_size(asked), "freed", count_freed(list, asked, stay),
				   "regions", count_regions(regions, uid), "stay", stay);
	bound_end();
	json_decref(list);
	json_decref(regions);
	json_decref(asked);
	json_decref(stay);
	if (code == EXIT_DONE)
		code = result_show(result, &view);
	return code == EXIT_DONE && refused ? EXIT_IN_USE : code;
}
