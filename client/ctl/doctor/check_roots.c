/* models: the configuration, and the folders that models are loaded from. */
#include "groups.h"

#include "../answer.h"
#include "gpuwmd.h"
#include "machine.h"
#include "program.h"
#include "../../../base/bytes.h"
#include "../../../base/limits.h"
#include "../../../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the configuration ------------------------------------------------------- */

/* What `gpuwmd --check-config` writes: a warning of each root, and some more, of 2 KiB each at most. */
#define CHECKED_BYTES ((ROOTS_MAX + 8) * KIB(2))
#define ERROR_MARK "gpuwmd: error: "
#define WARNING_MARK "gpuwmd: warning: "
#define SOCKET_MARK "[socket] "
/* How it warns of a root: its path, why, and the remedy stand between these. */
#define ROOT_MARK "the root "
#define ROOT_WRONG " can't be used: "
#define ROOT_REMEDY ". Loads from below it fail: "

/* Cuts the next line of *rest off, and returns what follows the mark in it. NULL: no more line has it. */
static char *line_next(char **rest, const char *mark)
{
	char *line;

	while ((line = strsep(rest, "\n"))) {
		char *found = strstr(line, mark);

		if (found)
			return found + strlen(mark);
	}
	return NULL;
}

static bool is_systems(const char *config)
{
	return strcmp(config, GPUWMD_CONFIG_SYSTEM) == 0;
}

/* That an ordinary user may not make the system's sockets says nothing of the user of the service. */
static bool is_of_another_user(const char *config, const char *warning)
{
	return is_systems(config) && geteuid() != 0 &&
	       strncmp(warning, SOCKET_MARK, strlen(SOCKET_MARK)) == 0 && strstr(warning, strerror(EACCES));
}

/* Adds what gpuwmd warns of to what doctor knows, but for what check_sockets tells. The warnings about roots are for roots_judge. */
static void warnings_take(struct findings *findings, const char *config, const char *socket, char *text,
			  bool answers, json_t *ret_roots)
{
	char *warning;

	while ((warning = line_next(&text, WARNING_MARK))) {
		char *why = strstr(warning, ROOT_WRONG), *remedy = strstr(warning, ROOT_REMEDY);

		if (strncmp(warning, ROOT_MARK, strlen(ROOT_MARK)) == 0 && why && remedy && why < remedy) {
			*why = *remedy = '\0';
			json_object_set_new(ret_roots, warning + strlen(ROOT_MARK),
					    json_pack("{s:s, s:s}", "why", why + strlen(ROOT_WRONG), "remedy",
						      remedy + strlen(ROOT_REMEDY)));
		} else if (!answers && !is_of_another_user(config, warning) &&
			   !check_sockets_says(socket, warning)) {
			/* A gpuwmd that answers is judged by the other groups. */
			finding(findings, VERDICT_WARNING, "configuration", config,
				"mend it before gpuwmd starts; see gpuwmd.conf(5)", "%s (judged as uid %u)",
				warning, (unsigned)geteuid());
		}
	}
}

/* Sets in ret_roots, by its path, each root that gpuwmd --check-config warns of. */
static void config_judge(struct findings *findings, const char *socket, bool answers, json_t *ret_roots)
{
	static char text[CHECKED_BYTES];
	char config[PLACE_BYTES], program[PLACE_BYTES], place[PLACE_BYTES];
	const char *words[] = {program, "--check-config", "--config", place, NULL}, *note;
	char *rest = text;
	const char *wrong;
	int status;

	if (!gpuwmd_config_find(findings, "configuration", socket, config, place, &note))
		return;
	if (!program_find("gpuwmd", program, sizeof(program))) {
		finding(findings, VERDICT_NOT_APPLICABLE, "configuration", config, NULL,
			"there is no gpuwmd beside gpuwmctl to check it%s", note);
		return;
	}
	/* The system's service has no such folder. A user who starts gpuwmd with another file has one. */
	status = program_run_without(is_systems(config) ? "XDG_RUNTIME_DIR" : NULL, words, PROGRAM_MS, true,
				     text, sizeof(text));
	if (status == 0) {
		finding(findings, VERDICT_OK, "configuration", config, NULL, "gpuwmd takes it%s", note);
		warnings_take(findings, config, socket, text, answers, ret_roots);
		return;
	}
	wrong = status < 0 ? strerror(-status) : line_next(&rest, ERROR_MARK);
	finding(findings, VERDICT_FAILED, "configuration", config, "see gpuwmd.conf(5); then: gpuwmctl reload",
		"%s%s", wrong ? wrong : "gpuwmd --check-config failed, and did not say why", note);
}

/* ---- the roots -------------------------------------------------------------- */

/* gpuwmd asks the loader that stands by for its judgement at each status, once a second at most. */
#define JUDGED_MS 3000
#define LOOK_AGAIN_MS 50

static bool loader_stands_by(const json_t *status)
{
	return json_is_true(json_object_get(status, "standby"));
}

/* Whether the loader judged after doctor began to ask, so that what an operator has just mended counts. */
static bool judgement_is_fresh(const json_t *status, uint64_t began_ms)
{
	const json_t *judged = json_object_get(status, "roots_judged");

	return judged && (uint64_t)answer_number(judged, "age_ms") <= clock_steady_ms() - began_ms;
}

/* status, once the loader that stands by has judged the roots anew. *ret_fresh: it has. */
static json_t *status_judged(const char *socket, bool *ret_fresh)
{
	const int64_t deadline = clock_deadline(program_limit(JUDGED_MS));
	const uint64_t began_ms = clock_steady_ms();
	json_t *status = gpuwmd_status(socket);

	while (loader_stands_by(status) && json_array_size(json_object_get(status, "roots")) > 0 &&
	       !judgement_is_fresh(status, began_ms) && clock_left(deadline) > 0) {
		poll(NULL, 0, LOOK_AGAIN_MS);
		json_decref(status);
		status = gpuwmd_status(socket);
	}
	*ret_fresh = judgement_is_fresh(status, began_ms);
	return status;
}

static void root_tell_warning(struct findings *findings, const char *path, const json_t *warning)
{
	finding(findings, VERDICT_WARNING, "root", path, answer_text(warning, "remedy"),
		"it can't be used: %s (no loader stands by; gpuwmd --check-config tried it as uid %u)",
		answer_text(warning, "why"), (unsigned)geteuid());
}

/* A root of gpuwmd's configuration that the loader has not judged. */
static void root_tell_silence(struct findings *findings, const json_t *status, const char *path, bool fresh,
			      const json_t *warnings)
{
	const unsigned long long pid = answer_number(status, "standby_pid");
	const json_t *warning = json_object_get(warnings, path);

	if (!loader_stands_by(status) && warning)
		root_tell_warning(findings, path, warning);
	else if (!loader_stands_by(status))
		finding(findings, VERDICT_NOT_APPLICABLE, "root", path, NULL,
			"no loader stands by that could try it");
	else if (fresh)
		finding(findings, VERDICT_WARNING, "root", path,
			"--config in the loader's service names a file: name the one that gpuwmd has",
			"the loader (pid %llu) has other roots, and does not load from there", pid);
	else
		finding(findings, VERDICT_FAILED, "root", path,
			"does its file system hang? ls -d of the folder shows it",
			"the loader (pid %llu) has not said within %lld ms whether it can use it", pid,
			(long long)program_limit(JUDGED_MS));
}

static void roots_judge(struct findings *findings, const json_t *status, bool fresh, const json_t *warnings)
{
	const json_t *judged = fresh ? json_object_get(status, "roots_judged") : NULL, *root;
	const unsigned long long loader = answer_number(judged, "pid");
	size_t i;

	json_array_foreach(json_object_get(judged, "roots"), i, root) {
		const json_t *error = json_object_get(root, "error");
		const char *path = answer_text(root, "root");

		if (error)
			finding(findings, VERDICT_FAILED, "root", *path ? path : NULL,
				answer_text(error, "detail"), "%s (the loader that tried it: pid %llu)",
				answer_text(error, "message"), loader);
		else
			finding(findings, VERDICT_OK, "root", path, NULL, "the loader (pid %llu) can use it",
				loader);
	}
	json_array_foreach(json_object_get(status, "roots"), i, root) {
		if (!answer_find(judged, "roots", "root", json_string_value(root)))
			root_tell_silence(findings, status, json_string_value(root), fresh, warnings);
	}
}

void check_roots(struct findings *findings, const char *socket)
{
	json_t *warnings = json_object(), *status, *warning;
	const char *path;
	bool fresh;

	status = status_judged(socket, &fresh);
	config_judge(findings, socket, status, warnings);
	if (!status) {
		/* gpuwmd tells the roots: without its answer only those are known that gpuwmd --check-config warns of. */
		if (json_object_size(warnings) == 0)
			finding(findings, VERDICT_NOT_APPLICABLE, "root", NULL, NULL,
				"gpuwmd, which tells the roots, can't be reached");
		json_object_foreach(warnings, path, warning) {
			root_tell_warning(findings, path, warning);
		}
	} else if (json_object_get(status, "locked")) {
		finding(findings, VERDICT_NOT_APPLICABLE, "root", NULL, NULL,
			"gpuwmd is locked, and loads nothing");
	} else if (json_array_size(json_object_get(status, "roots")) == 0) {
		finding(findings, VERDICT_WARNING, "root", NULL, "root in [loader] of gpuwmd.conf adds one",
			"there are no roots: only workers can publish versions, and nothing can be loaded");
	} else {
		roots_judge(findings, status, fresh, warnings);
	}
	json_decref(status);
	json_decref(warnings);
}
