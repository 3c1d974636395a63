/* save: a version as files, which then describe it. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "load.h"
#include "output.h"
#include "patience.h"
#include "table.h"
#include "terminal.h"

#include "../../base/bytes.h"
#include "../../base/clock.h"
#include "../../base/leftover.h"
#include "../../base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STALL_MS_MAX (UINT64_C(24) * 3600 * 1000) /* a day: a longer one is a mistake */
#define HANGS                                                                                                  \
	"does its server run? What was written has temporary names, and the next save into the folder removes it"

static bool force, no_describe;
static struct option_number stall;
static const struct option_row save_options[] = {
	{"force", "replace files with the same names", .into = &force},
	{"no-describe", "only write the files: the version keeps the source that it has", .into = &no_describe},
	{"stall", "end if the file system does nothing for this time (default: 2m)", "TIME", take_time, &stall,
	 .most = STALL_MS_MAX},
	{0},
};

/* A version that is saved: a mapping of each rank. */
struct saving {
	const char *folder;
	char id[33], name[300];
	struct gpuwm_mapping *mappings[PARTS_PER_VERSION_MAX];
	size_t count;
	uint64_t done, total; /* bytes */
	struct progress progress;
	bool quiet;
	json_t *result;
};

/* ---- where ---------------------------------------------------------------- */

/* The path without links of a folder that may not be there yet. NULL: even the one above it can't be looked at. */
static char *path_of(const char *folder)
{
	char *path = realpath(folder, NULL), *above, *parent;
	const char *last;

	if (path || errno != ENOENT)
		return path;
	above = strdup(folder);
	while (above && strlen(above) > 1 && text_ends(above, "/"))
		above[strlen(above) - 1] = '\0';
	last = above ? path_last(above) : NULL;
	parent = !above ? NULL : realpath(last == above ? "." : strndupa(above, (size_t)(last - above)), NULL);
	if (parent && asprintf(&path, "%s/%s", parent, last) < 0)
		path = NULL;
	free(above);
	free(parent);
	return path;
}

static bool is_below(const char *path, const char *root)
{
	size_t bytes = strlen(root);

	return strncmp(path, root, bytes) == 0 && (path[bytes] == '/' || path[bytes] == '\0');
}

/* A root may be a link itself. */
static bool is_below_root(const char *path, const char *root)
{
	char *target = realpath(root, NULL);
	bool below = is_below(path, root) || (target && is_below(path, target));

	free(target);
	return below;
}

/* Before anything is written: gpuwmd looks at files below its roots only. */
static int check_roots(struct gpuwm_client *client, const char *folder)
{
	char *path = path_of(folder), roots[TEXT_BYTES_MAX + 1];
	json_t *status, *list, *root;
	bool below = !path; /* the save says what is wrong with the folder */
	int code = answer_get(client, "status", NULL, &status);
	size_t i;

	if (code != EXIT_DONE) {
		free(path);
		return code;
	}
	list = json_object_get(status, "roots");
	json_array_foreach(list, i, root)
		below = below || is_below_root(path, json_string_value(root));
	if (!below) {
		answer_join(list, roots, sizeof(roots));
		code = exit_with(
			EXIT_PERMISSION,
			"save to a folder below a root, or with --no-describe, which only writes the files",
			"files in %s could not describe the version: gpuwmd's roots are %s", path,
			roots[0] ? roots : "none");
	}
	json_decref(status);
	free(path);
	return code;
}

/* ---- attaching ------------------------------------------------------------ */

/* The device of a rank is that of its first part. NULL: the version has no such rank. */
static const char *rank_device(const json_t *version, uint64_t rank)
{
	const json_t *part;
	size_t i;

	json_array_foreach(json_object_get(version, "parts"), i, part) {
		if (answer_number(part, "rank") == rank)
			return answer_text(part, "device");
	}
	return NULL;
}

static int attach_all(struct gpuwm_client *client, const json_t *list, const char *ref, struct saving *saving)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	const char *id = answer_ref(list, ref);
	const json_t *version = answer_version(list, id);
	uint64_t world = answer_number(version, "world");

	if (!version)
		return exit_with(EXIT_NOT_FOUND, "gpuwmctl ls lists the versions", "there is no version %s",
				 ref);
	snprintf(saving->id, sizeof(saving->id), "%s", id);
	snprintf(saving->name, sizeof(saving->name), "%s@%s", answer_text(version, "model"),
		 answer_text(version, "tag"));
	options.wait_ms = -1; /* a version on another tier comes back first */
	for (; saving->count < world && saving->count < PARTS_PER_VERSION_MAX; saving->count++) {
		options.rank = (uint32_t)saving->count;
		options.device = rank_device(version, saving->count);
		if (gpuwm_attach(client, saving->id, &options, &saving->mappings[saving->count]) < 0)
			return exit_with_error();
	}
	return EXIT_DONE;
}

static void detach_all(struct saving *saving)
{
	while (saving->count > 0)
		gpuwm_detach(saving->mappings[--saving->count]);
}

/* ---- writing -------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
	(void)signal_number;
	interrupted = 1;
}

static int advance(uint64_t bytes, uint64_t total, void *data)
{
	struct saving *saving = data;

	patience_beat();
	saving->done += bytes;
	saving->total = total;
	if (!saving->quiet)
		progress_update(&saving->progress, "saving", saving->done, total, clock_steady_ns());
	return interrupted;
}

static int write_all(struct saving *saving, bool overwrite)
{
	struct gpuwm_save_options options = GPUWM_OPTIONS(struct gpuwm_save_options);
	struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND | SA_RESTART};
	int r;

	options.overwrite = overwrite;
	options.progress = advance;
	options.user_data = saving;
	sigaction(SIGINT, &action, NULL);
	saving->quiet = output_is_data() && !terminal_is(STDERR_FILENO);
	progress_start(&saving->progress, terminal_columns(STDERR_FILENO));
	r = gpuwm_save((const struct gpuwm_mapping *const *)saving->mappings, saving->count, saving->folder,
		       &options);
	progress_end(&saving->progress);
	return r < 0 ? (int)exit_with_error() : EXIT_DONE;
}

/* The small files that gpuwm_save left out. NULL: none. */
static json_t *left_out(const struct saving *saving)
{
	json_t *names = json_array();
	char path[PATH_MAX];
	const void *content;
	const char *name;
	uint32_t bytes;

	for (uint32_t i = 0; gpuwm_file_at(saving->mappings[0], i, &name, &content, &bytes) == 0; i++) {
		snprintf(path, sizeof(path), "%s/%s", saving->folder, name);
		if (!path_is_beneath(name) || access(path, F_OK) < 0)
			json_array_append_new(names, json_string(name));
	}
	if (json_array_size(names) > 0)
		return names;
	json_decref(names);
	return NULL;
}

/* What other saves left and this one may not remove. NULL: nothing. */
static json_t *temporary_left(const struct saving *saving)
{
	int folder = open(saving->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct leftovers left = {0};

	if (folder < 0)
		return NULL;
	leftovers_remove(folder, &left);
	close(folder);
	return left.unknown > 0
		       ? json_pack("{s:I, s:s}", "count", (json_int_t)left.unknown, "example", left.example)
		       : NULL;
}

/* ---- describing ----------------------------------------------------------- */

/* Whether these files could describe the version or not, they are there. */
static int saved_describe(struct gpuwm_client *client, const struct saving *saving)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count = 0;
	char *path;
	int r;

	patience_begin(saving->folder, stall.given ? stall.value : PATIENCE_MS, HANGS);
	path = realpath(saving->folder, NULL);
	patience_end();
	r = path ? gpuwm_describe(client, saving->id, path, jobs, &count) : -errno;

	for (size_t i = 0; r == 0 && i < count; i++) {
		do
			r = gpuwm_job_wait(client, jobs[i], -1);
		while (r == -EINTR);
	}
	json_object_set_new(saving->result, "described", json_boolean(r == 0));
	free(path);
	if (r == 0)
		return EXIT_DONE;
	return exit_with(exit_code_of(r), gpuwm_error()->detail,
			 "%s is saved, but these files do not describe it: %s", saving->name,
			 gpuwm_error()->message);
}

/* ---- companions ------------------------------------------------------------ */

static int companion_save(struct gpuwm_client *client, const json_t *list, const json_t *companion,
			  const char *folder)
{
	struct saving saving = {.folder = folder};
	int code = attach_all(client, list, answer_text(companion, "version"), &saving);

	patience_begin(folder, stall.given ? stall.value : PATIENCE_MS, HANGS);
	if (code == EXIT_DONE)
		code = write_all(&saving, force);
	patience_end();
	detach_all(&saving);
	return code;
}

/* Each into a folder of its own beneath the version's. */
static int companions_save(struct gpuwm_client *client, const json_t *list, struct saving *saving)
{
	const char *tag = answer_text(answer_version(list, saving->id), "tag");
	json_t *names = json_array();
	const json_t *version;
	int code = EXIT_DONE;
	char path[PATH_MAX];
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (code != EXIT_DONE || strcmp(answer_text(version, "companion_of"), saving->id) != 0 ||
		    strcmp(answer_text(version, "state"), "ready") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/" COMPANIONS_FOLDER, saving->folder);
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			code = exit_with(exit_code_of(-errno), NULL, "%s can't be made: %s", path,
					 strerror(errno));
		snprintf(path, sizeof(path), "%s/" COMPANIONS_FOLDER "/%s", saving->folder,
			 companion_suffix(tag, answer_text(version, "tag")));
		if (code == EXIT_DONE)
			code = companion_save(client, list, version, path);
		if (code == EXIT_DONE)
			json_array_append(names, json_object_get(version, "tag"));
	}
	json_object_set_new(saving->result, "companions", names);
	return code;
}

/* ---- the result ----------------------------------------------------------- */

static int saved_print(const json_t *result)
{
	char size[BYTES_TEXT];
	const json_t *name, *left;
	size_t i;

	say("%s is saved in %s: %s%s", answer_text(result, "ref"), answer_text(result, "folder"),
	    bytes_format(answer_number(result, "bytes"), size),
	    json_is_true(json_object_get(result, "described")) ? "; these files describe it now" : "");
	json_array_foreach(json_object_get(result, "companions"), i, name)
		say("its companion %s is saved beneath it", json_string_value(name));
	json_array_foreach(json_object_get(result, "left_out"), i, name)
		say("the small file \"%s\" is left out: a folder does not get such a name",
		    json_string_value(name));
	left = json_object_get(result, "temporary");
	if (left)
		say("%llu file%s of saves on other hosts, in other containers or before a reboot lie there, such as "
		    "%s: remove them if no such save runs",
		    (unsigned long long)answer_number(left, "count"),
		    answer_number(left, "count") == 1 ? "" : "s", answer_text(left, "example"));
	return EXIT_DONE;
}

static int saving_run(struct gpuwm_client *client, const json_t *list, struct saving *saving)
{
	static const struct view view = {saved_print, cell_text, "folder", NULL};
	json_t *left = NULL, *temporary = NULL;
	int code, shown;

	patience_begin(saving->folder, stall.given ? stall.value : PATIENCE_MS, HANGS);
	code = write_all(saving, force);
	if (code == EXIT_DONE) {
		left = left_out(saving);
		temporary = temporary_left(saving);
	}
	patience_end();
	if (code != EXIT_DONE)
		return code;
	detach_all(saving);
	saving->result = json_pack("{s:s, s:s, s:s, s:I, s:o*, s:o*}", "ref", saving->name, "version",
				   saving->id, "folder", saving->folder, "bytes", (json_int_t)saving->total,
				   "left_out", left, "temporary", temporary);
	code = companions_save(client, list, saving);
	if (code == EXIT_DONE && !no_describe)
		code = saved_describe(client, saving);
	shown = result_show(saving->result, &view);
	return code == EXIT_DONE ? shown : code;
}

static int save_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct saving saving = {.folder = arguments->positional[1]};
	json_t *list;
	int code;

	if (!saving.folder[0])
		return exit_with(EXIT_USAGE, NULL, "the folder is empty");
	patience_begin(saving.folder, stall.given ? stall.value : PATIENCE_MS, HANGS);
	code = no_describe ? EXIT_DONE : check_roots(client, saving.folder);
	patience_end();
	if (code == EXIT_DONE)
		code = answer_get(client, "list", NULL, &list);
	if (code != EXIT_DONE)
		return code;
	code = attach_all(client, list, arguments->positional[0], &saving);
	if (code == EXIT_DONE)
		code = saving_run(client, list, &saving);
	json_decref(list);
	detach_all(&saving);
	return code;
}

const struct command command_save = {
	.name = "save",
	.words = {{"REF", WORD_REF, false}, {"FOLDER", WORD_FILE, false}},
	.summary = "write a version as safetensors files, which then describe it",
	.about =
		"A version that files describe can be demoted to files, and comes back from them. FOLDER is made if it is "
		"not there; it lies below a root of gpuwmd's configuration.",
	.options = save_options,
	.example = "gpuwmctl save llama@v2-merged /models/llama-v2-merged",
	.run = save_run,
};
