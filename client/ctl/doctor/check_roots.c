/* models: the configuration, and the folders that models are loaded from. */
#include "groups.h"

#include "../answer.h"
#include "../clock.h"
#include "gpuwmd.h"
#include "machine.h"
#include "program.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static void config_judge(struct findings *findings, const char *socket)
{
	char config[PLACE_BYTES], program[PLACE_BYTES], place[PLACE_BYTES], text[4096];
	const char *words[] = {program, "--check-config", "--config", place, NULL}, *note;
	int status;

	if (!gpuwmd_config_find(findings, "configuration", socket, config, place, &note))
		return;
	if (!program_find("gpuwmd", program, sizeof(program))) {
		finding(findings, VERDICT_NOT_APPLICABLE, "configuration", config, NULL,
			"there is no gpuwmd beside gpuwmctl to check it%s", note);
		return;
	}
	status = program_run(words, PROGRAM_MS, true, text, sizeof(text));
	if (status == 0)
		finding(findings, VERDICT_OK, "configuration", config, NULL, "gpuwmd takes it%s", note);
	else
		finding(findings, VERDICT_FAILED, "configuration", config,
			"see gpuwmd.conf(5); then: gpuwmctl reload", "%.*s%s", (int)strcspn(text, "\n"),
			status < 0 ? strerror(-status) : text, note);
}

/* ---- the roots -------------------------------------------------------------- */

/* gpuwmd asks the loader that stands by for its judgement at each status, once a second at most. */
#define JUDGED_MS 3000
#define LOOK_AGAIN_MS 50

static bool stands_by(const json_t *status)
{
	return json_is_true(json_object_get(status, "standby"));
}

/* Whether the loader judged after doctor began to ask, so that what an operator has just mended counts. */
static bool is_fresh(const json_t *status, int64_t began_ms)
{
	const json_t *judged = json_object_get(status, "roots_judged");

	return judged && (int64_t)answer_number(judged, "age_ms") <= clock_ms() - began_ms;
}

/* status, once the loader that stands by has judged the roots anew. *ret_fresh: it has. */
static json_t *status_judged(const char *socket, bool *ret_fresh)
{
	const int64_t began_ms = clock_ms(), end_ms = began_ms + program_limit(JUDGED_MS);
	json_t *status = gpuwmd_status(socket);

	while (stands_by(status) && json_array_size(json_object_get(status, "roots")) > 0 &&
	       !is_fresh(status, began_ms) && clock_ms() < end_ms) {
		poll(NULL, 0, LOOK_AGAIN_MS);
		json_decref(status);
		status = gpuwmd_status(socket);
	}
	*ret_fresh = is_fresh(status, began_ms);
	return status;
}

/* As the loader says; pid: its. */
static void judgement_tell(struct findings *findings, const json_t *told, unsigned long long pid)
{
	const char *path = answer_text(told, "root");
	const json_t *error = json_object_get(told, "error");

	if (error)
		finding(findings, VERDICT_FAILED, "root", *path ? path : NULL, answer_text(error, "detail"),
			"%s (the loader that tried it: pid %llu)", answer_text(error, "message"), pid);
	else
		finding(findings, VERDICT_OK, "root", path, NULL, "the loader (pid %llu) can use it", pid);
}

/* A root of gpuwmd's configuration that the loader has not judged. */
static void silence_tell(struct findings *findings, const json_t *status, const char *path, bool fresh)
{
	const unsigned long long pid = answer_number(status, "standby_pid");

	if (!stands_by(status))
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

static void roots_judge(struct findings *findings, const json_t *status, bool fresh)
{
	const json_t *judged = fresh ? json_object_get(status, "roots_judged") : NULL, *root;
	size_t i;

	json_array_foreach(json_object_get(judged, "roots"), i, root) {
		judgement_tell(findings, root, answer_number(judged, "pid"));
	}
	json_array_foreach(json_object_get(status, "roots"), i, root) {
		if (!answer_find(judged, "roots", "root", json_string_value(root)))
			silence_tell(findings, status, json_string_value(root), fresh);
	}
}

void check_roots(struct findings *findings, const char *socket)
{
	json_t *status;
	bool fresh;

	config_judge(findings, socket);
	status = status_judged(socket, &fresh);
	if (!status)
		finding(findings, VERDICT_NOT_APPLICABLE, "root", NULL, NULL,
			"gpuwmd, which tells the roots, can't be reached");
	else if (json_array_size(json_object_get(status, "roots")) == 0)
		finding(findings, VERDICT_WARNING, "root", NULL, "root in [loader] of gpuwmd.conf adds one",
			"there are no roots: only workers can publish versions, and nothing can be loaded");
	else
		roots_judge(findings, status, fresh);
	json_decref(status);
}
