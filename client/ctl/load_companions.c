#include "load.h"

#include "commands.h"
#include "exit.h"

#include "../../base/limits.h"
#include "../../service/peer_address.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The version to whose companions others become. */
struct companions {
	struct gpuwm_client *client;
	const char *ref, *id;
	json_t *names;
};

const char *companion_suffix(const char *tag, const char *companion)
{
	size_t length = strlen(tag);

	return strncmp(companion, tag, length) == 0 && companion[length] == '.' ? companion + length + 1
										: companion;
}

static int load_one(const struct companions *of, const char *source, const char *suffix)
{
	static const char *const host = "host";
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	char name[2 * NAME_BYTES_MAX + 2];
	uint64_t job;
	int r;

	snprintf(name, sizeof(name), "%s.%s", of->ref, suffix);
	options.source = source;
	options.name = name;
	options.devices = &host;
	options.device_count = 1;
	options.companion_of = of->id;
	r = gpuwm_load(of->client, &options, &job);
	while (r == 0 && (r = gpuwm_job_wait(of->client, job, -1)) == -EINTR)
		r = 0;
	if (r < 0)
		return exit_with_error();
	json_array_append_new(of->names, json_string(name));
	return EXIT_DONE;
}

/* ---- from a folder ---- */

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static int load_saved(const struct companions *of, const char *folder)
{
	char path[PATH_BYTES_MAX + 1];
	struct dirent **entries = NULL;
	int code = EXIT_DONE, count;

	snprintf(path, sizeof(path), "%s/" COMPANIONS_FOLDER, folder);
	count = scandir(path, &entries, is_visible, alphasort);
	if (count < 0 && errno != ENOENT && errno != ENOTDIR)
		return exit_with(exit_code_of(-errno), NULL, "%s can't be read: %s", path, strerror(errno));
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/" COMPANIONS_FOLDER "/%s", folder, entries[i]->d_name);
		if (code == EXIT_DONE)
			code = load_one(of, path, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return code;
}

/* ---- from a node ---- */

static bool has_name(const json_t *version, const struct ref *ref)
{
	const json_t *alias;
	char id[VERSION_ID_TEXT];
	size_t i;

	if (ref->has_id) {
		hex128_format(ref->id.bytes, id);
		return strcmp(answer_text(version, "version"), id) == 0;
	}
	if (strcmp(answer_text(version, "model"), ref->model) != 0)
		return false;
	json_array_foreach(json_object_get(version, "aliases"), i, alias) {
		if (strcmp(json_string_value(alias), ref->name) == 0)
			return true;
	}
	return strcmp(answer_text(version, "tag"), ref->name) == 0;
}

/* The companions of one node's version. from: the source of that version, which begins with the node. */
static int load_beside(const struct companions *of, const json_t *node, const json_t *version, int node_bytes,
		       const char *from)
{
	const json_t *other;
	int code = EXIT_DONE;
	char *source;
	size_t i;

	json_array_foreach(json_object_get(node, "versions"), i, other) {
		if (code != EXIT_DONE ||
		    strcmp(answer_text(other, "companion_of"), answer_text(version, "version")) != 0)
			continue;
		if (asprintf(&source, "%.*s%s@%s", node_bytes, from, answer_text(other, "model"),
			     answer_text(other, "tag")) < 0)
			return exit_with(EXIT_FAILED, NULL, "out of memory");
		code = load_one(of, source,
				companion_suffix(answer_text(version, "tag"), answer_text(other, "tag")));
		free(source);
	}
	return code;
}

/* NULL: the node is another one than the source names, or has not the version. */
static const json_t *version_there(const json_t *node, const struct peer_source *source, const struct ref *ref)
{
	const json_t *version;
	size_t i;

	if (source->host[0] && (strcmp(source->host, answer_text(node, "host")) != 0 ||
				source->port != answer_number(node, "port")))
		return NULL;
	json_array_foreach(json_object_get(node, "versions"), i, version) {
		if (has_name(version, ref))
			return version;
	}
	return NULL;
}

/* The first node that has the version counts. Others have the same weights, and may have other companions. */
static int load_taken(const struct companions *of, const char *text)
{
	const json_t *node, *version = NULL;
	struct peer_source source;
	struct error error;
	struct ref ref;
	const char *why;
	json_t *answer;
	int code;
	size_t i;

	/* The load took it. */
	if (peer_source_parse(text, &source, &error) < 0 || ref_parse(source.ref, &ref, &why) < 0)
		return exit_with(EXIT_FAILED, NULL, "%s is no version of a node", text);
	code = peers_get(of->client, NULL, &answer);
	if (code != EXIT_DONE)
		return code;
	json_array_foreach(json_object_get(answer, "nodes"), i, node) {
		version = version_there(node, &source, &ref);
		if (version)
			break;
	}
	if (version)
		code = load_beside(of, node, version, (int)(strlen(text) - strlen(source.ref)), text);
	else
		code = exit_with(
			EXIT_NOT_FOUND, "gpuwmctl ls --peers lists them",
			"%s is ready, but no node of the configuration tells of %s, so its companions are not known",
			of->ref, source.ref);
	json_decref(answer);
	return code;
}

int companions_load(struct gpuwm_client *client, const char *source, const char *ref, const char *id,
		    json_t *ret)
{
	const struct companions of = {client, ref, id, ret};

	return peer_source(source) ? load_taken(&of, source) : load_saved(&of, source);
}
