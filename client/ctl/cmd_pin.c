/* pin, unpin: versions that stay although nobody has a lease. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "version.h"
#include "line.h"
#include "table.h"

#include "../../proto/names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct pinning {
	struct gpuwm_client *client;
	const struct arguments *arguments;
	char id[VERSION_ID_TEXT]; /* "": not known */
	char name[CELL_TEXT]; /* MODEL@TAG, or what the user wrote */
};

/* What the reference names: gpuwmd does not say which version it pins. */
static int version_find(struct pinning *p)
{
	const char *ref = p->arguments->positional[0];
	const json_t *version;
	char text[CELL_TEXT];
	json_t *list;
	int code = answer_get(p->client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	version = answer_version(list, answer_ref(list, ref));
	snprintf(p->id, sizeof(p->id), "%s", answer_text(version, "version"));
	snprintf(p->name, sizeof(p->name), "%s", version ? cell_ref(version, NULL, text) : ref);
	json_decref(list);
	return EXIT_DONE;
}

static json_t *result_make(const struct pinning *p, const char *action)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s?}", "action", action, "ref", p->arguments->positional[0],
			 "pin", p->arguments->positional[1], "name", p->name, "version", *p->id ? p->id : NULL);
}

/* ---- pin --------------------------------------------------------------------- */

static int pinned_print(const json_t *result)
{
	const char *name = answer_text(result, "name"), *pin = answer_text(result, "pin");

	if (strcmp(answer_text(result, "action"), "unchanged") == 0)
		say("unchanged: %s is pinned as '%s' already", name, pin);
	else
		say("pinned: %s as '%s'", name, pin);
	return EXIT_DONE;
}

static int pin_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {pinned_print, cell_text, "name", NULL};
	struct pinning p = {.client = client, .arguments = arguments};
	int code = version_find(&p), r;

	if (code != EXIT_DONE)
		return code;
	r = gpuwm_pin(client, arguments->positional[0], arguments->positional[1]);
	if (r < 0 && r != -EEXIST)
		return exit_with_error();
	return result_show(result_make(&p, r == -EEXIST ? "unchanged" : "pinned"), &view);
}

const struct command command_pin = {
	.name = "pin",
	.words = {{"REF", WORD_REF, false}, {"NAME", WORD_PIN_NEW, false}},
	.summary = "keep a version until it is unpinned",
	.about = "NAME names the pin.",
	.example = "gpuwmctl pin llama@v2 nightly-tests",
	.run = pin_run,
};

/* ---- unpin ------------------------------------------------------------------- */

static int unpinned_print(const json_t *result)
{
	const char *state = answer_text(result, "state"), *name = answer_text(result, "name");
	const uint64_t leases = answer_number(result, "leases"), pins = answer_number(result, "pins");
	struct line line = {0};
	char held[HOLDERS_TEXT];

	line_add(&line, "unpinned: %s was pinned as '%s'", name, answer_text(result, "pin"));
	if (strcmp(state, "freed") == 0)
		line_add(&line, ", and is freed");
	else if (strcmp(state, "retiring") == 0 && leases + pins > 0)
		line_add(&line, ", and is retiring: %s", holders_text(leases, pins, held));
	else if (strcmp(state, "retiring") == 0)
		line_add(&line, ", and is being freed");
	line_say(&line);
	return EXIT_DONE;
}

/* Adds the version's state after the unpin. If this pin was the last hold on a retiring version, the version is freed now. */
static int state_add(const struct pinning *p, json_t *result)
{
	const json_t *version;
	json_t *list;
	int code = answer_get(p->client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	version = answer_version(list, p->id);
	json_object_set_new(result, "state", json_string(version ? answer_text(version, "state") : "freed"));
	json_object_set_new(result, "leases", json_integer((json_int_t)answer_number(version, "leases")));
	json_object_set_new(result, "pins",
			    json_integer((json_int_t)json_array_size(json_object_get(version, "pins"))));
	json_decref(list);
	return EXIT_DONE;
}

static int unpin_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {unpinned_print, cell_text, "name", NULL};
	struct pinning p = {.client = client, .arguments = arguments};
	json_t *result;
	int code = version_find(&p);

	if (code != EXIT_DONE)
		return code;
	if (gpuwm_unpin(client, arguments->positional[0], arguments->positional[1]) < 0)
		return exit_with_error();
	result = result_make(&p, "unpinned");
	code = *p.id ? state_add(&p, result) : EXIT_DONE;
	if (code == EXIT_DONE)
		return result_show(result, &view);
	json_decref(result);
	return code;
}

const struct command command_unpin = {
	.name = "unpin",
	.words = {{"REF", WORD_REF, false}, {"NAME", WORD_PIN, false}},
	.summary = "remove the pin with that name",
	.example = "gpuwmctl unpin llama@v2 nightly-tests",
	.run = unpin_run,
};
