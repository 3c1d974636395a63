/* What load, swap --load and describe share: the wait for a load, its source, cut plans, and what a job did. */
#ifndef GPUWM_CTL_LOAD_H
#define GPUWM_CTL_LOAD_H

#include "answer.h"
#include "command.h"
#include "hub.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- the wait: the progress is shown on stderr until the load ends ---- */

struct load_result {
	uint64_t job;
	json_t *told; /* it, as `jobs` tells it; NULL: its gpuwmd went away */
	char version[33];
};

enum load_interrupt {
	LOAD_GOES_ON, /* Ctrl-C says so */
	LOAD_CANCELLED, /* Ctrl-C cancels it */
};

/* Starts the load and waits for its end. EXIT_DONE when the version is ready: what is in *ret_result is the
 * caller's to clear, and told->error may say that the alias was not moved. Else an exit code, after printing why. A second Ctrl-C
 * ends gpuwmctl. */
int load_watch(struct gpuwm_client *client, const struct gpuwm_load_options *options,
	       enum load_interrupt interrupt, struct load_result *ret_result);
void load_result_clear(struct load_result *result);

/* ---- from where ---- */

/* An absolute path, that of a snapshot for hf:ORG/NAME, or a version of a peer as it stands, for free(); NULL after printing why. */
char *load_source(const char *source);

struct load_from {
	char *source; /* what gpuwmd gets */
	struct hub_files files; /* that are passed; none: gpuwmd's loader opens them */
	char ref[HUB_REF_MAX]; /* the version's name, if the user gives none; "": there is no such name */
};

/* Finds out what the user's SOURCE means. A path becomes absolute, a peer's version stays as it is. Of hf:ORG/NAME@REVISION it takes
 * the snapshot's path if that lies beneath a root of gpuwmd, if no folder between root and cache lets in its own user alone, and if the user
 * operates; else it opens the files, to pass them. It
 * says which snapshot it took, and as what it is loaded: `ref`, or (NULL) the name of its own.
 * EXIT_DONE with *ret_from for load_from_clear; or an exit code, after printing why. */
int load_from_find(struct gpuwm_client *client, const char *text, const char *ref, struct load_from *ret_from);
/* Fills in source, files and file_count. */
void load_from_put(const struct load_from *from, struct gpuwm_load_options *options);
void load_from_clear(struct load_from *from);

/* ---- companions ---- */

/* The folder beneath a saved version's that has a folder for each of its companions. */
#define COMPANIONS_FOLDER "companions"
/* What the name of a version's companion has behind the version's tag and a dot, or all of it. */
const char *companion_suffix(const char *tag, const char *companion);
/* Loads the companions of a version that was loaded from `source`, a folder that save has written or a node's version, as those of the
 * version `ref`, which is ready and has this id. Adds their names to `ret`, an array. EXIT_DONE, or an exit code after printing why. */
int companions_load(struct gpuwm_client *client, const char *source, const char *ref, const char *id,
		    json_t *ret);

/* ---- what load and swap --load let the user wish ---- */

struct load_given {
	struct gpuwm_load_options options;
	/* What the options get from load_given_finish. */
	struct option_texts devices, only;
	struct option_key key;
	struct option_number ranks;
	const char *cut;
};
extern struct load_given load_given;

/* Completes load_given.options: the ids of devices, the text of the cut plan. They live as long as the process. EXIT_DONE, or an exit
 * code after printing why. */
int load_given_finish(struct gpuwm_client *client);

/* needs: the option without which this one has no meaning. */
#define ROW_LOAD_DEVICE(needs_, does)                                                                          \
	{                                                                                                      \
		.name = "device", .value = "DEVICE", .repeats = true, .needs = (needs_), .take = take_texts,   \
		.into = &load_given.devices, .most = DEVICES_MAX, .kind = WORD_DEVICE, .help = (does),         \
	}
#define ROWS_OF_A_LOAD(ranks_needs, cut_needs, needs_)                                                         \
	{.name = "ranks",                                                                                      \
	 .value = "N",                                                                                         \
	 .needs = (ranks_needs),                                                                               \
	 .take = take_number,                                                                                  \
	 .into = &load_given.ranks,                                                                            \
	 .least = 1,                                                                                           \
	 .most = DEVICES_MAX,                                                                                  \
	 .help = "cut a checkpoint into N ranks, by the plan of --cut"},                                       \
		{.name = "cut",                                                                                \
		 .value = "PLAN",                                                                              \
		 .needs = (cut_needs),                                                                         \
		 .take = take_filled,                                                                          \
		 .into = &load_given.cut,                                                                      \
		 .kind = WORD_CUT,                                                                             \
		 .help = "what each rank gets of which tensors: a file, or llama, mixtral or qwen"},           \
		{.name = "only",                                                                               \
		 .value = "GLOB",                                                                              \
		 .repeats = true,                                                                              \
		 .needs = (needs_),                                                                            \
		 .take = take_texts,                                                                           \
		 .into = &load_given.only,                                                                     \
		 .most = LOAD_GLOBS_MAX,                                                                       \
		 .help = "take only the tensors whose names match, such as 'vision.*'"},                       \
		{.name = "key",                                                                                \
		 .value = "FIELD=VALUE",                                                                       \
		 .repeats = true,                                                                              \
		 .needs = (needs_),                                                                            \
		 .take = take_key,                                                                             \
		 .into = &load_given.key,                                                                      \
		 .help = "a field of the version's key; workers that ask for another value are refused"},      \
		{.name = "share-with",                                                                         \
		 .value = "REF",                                                                               \
		 .needs = (needs_),                                                                            \
		 .take = take_filled,                                                                          \
		 .into = &load_given.options.share_with,                                                       \
		 .kind = WORD_REF,                                                                             \
		 .help = "use the memory of version REF where the bytes are equal"},                           \
	{                                                                                                      \
		.name = "segment-bytes", .value = "SIZE", .needs = (needs_), .take = take_size,                \
		.into = &load_given.options.segment_bytes,                                                     \
		.help = "the size of a segment, such as 2G: segments are shared whole or not at all",          \
	}

/* ---- cut plans ---- */

/* Reads the plan that --cut names: with a / in it, or .cut at its end, the path of a file, else the
 * name of a shipped plan. Returns EXIT_DONE and sets *ret to the text, for free(). Else an exit code,
 * after printing why. */
int cut_read(const char *given, char **ret);

/* Calls `offer` with the name of each shipped plan, in the order of the alphabet. Returns how many
 * there are; 0: the folder is not there. */
size_t cut_names(void (*offer)(const char *name, void *user_data), void *user_data);

/* ---- what a job did, or would do ---- */

/* Whether a job's state is one of its ends. */
bool job_is_over(const json_t *job);
/* A job's phases with their times, the notes of its loader. */
int job_course_print(const json_t *job);
/* Prints the notes of the job's loader, a line each. */
void job_notes_print(const json_t *job);
/* The plan of a dry run. */
int job_plan_print(const json_t *job);
/* EXIT_DONE, or EXIT_NO_ROOM after saying where it does not fit. */
int job_plan_judge(const json_t *job);

#endif
