/* Models in the user's hub cache, where huggingface_hub puts what it downloads: models--ORG--NAME has refs/ (files with the commits
 * of branches and tags), snapshots/COMMIT/ and blobs/, to which the files of a snapshot are links. */
#ifndef GPUWM_CTL_HUB_H
#define GPUWM_CTL_HUB_H

#include <gpuwm/client.h>

#include <stdbool.h>
#include <stddef.h>

#define HUB_PREFIX "hf:"
#define HUB_NAME_MAX 96 /* ORG/NAME on the hub has no more characters */
#define HUB_COMMIT_MAX 64 /* with SHA-256; 40 with SHA-1 */

struct hub_snapshot {
	char repository[HUB_NAME_MAX + 1]; /* ORG/NAME, or NAME */
	char commit[HUB_COMMIT_MAX + 1];
	char *cache; /* the folder with all repositories, without links */
	char *folder; /* the snapshot's, without links */
};

/* Sets ret_path to the folder that holds models--…, as huggingface_hub chooses it: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE,
 * $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. An empty variable counts as not set. A value may
 * begin with ~ or ~USER and may have $NAME and ${NAME} in it; what is not known stays as it is. A relative folder counts from the
 * working directory. The folder may not be there yet.
 * Sets *ret_relative (may be NULL) to the name of the variable if its folder was a relative one, else to NULL. Returns 0. Fails with
 * -ENOENT if no variable is set and the user has no home, with -ENAMETOOLONG, or with another -errno if the working directory is not
 * known. */
int hub_cache_path(char *ret_path, size_t size, const char **ret_relative);
/* Prints such an error, and returns the exit code. */
int hub_cache_tell(int error);

bool hub_is_source(const char *source);
/* Calls found with ORG/NAME of each model in the hub's cache, in no order; of none if there is no cache. */
void hub_names(void (*found)(const char *repository, const void *user_data), const void *user_data);
/* Finds the snapshot that hf:ORG/NAME[@REVISION] names in the hub's cache. REVISION is a branch, a tag, a commit or its beginning, and main if it is left out. EXIT_DONE with
 * *ret_snapshot for hub_clear; or an exit code, after printing what is missing and the command that fetches it. */
int hub_find(const char *source, struct hub_snapshot *ret_snapshot);
void hub_clear(struct hub_snapshot *snapshot);

#define HUB_REF_MAX (HUB_NAME_MAX + 16)
/* The version's name if the user gives none: NAME@ and the first seven digits of the commit. */
void hub_ref(const struct hub_snapshot *snapshot, char ret_ref[HUB_REF_MAX]);

/* The files of a snapshot. A zeroed one has none. */
struct hub_files {
	struct gpuwm_load_file *list; /* the names belong to it */
	size_t count;
};
/* Opens the files of the snapshot's folder and of its subfolders for reading: the weights first, then as many others as can be
 * passed, which are the repository's own. A line names those that are left out: hidden ones, links elsewhere, what can't be
 * read. EXIT_DONE with *ret_files for hub_files_close, or an exit
 * code after printing why. */
int hub_files_open(const struct hub_snapshot *snapshot, struct hub_files *ret_files);
void hub_files_close(struct hub_files *files);

#endif
