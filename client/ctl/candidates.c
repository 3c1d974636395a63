#include "hint.h"

#include "answer.h"
#include "command.h"
#include "load.h"
#include "exit.h"
#include "hub.h"
#include "line.h"

#include "../../proto/names.h"
#include "../../base/utf8.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ABOUT_TEXT 200

void candidate_offer(const struct completion *c, const char *text, const char *about)
{
	char shown[UTF8_SHOWN_MAX(ABOUT_TEXT)] = "";

	if (strncmp(text, c->current, strlen(c->current)) != 0)
		return;
	if (about)
		utf8_show(about, shown, sizeof(shown));
	printf("%s%s%s%s\n", c->before, text, *shown ? "\t" : "", shown);
}

/* ---- names ------------------------------------------------------------------ */

/* Which names of the list may stand there. */
struct wanted {
	const char *model; /* NULL: of every model, and the model stands before it */
	bool models, tags, aliases, previous;
};

static void offer_name(const struct completion *c, const struct wanted *wanted, const json_t *item,
		       const char *key, const char *about)
{
	const char *model = answer_text(item, "model");
	char text[2 * NAME_BYTES_MAX + 2];

	if (wanted->model && strcmp(wanted->model, model) != 0)
		return;
	snprintf(text, sizeof(text), "%s%s%s", wanted->model ? "" : model, wanted->model ? "" : "@",
		 answer_text(item, key));
	candidate_offer(c, text, about);
}

/* Each model once: gpuwmd lists the versions of a model side by side. after: what the candidate ends with. */
static void offer_models(const struct completion *c, const json_t *list, const char *after)
{
	const json_t *version;
	const char *last = "";
	char text[NAME_BYTES_MAX + 2];
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (strcmp(answer_text(version, "model"), last) == 0)
			continue;
		last = answer_text(version, "model");
		snprintf(text, sizeof(text), "%s%s", last, after);
		candidate_offer(c, text, "model");
	}
}

static void offer_names(const struct completion *c, const struct wanted *wanted, const json_t *list)
{
	const json_t *version, *alias;
	char about[ABOUT_TEXT], size[SHORT_TEXT];
	size_t i;

	if (wanted->models)
		offer_models(c, list, "");
	if (wanted->tags) {
		json_array_foreach(json_object_get(list, "versions"), i, version) {
			snprintf(about, sizeof(about), "%s, %s", answer_text(version, "state"),
				 size_text(answer_number(version, "bytes"), size));
			offer_name(c, wanted, version, "tag", about);
		}
	}
	if (!wanted->aliases)
		return;
	json_array_foreach(json_object_get(list, "aliases"), i, alias) {
		if (!wanted->previous && strcmp(answer_text(alias, "alias"), ALIAS_PREVIOUS) == 0)
			continue;
		snprintf(about, sizeof(about), "names %s", answer_tag(list, answer_text(alias, "version")));
		offer_name(c, wanted, alias, "alias", about);
	}
}

static void offer_pins(const struct completion *c, const json_t *list)
{
	const char *ref = c->arguments->positional[0];
	const json_t *version = answer_version(list, answer_ref(list, ref ? ref : "")), *pin;
	size_t i;

	json_array_foreach(json_object_get(version, "pins"), i, pin)
		candidate_offer(c, json_string_value(pin), "pin");
}

static void offer_of_list(const struct completion *c, enum word_kind kind, const json_t *list)
{
	const char *first = c->arguments->positional[0];
	char model[NAME_BYTES_MAX + 1] = "", of_alias[ALIAS_TEXT];
	const char *alias;

	if (first)
		snprintf(model, sizeof(model), "%.*s", (int)strcspn(first, "@"), first);
	switch (kind) {
	case WORD_REF:
		offer_names(c, &(struct wanted){NULL, true, true, true, true}, list);
		break;
	case WORD_ALIAS_OF:
		offer_names(c, &(struct wanted){NULL, true, false, true, false}, list);
		break;
	case WORD_TARGET:
		offer_names(c, &(struct wanted){model, false, true, true, true}, list);
		break;
	case WORD_ALIAS:
	case WORD_NAME:
		offer_names(c, &(struct wanted){model, false, false, true, false}, list);
		break;
	case WORD_NEW:
		offer_models(c, list, "@");
		break;
	case WORD_PIN:
		offer_pins(c, list);
		break;
	case WORD_ID:
		if (first && arguments_alias(c->arguments, of_alias, &alias) == 0)
			candidate_offer(c, answer_alias(list, of_alias, alias ? alias : ALIAS_CURRENT),
					"it names this now");
		break;
	default:
		offer_models(c, list, "");
	}
}

/* ---- numbers ------------------------------------------------------------------ */

static void offer_number(const struct completion *c, uint64_t number, const char *about)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	candidate_offer(c, text, about);
}

/* Leases, and the processes and users that hold some. */
static void offer_holders(const struct completion *c, enum word_kind kind, const json_t *clients)
{
	const json_t *session, *lease;
	char about[ABOUT_TEXT];
	size_t i, j;

	json_array_foreach(json_object_get(clients, "clients"), i, session) {
		json_array_foreach(json_object_get(session, "leases"), j, lease) {
			snprintf(about, sizeof(about), "%.60s: %.60s@%.60s", answer_text(session, "command"),
				 answer_text(lease, "model"), answer_text(lease, "tag"));
			if (kind == WORD_LEASE)
				offer_number(c, answer_number(lease, "lease"), about);
			else if (j == 0)
				offer_number(c, answer_number(session, kind == WORD_PID ? "pid" : "uid"),
					     about);
		}
	}
}

static void offer_jobs(const struct completion *c, const json_t *jobs)
{
	const json_t *job;
	char about[ABOUT_TEXT];
	size_t i;

	json_array_foreach(json_object_get(jobs, "jobs"), i, job) {
		snprintf(about, sizeof(about), "%s %.60s@%.60s: %s", answer_text(job, "kind"),
			 answer_text(job, "model"), answer_text(job, "tag"), answer_text(job, "state"));
		offer_number(c, answer_number(job, "job"), about);
	}
}

static void offer_regions(const struct completion *c, const json_t *regions)
{
	const json_t *region;
	size_t i;

	json_array_foreach(json_object_get(regions, "regions"), i, region) {
		const char *name = answer_text(region, "name");

		candidate_offer(c, *name ? name : answer_text(region, "region"), answer_text(region, "kind"));
	}
}

static void offer_devices(const struct completion *c, const json_t *status)
{
	const json_t *device;
	char number[24];
	unsigned gpus = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		candidate_offer(c, answer_text(device, "device"), answer_text(device, "name"));
		if (strcmp(answer_text(device, "device"), "host") == 0)
			continue;
		snprintf(number, sizeof(number), "cuda:%u", gpus++);
		candidate_offer(c, number, answer_text(device, "name"));
	}
}

/* ---- kinds ---------------------------------------------------------------------- */

static void offer_codes(const struct completion *c, const struct explanation *list)
{
	for (; list->code; list++)
		candidate_offer(c, list->code, list->meaning);
}

/* What gpuwmd is asked for the kind; NULL: nothing. */
static const char *method_of(enum word_kind kind)
{
	switch (kind) {
	case WORD_LEASE:
	case WORD_PID:
	case WORD_UID:
		return "clients";
	case WORD_JOB:
		return "jobs";
	case WORD_REGION:
		return "region_list";
	case WORD_DEVICE:
		return "status";
	case WORD_ANY:
	case WORD_FILE:
	case WORD_SOURCE:
	case WORD_CODE:
	case WORD_PIN_NEW:
	case WORD_COMMAND:
		return NULL;
	default:
		return "list";
	}
}

static void offer_of(const struct completion *c, enum word_kind kind, const json_t *answer)
{
	switch (kind) {
	case WORD_LEASE:
	case WORD_PID:
	case WORD_UID:
		offer_holders(c, kind, answer);
		break;
	case WORD_JOB:
		offer_jobs(c, answer);
		break;
	case WORD_REGION:
		offer_regions(c, answer);
		break;
	case WORD_DEVICE:
		offer_devices(c, answer);
		break;
	default:
		offer_of_list(c, kind, answer);
	}
}

/* A plan whose name begins so. */
struct offered_cuts {
	const struct completion *c;
	size_t count;
};

static void offer_cut(const char *name, void *user_data)
{
	struct offered_cuts *offered = user_data;

	if (strncmp(name, offered->c->current, strlen(offered->c->current)) != 0)
		return;
	candidate_offer(offered->c, name, NULL);
	offered->count++;
}

static void offer_repository(const char *repository, const void *user_data)
{
	char source[sizeof(HUB_PREFIX) + HUB_NAME_MAX];

	snprintf(source, sizeof(source), HUB_PREFIX "%s", repository);
	candidate_offer(user_data, source, NULL);
}

static bool file_matches(const char *pattern)
{
	glob_t found;
	const bool matches = glob(pattern, 0, NULL, &found) == 0;

	if (matches)
		globfree(&found);
	return matches;
}

/* Models of the hub after "hf:"; and "hf:" for its first letters, unless a file here begins so. */
static void offer_sources(const struct completion *c)
{
	const size_t length = strlen(c->current);
	char pattern[sizeof(HUB_PREFIX) + 1];

	if (hub_is_source(c->current)) {
		hub_names(offer_repository, c);
		return;
	}
	snprintf(pattern, sizeof(pattern), "%.*s*", (int)sizeof(HUB_PREFIX) - 1, c->current);
	if (length > 0 && strncmp(HUB_PREFIX, c->current, length) == 0 && !file_matches(pattern))
		candidate_offer(c, HUB_PREFIX, "a model in the hub's cache");
	else
		puts(":files");
}

void candidates_print(const struct completion *c, enum word_kind kind)
{
	const char *method = method_of(kind);
	struct offered_cuts cuts = {c, 0};
	struct gpuwm_client *client;
	json_t *answer;

	if (kind == WORD_FILE)
		puts(":files");
	if (kind == WORD_SOURCE)
		offer_sources(c);
	if (kind == WORD_CUT) {
		cut_names(offer_cut, &cuts);
		if (cuts.count == 0) /* shells offer either words or files */
			puts(":files");
	}
	if (kind == WORD_CODE) {
		offer_codes(c, explanations_of_statuses);
		offer_codes(c, explanations_of_errors);
	}
	if (!method || connect_as(c->arguments, SOCKET_ANY, &client) < 0)
		return;
	if (answer_ask(client, method, NULL, &answer) == 0) {
		offer_of(c, kind, answer);
		json_decref(answer);
	}
	gpuwm_close(client);
}
