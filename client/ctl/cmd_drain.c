/* drain: gpuwmd lets everything go. It says before whom that concerns, and asks where somebody can answer. And reload. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "output.h"
#include "table.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *device;
static bool keep_descriptions, yes;
static const struct option_row drain_options[] = {
	ROW_DEVICE(device, "free the versions that were lost with this GPU, and go on"),
	{"keep-descriptions", "keep the descriptions: the next start brings the versions back",
	 .into = &keep_descriptions},
	{"yes", "don't ask", .into = &yes, .letter = 'y'},
	{0},
};

#define PLACE_TEXT 4096

/* What there is before. */
struct concerned {
	const char *device; /* NULL: all of gpuwmd */
	bool keeps; /* the descriptions */
	uint64_t versions, bytes, leases, processes, aliases, regions, jobs, described;
	char folder[PLACE_TEXT]; /* of descriptions; "": there is none */
};

/* ---- before ----------------------------------------------------------------- */

static void versions_count(const json_t *list, struct concerned *c)
{
	const json_t *version, *tainted;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (strcmp(answer_text(version, "state"), "failed") == 0)
			continue;
		/* Of a device, the versions that were lost with it. */
		tainted = json_object_get(version, "tainted");
		if (c->device && (strcmp(answer_text(tainted, "code"), "ENODEV") != 0 ||
				  !answer_find(version, "parts", "device", c->device)))
			continue;
		c->versions++;
		c->bytes += answer_number(version, "bytes");
		c->leases += answer_number(version, "leases");
	}
}

/* Processes with leases, each once, on the device or on any. */
static void processes_count(const json_t *clients, struct concerned *c)
{
	json_t *seen = json_object();
	const json_t *session, *lease;
	char pid[24];
	size_t i, j;

	json_array_foreach(json_object_get(clients, "clients"), i, session) {
		snprintf(pid, sizeof(pid), "%" PRIu64, answer_number(session, "pid"));
		json_array_foreach(json_object_get(session, "leases"), j, lease) {
			if (!json_object_get(lease, "revoked_ms") &&
			    (!c->device || strcmp(answer_text(lease, "device"), c->device) == 0))
				json_object_set_new(seen, pid, json_true());
		}
	}
	c->processes = json_object_size(seen);
	json_decref(seen);
}

static int concerned_query(struct gpuwm_client *client, struct concerned *c)
{
	json_t *list = NULL, *clients = NULL, *status = NULL;
	const json_t *tiers;
	int code = answer_get(client, "list", NULL, &list);

	if (code == EXIT_DONE)
		code = answer_get(client, "clients", NULL, &clients);
	if (code == EXIT_DONE)
		code = answer_get(client, "status", NULL, &status);
	versions_count(list, c);
	processes_count(clients, c);
	tiers = json_object_get(status, "tiers");
	c->described = answer_number(tiers, "described");
	snprintf(c->folder, sizeof(c->folder), "%s", answer_text(tiers, "folder"));
	c->aliases = answer_number(status, "aliases");
	c->regions = answer_number(status, "regions");
	c->jobs = answer_number(status, "jobs_running");
	json_decref(list);
	json_decref(clients);
	json_decref(status);
	return code;
}

/* "1 lease", "2 leases". */
static void count_add(struct line *line, uint64_t count, const char *one, const char *many)
{
	line_add(line, "%" PRIu64 " %s", count, count == 1 ? one : many);
}

/* What goes, before it goes. */
static void concerned_say(const struct concerned *c)
{
	struct line line = {0};
	char size[SHORT_TEXT];

	line_add(&line, c->device ? "drain will free what was lost: " : "drain will retire ");
	count_add(&line, c->versions, "version", "versions");
	line_add(&line, " (%s) with ", size_text(c->bytes, size));
	count_add(&line, c->leases, "lease", "leases");
	line_add(&line, " of ");
	count_add(&line, c->processes, "process", "processes");
	if (!c->device) {
		line_add(&line, ", and remove ");
		count_add(&line, c->aliases, "alias", "aliases");
		line_add(&line, ", ");
		count_add(&line, c->regions, "region", "regions");
		line_add(&line, " and ");
		count_add(&line, c->jobs, "running job", "running jobs");
	}
	line_note(&line);
}

static void descriptions_say(const struct concerned *c)
{
	struct line line = {0};

	if (c->device || !*c->folder)
		return;
	line_add(&line, c->keeps ? "it keeps " : "it deletes ");
	count_add(&line, c->described, "description", "descriptions");
	line_add(
		&line,
		c->keeps
			? " in %s: the next start of gpuwmd brings these versions back, with their aliases"
			: " in %s: no restart or reboot brings these versions back; --keep-descriptions keeps them",
		c->folder);
	line_note(&line);
}

/* EXIT_DONE, EXIT_FAILED after the user has said no, or EXIT_USAGE if there is nobody to ask. */
static int drain_consent(const struct concerned *c)
{
	if (c->device && c->versions == 0)
		return EXIT_DONE; /* gpuwmd says why there is nothing to free */
	if (ask_can() || !output_is_data()) {
		concerned_say(c);
		descriptions_say(c);
	}
	if (!yes && !ask_can())
		return exit_with(EXIT_USAGE, "--yes says that you mean it",
				 "nothing was drained: drain asks first, and stdin or stderr is no terminal");
	if (yes ||
	    ask(c->device ? "Free them?" : "Retire all of them, and take nothing new until gpuwmd restarts?"))
		return EXIT_DONE;
	return exit_with(EXIT_FAILED, "--yes answers the question", "nothing was drained");
}

/* ---- after ------------------------------------------------------------------ */

static int left_print(const json_t *answer)
{
	static const struct column columns[] = {
		{"STILL HELD", cell_name, NULL},
		{">LEASES", cell_number, "leases"},
		{">PINS", cell_number, "pins"},
		{"+ID", cell_text, "version"},
		{0},
	};
	const json_t *left = json_object_get(answer, "left");
	int code;

	if (json_array_size(left) == 0)
		return EXIT_DONE;
	code = table_of(columns, left);
	say("gpuwmd frees these when their last lease and pin are gone: gpuwmctl ps lists the leases, gpuwmctl retire REF "
	    "--force revokes them, and gpuwmctl unpin removes a pin");
	return code;
}

static int drained_print(const json_t *answer)
{
	const uint64_t freed = answer_number(answer, "freed");
	const size_t left = json_array_size(json_object_get(answer, "left"));
	struct line line = {0};

	line_add(&line, "drained: ");
	count_add(&line, freed, "version is", "versions are");
	line_add(&line, " freed");
	if (left > 0)
		line_add(&line, ", %zu still held", left);
	else
		line_add(&line, "; no version is left");
	line_say(&line);
	if (!json_object_get(answer, "device"))
		say("gpuwmd takes nothing new until it is started again");
	if (json_object_get(answer, "kept_descriptions"))
		say("descriptions kept: %" PRIu64 "; the next start of gpuwmd brings these versions back",
		    answer_number(answer, "kept_descriptions"));
	return left_print(answer);
}

static int drain_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {drained_print, cell_ref, NULL, "left"};
	struct concerned c = {0};
	json_t *answer;
	uint64_t left;
	int code = EXIT_DONE;

	(void)arguments;
	c.keeps = keep_descriptions;
	if (device && c.keeps)
		return exit_with(EXIT_USAGE, NULL, "drain --device deletes no descriptions to keep");
	if (device)
		code = device_resolve(client, device, &c.device);
	if (code == EXIT_DONE)
		code = concerned_query(client, &c);
	if (code == EXIT_DONE)
		code = drain_consent(&c);
	if (code == EXIT_DONE)
		code = answer_get(client, "drain", c.keeps ? GPUWM_DRAIN_KEEPS : c.device, &answer);
	if (code != EXIT_DONE)
		return code;
	left = json_array_size(json_object_get(answer, "left"));
	json_object_set_new(answer, "freed",
			    json_integer(c.versions > left ? (json_int_t)(c.versions - left) : 0));
	if (c.device)
		json_object_set_new(answer, "device", json_string(c.device));
	code = result_show(answer, &view);
	/* What stays on a device that was lost may be whole on another one. */
	return code == EXIT_DONE && left > 0 && !c.device ? EXIT_IN_USE : code;
}

const struct command command_drain = {
	.name = "drain",
	.summary = "retire every version, and take nothing new until a restart",
	.about =
		"It says what goes, and asks. Where nobody can be asked, it needs --yes. The exit status is 5 while "
		"somebody holds a version.",
	.options = drain_options,
	.example = "gpuwmctl drain\n"
		   "gpuwmctl drain --keep-descriptions --yes",
	.socket = SOCKET_ADMIN,
	.run = drain_run,
};

/* ---- reload ---- */

static int file_print(const json_t *answer)
{
	const char *file = answer_text(answer, "file");

	if (*file)
		say("gpuwmd now uses %s as it stands", file);
	else
		say("gpuwmd was started without a configuration file: it uses its flags, as before");
	answer_error_print(answer, "not_described", "NOT DESCRIBED");
	return EXIT_DONE;
}

static int reload_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {file_print, cell_text, "file", NULL};

	json_t *answer, *status = NULL;
	int code = answer_get(client, "reload", NULL, &answer);

	(void)arguments;
	if (code != EXIT_DONE)
		return code;
	/* gpuwmd took the configuration, and may have found a folder that it can't use. */
	if (answer_ask(client, "status", NULL, &status) == 0)
		json_object_set(answer, "not_described",
				json_object_get(json_object_get(status, "tiers"), "error"));
	json_decref(status);
	return result_show(answer, &view);
}

const struct command command_reload = {
	.name = "reload",
	.summary = "make gpuwmd read its configuration again",
	.about =
		"If the file has an error, the old configuration stays in force, and reload says where the error is.",
	.example = "gpuwmctl reload",
	.socket = SOCKET_ADMIN,
	.run = reload_run,
};
