/* rm: a version that goes, whatever its state is: a failed one from the list, another one from the memory. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "table.h"
#include "version.h"

#include "../../proto/names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool aliases_too;
static const struct option_row rm_options[] = {
	{"aliases", "remove the aliases that name the version, too", .into = &aliases_too},
	{0},
};

/* How long gpuwmd may take to free what nobody holds: it tells the store of descriptors first. */
#define FREEING_MS 2000

struct removal {
	struct gpuwm_client *client;
	const struct arguments *arguments;
	const char *ref; /* as the user wrote it */
	char target[ALIAS_TEXT]; /* the version's id if gpuwmd lists it, else the same */
	json_t *aliases; /* that were removed */
};

/* ---- what became of it ----------------------------------------------------- */

static int removed_print(const json_t *result)
{
	const char *ref = answer_text(result, "ref");
	const json_t *pins = json_object_get(result, "pins");
	char held[HOLDERS_TEXT];
	int code;

	aliases_print(json_object_get(result, "aliases"));
	if (!json_is_array(pins)) {
		say("%s is %s", ref, answer_text(result, "state"));
		return EXIT_DONE;
	}
	say("%s is retiring: %s; it is freed when the last one is gone", ref,
	    holders_text(answer_number(result, "lease_count"), json_array_size(pins), held));
	code = holders_print(answer_text(result, "version"), pins, json_object_get(result, "leases"));
	if (answer_number(result, "lease_count") > 0)
		say("gpuwmctl retire %s --force revokes the leases, whatever their holders do",
		    answer_text(result, "version"));
	return code;
}

static int removed_show(struct removal *r, const char *state, const json_t *version)
{
	static const struct view view = {removed_print, cell_text, "ref", NULL};

	return result_show(json_pack("{s:s, s:s, s:s, s:O, s:O?, s:o?, s:I}", "ref", r->ref, "version",
				     r->target, "state", state, "aliases", r->aliases, "pins",
				     json_object_get(version, "pins"), "leases",
				     version ? holders_query(r->client, r->target) : NULL, "lease_count",
				     (json_int_t)answer_number(version, "leases")),
			   &view);
}

/* The version is retiring. */
static int retired_tell(struct removal *r)
{
	const json_t *version;
	json_t *list;
	int code = answer_get(r->client, "list", NULL, &list), waited = 0;

	if (code != EXIT_DONE)
		return code;
	version = answer_version(list, r->target);
	if (version &&
	    answer_number(version, "leases") + json_array_size(json_object_get(version, "pins")) > 0) {
		code = removed_show(r, "retiring", version);
	} else {
		waited = gpuwm_retire(r->client, r->target, FREEING_MS);
		if (waited == -ETIMEDOUT)
			code = removed_show(r, "being freed", NULL);
		else
			code = waited < 0 && waited != -ENOENT ? (int)exit_with_error()
							       : removed_show(r, "freed", NULL);
	}
	json_decref(list);
	return code;
}

/* ---- rm -------------------------------------------------------------------- */

static int removal_run(struct removal *r, const json_t *list)
{
	const char *id = answer_ref(list, r->ref);
	int code = EXIT_DONE, removed;

	snprintf(r->target, sizeof(r->target), "%s", *id ? id : r->ref);
	removed = gpuwm_remove(r->client, r->target);
	if (removed == 0)
		return removed_show(r, "removed", NULL);
	if (removed != -EINVAL)
		return exit_with_error();
	/* It did not fail. */
	if (aliases_too)
		code = aliases_drop(r->client, list, r->target, r->aliases);
	if (code != EXIT_DONE)
		return code;
	return gpuwm_retire(r->client, r->target, 0) < 0 ? version_busy(r->client, r->arguments, r->target)
							 : retired_tell(r);
}

static int rm_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct removal r = {.client = client, .arguments = arguments, .ref = arguments->positional[0]};
	json_t *list;
	int code = answer_get(client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	r.aliases = json_array();
	code = removal_run(&r, list);
	json_decref(r.aliases);
	json_decref(list);
	return code;
}

const struct command command_rm = {
	.name = "rm",
	.words = {{"REF", WORD_REF, false}},
	.summary = "retire a version, or remove a failed one from the list",
	.about =
		"gpuwmd frees the version when its last lease and pin are gone; rm says who holds it. rm refuses a version "
		"that an alias other than previous names.",
	.options = rm_options,
	.example = "gpuwmctl rm llama@v2\n"
		   "gpuwmctl rm llama@v2 --aliases",
	.run = rm_run,
};
