/* retire: a version that goes when nobody holds it any more. */
#include "commands.h"

#include "answer.h"
#include "command.h"
#include "exit.h"
#include "line.h"
#include "retire_user.h"
#include "table.h"
#include "version.h"

#include "../../proto/names.h"
#include "../../base/clock.h"

#include <stdio.h>
#include <string.h>

static bool aliases_too, waits, force;
static struct option_number force_after, uid;
static const struct option_row retire_options[] = {
	{"aliases", "remove the aliases that name the version, too", .into = &aliases_too},
	{"wait", "wait until the version is freed, for at most SECONDS if they are given", "[SECONDS]",
	 take_wait_seconds, .into = &waits},
	{"force", "revoke its leases", .into = &force},
	{"after", "how long the holders have until then, such as 30s (default: no time)", "TIME", take_time,
	 .into = &force_after, .needs = "force", .most = FORCE_AFTER_MS_MAX},
	{"uid", "all versions of this user, by name or number, with their aliases, in place of REF", "USER",
	 take_user, .into = &uid, .most = UINT32_MAX - 1, .kind = WORD_UID},
	{0},
};

struct retirement {
	struct gpuwm_client *client;
	const struct arguments *arguments;
	char id[VERSION_ID_TEXT]; /* "": not known */
	char name[CELL_TEXT]; /* MODEL@TAG, or the id or the reference where there is none */
	bool was_retiring;
	json_t *aliases; /* that were removed */
};

/* ---- what became of it ---------------------------------------------------- */

static const char *forced_text(const json_t *result, char ret_text[SHORT_TEXT + 32])
{
	const json_t *after = json_object_get(result, "force_in_ms");
	char time[SHORT_TEXT];

	ret_text[0] = '\0';
	if (after)
		snprintf(ret_text, SHORT_TEXT + 32, "; gpuwmd revokes them in %s",
			 time_text((uint64_t)json_integer_value(after), time));
	return ret_text;
}

static int held_print(const json_t *result)
{
	const char *name = answer_text(result, "name");
	const json_t *pins = json_object_get(result, "pin_names");
	const uint64_t leases = answer_number(result, "leases");
	const bool forced = json_object_get(result, "force_in_ms");
	char held[HOLDERS_TEXT], when[SHORT_TEXT + 32];
	int code;

	holders_text(leases, json_array_size(pins), held);
	if (json_is_true(json_object_get(result, "changed")))
		say("%s is retiring: %s%s", name, held, forced_text(result, when));
	else
		say("unchanged: %s is retiring already: %s%s", name, held, forced_text(result, when));
	code = holders_print(name, pins, json_object_get(result, "holders"));
	if (leases > 0 && !forced)
		say("gpuwmctl retire %s --force revokes the leases, whatever their holders do", name);
	return code;
}

static int retired_print(const json_t *result)
{
	const char *name = answer_text(result, "name");

	aliases_print(json_object_get(result, "aliases"));

	if (strcmp(answer_text(result, "state"), "freed") == 0) {
		say("%s is freed", name);
		return EXIT_DONE;
	}
	if (!json_is_integer(json_object_get(result, "leases"))) {
		say("%s is retiring: it is freed when its last lease and pin are gone", name);
		return EXIT_DONE;
	}
	if (answer_number(result, "leases") + answer_number(result, "pins") > 0)
		return held_print(result);
	say("%s is being freed", name);
	return EXIT_DONE;
}

/* ---- the result ------------------------------------------------------------- */

/* What still holds the version, for the reader: it may be freed a moment later. */
static json_t *result_make(const struct retirement *r, const json_t *version)
{
	const struct arguments *arguments = r->arguments;
	json_t *pins = json_object_get(version, "pins");
	json_t *result = json_pack("{s:s, s:s, s:s, s:O, s:s, s:b}", "version", r->id, "ref",
				   arguments->positional[0], "name", r->name, "aliases", r->aliases, "state",
				   version ? "retiring" : "freed", "changed", !r->was_retiring || force);

	/* A second retire succeeds only while gpuwmd still has the version: it is one that `list` does not tell of. */
	if (!version && gpuwm_retire(r->client, r->id, 0) == 0) {
		json_object_set_new(result, "state", json_string("retiring"));
		json_object_set_new(result, "leases", json_null());
		json_object_set_new(result, "pins", json_null());
		return result;
	}
	json_object_set_new(result, "leases", json_integer((json_int_t)answer_number(version, "leases")));
	json_object_set_new(result, "pins", json_integer((json_int_t)json_array_size(pins)));
	json_object_set_new(result, "pin_names", pins ? json_incref(pins) : json_array());
	if (force && version)
		json_object_set_new(result, "force_in_ms", json_integer((json_int_t)force_after.value));
	if (version)
		json_object_set_new(result, "holders", holders_query(r->client, r->id));
	return result;
}

/* ---- before ------------------------------------------------------------------ */

/* An id stands for itself: `list` may not have it. */
static int version_find(struct retirement *r)
{
	const char *ref = r->arguments->positional[0];
	const json_t *version;
	char text[CELL_TEXT];
	uint8_t id[16];
	json_t *list;
	int code = answer_get(r->client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	snprintf(r->id, sizeof(r->id), "%s", hex128_parse(ref, id) == 0 ? ref : answer_ref(list, ref));
	version = answer_version(list, r->id);
	snprintf(r->name, sizeof(r->name), "%s", version ? cell_ref(version, NULL, text) : ref);
	r->was_retiring = strcmp(answer_text(version, "state"), "retiring") == 0;
	if (aliases_too)
		code = aliases_drop(r->client, list, r->id, r->aliases);
	json_decref(list);
	return code;
}

/* ---- the command ------------------------------------------------------------- */

static int retirement_begin(struct retirement *r)
{
	int code = bound_begin(r->arguments,
			       aliases_too ? "it is not retired; aliases of it may be removed already, "
					     "which gpuwmctl ls shows"
					   : NULL);

	if (code == EXIT_DONE)
		code = version_find(r);
	bound_end();
	return code;
}

/* Retires it, and waits as long as the user says. The library bounds only calls that wait. */
static int retirement_ask(const struct retirement *r)
{
	const struct arguments *arguments = r->arguments;
	const uint64_t *after_ms = force ? &force_after.value : NULL;
	int64_t wait_ms = !waits ? 0 : arguments->limit.given ? (int64_t)arguments->limit.value : -1;
	/* Without its aliases, a reference such as MODEL names it no more. */
	const char *ref = aliases_too && *r->id ? r->id : arguments->positional[0];
	int code = EXIT_DONE;

	if (wait_ms > 0) /* what the calls before left of it; 0 would not wait */
		wait_ms = clock_later(clock_until(arguments->deadline_ms), 1);
	else if (wait_ms == 0)
		code = bound_begin(arguments, "it may be retired or not: gpuwmctl ls shows it");
	if (code == EXIT_DONE && version_retire(r->client, ref, r->id, after_ms, wait_ms) < 0)
		code = version_busy(r->client, arguments, r->id);
	bound_end();
	return code;
}

static int retirement_tell(const struct retirement *r)
{
	static const struct view view = {retired_print, cell_text, "name", NULL};
	json_t *list, *result = NULL;
	int code = bound_begin(r->arguments, "it is retired: gpuwmctl ls shows whether it is freed");

	if (code == EXIT_DONE)
		code = answer_get(r->client, "list", NULL, &list);
	if (code == EXIT_DONE) {
		result = result_make(r, answer_version(list, r->id));
		json_decref(list);
	}
	bound_end();
	return code == EXIT_DONE ? result_show(result, &view) : code;
}

static int retire_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct retirement r = {.client = client, .arguments = arguments};
	int code;

	if ((arguments->positional[0] != NULL) == uid.given || (uid.given && waits))
		return exit_with(EXIT_USAGE, "gpuwmctl ls lists versions and whose they are",
				 "retire takes REF or --uid, and --wait with REF only");
	if (uid.given)
		return retire_user(client, arguments, (uid_t)uid.value, force ? &force_after.value : NULL);
	r.aliases = json_array();
	code = retirement_begin(&r);
	if (code == EXIT_DONE)
		code = retirement_ask(&r);
	if (code == EXIT_DONE)
		code = retirement_tell(&r);
	json_decref(r.aliases);
	return code;
}

const struct command command_retire = {
	.name = "retire",
	.words = {{"REF", WORD_REF, true}},
	.summary = "give no new leases, and free the version after the last one",
	.about = "gpuwmd frees the version when its last lease and pin are gone.",
	.options = retire_options,
	.example = "gpuwmctl retire llama@v1 --wait 60\n"
		   "gpuwmctl retire llama@v1 --aliases --force --after 30s\n"
		   "gpuwmctl retire --uid 2001",
	.run = retire_run,
};
