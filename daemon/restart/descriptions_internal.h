/* What the files descriptions*.c share. No other file includes it. */
#ifndef GPUWM_DAEMON_DESCRIPTIONS_INTERNAL_H
#define GPUWM_DAEMON_DESCRIPTIONS_INTERNAL_H

#include "descriptions.h"
#include "description_file.h"
#include "folder_ask.h"
#include "../base/hash.h"
#include "../../service/log.h"

#define NAMES_FILE "names"
#define VERSION_SUFFIX ".version"
#define WRONG_SUFFIX ".wrong" /* behind the name of a file that was moved aside */
#define DESCRIPTION_FILE_TEXT (VERSION_ID_TEXT + sizeof(VERSION_SUFFIX))

/* A version's file. */
struct described {
	struct version_id id;
	struct digest key; /* of what may change in the file; zeros: not known */
	bool is_listed; /* the names on disk have it */
	bool is_wanted; /* by the ledger; set anew before each batch */
	bool is_left; /* it could not be read; it stays, and the next start tries again */
	bool came; /* this start added its version to the ledger */
	UT_hash_handle hh;
};

struct descriptions {
	uv_loop_t *loop;
	struct ledger *ledger;
	char path[PATH_BYTES_MAX + 1];
	int folder; /* -1: it can't be used, or there is none */
	int lock; /* -1: none */
	struct described *files; /* those on disk, by id */
	struct left_names left; /* malloced; its texts are those of `read` */
	struct description_names read; /* what a start has read; its texts are those of read_body */
	void *read_body; /* malloced; NULL: nothing is read */
	struct error left_error; /* code 0: no file is left */
	bool may_hold; /* the folder can't be used, and versions may be described in it */
	void *names; /* malloced: the body of the names' file on disk; NULL: not known */
	size_t names_bytes;
	struct error error; /* code 0: nothing is wrong */
	struct error unsafe; /* why the next start would not use the folder; code 0: it would */
	bool names_only; /* files could not be written: the names of the others are next */
	bool due; /* the ledger has changed */
	uint64_t looked_ms; /* steady: when the last batch was made, or found to be empty */
	bool is_late; /* the loop runs */
	bool is_frozen; /* the folder stays as it is */
	bool is_writing; /* a batch is on the thread pool */
	uint64_t writing_ms; /* steady: since when */
	struct error stalled; /* what descriptions_error says of that; code 0: it does not last long */
	bool has_ended;
	char next_path[PATH_BYTES_MAX + 1]; /* opened when the batch has ended */
	bool reopens;
	uv_timer_t *timer; /* to look again; closes on its own */
};

/* One batch: files of versions, or the names and then files that go. */
struct description_batch {
	uv_work_t work;
	struct descriptions *descriptions;
	int folder;
	struct written_file {
		struct version_id id;
		struct digest key;
		void *body; /* malloced */
		size_t body_bytes;
		struct description_index *indices; /* malloced; their descriptors are the batch's */
		uint32_t index_count;
		int result;
	} * files;
	size_t file_count;
	size_t fds; /* of all files */
	void *names; /* malloced; NULL: files of versions are written */
	size_t names_bytes;
	struct version_id *removed;
	size_t removed_count;
	int result; /* of the names, or of synchronising the folder */
};

/* ---- calls into the folder's file system (descriptions_call.c) ----
 * Nothing else that runs on the loop asks it: it may hang. */

struct folder_call {
	struct folder_ask ask;
	char path[PATH_BYTES_MAX + 1];
	bool is_late;
	int folder; /* the call's own descriptor; -1: none */
	int lock; /* the same */
	int unlocks; /* what descriptions_unlock closes */
	char name[DESCRIPTION_FILE_TEXT], aside[DESCRIPTION_FILE_TEXT + sizeof(WRONG_SUFFIX)];
	enum description_kind kind;
	struct description_reading reading;
	struct description_batch *batch;
	struct version_id *ids; /* malloced: of files that were found */
	size_t id_count;
	bool may_hold, has_gone;
	struct error error; /* code 0: none */
};

/* Returns a call about d->path and the open folder, if there is one. NULL: no memory. */
struct folder_call *folder_call_new(const struct descriptions *descriptions,
				    void (*run)(struct folder_ask *ask));
/* Makes the call, and waits a second for an answer, or some seconds at the start. Returns 0. Fails, also if the call is NULL, with *error set:
 * -ETIMEDOUT if there is no answer, or what kept it from asking. Then the call is freed. */
int folder_call_ask(const struct descriptions *descriptions, struct folder_call *call, struct error *error);
void folder_call_free(struct folder_call *call);

/* Each of these is one call, and fails as folder_call_ask does, too. */

/* As description_file_open, of a file in the folder. Reading on asks no file system. */
int descriptions_read(const struct descriptions *descriptions, const char *name, enum description_kind kind,
		      struct description_reading *ret, struct error *error);
int descriptions_rename(const struct descriptions *descriptions, const char *name, const char *aside,
			struct error *error);
/* Writes the batch. If this fails, the batch is freed. */
int descriptions_write(const struct descriptions *descriptions, struct description_batch *batch,
		       struct error *error);
/* Sets *ret_gone to whether somebody has removed the folder, or mounted or moved another one to its path. */
int descriptions_look_for(const struct descriptions *descriptions, bool *ret_gone, struct error *error);
/* Closes d->lock. If the file system does not answer, the descriptor is left open. */
void descriptions_unlock(struct descriptions *descriptions);

void description_file_name(const struct version_id *id, char text[DESCRIPTION_FILE_TEXT]);

/* In descriptions_write.c. Writes a batch. It may run on any thread. */
void description_batch_write(struct description_batch *batch);
/* Makes the next batch: files of versions that are not on disk, or else the names if they have changed. NULL: there is nothing to
 * write, or no memory (then *error). */
struct description_batch *description_batch_next(struct descriptions *descriptions, struct error *error);
void description_batch_free(struct description_batch *batch);

/* In descriptions.c. Writes the names, while no batch is being written. It blocks. Returns 0 or -errno, which descriptions_error has then. */
int descriptions_write_names(struct descriptions *descriptions);

/* In descriptions_folder.c. Sets the error, and logs it. */
void descriptions_fail(struct descriptions *descriptions, const struct error *error);
struct described *described_find(const struct descriptions *descriptions, const struct version_id *id);
/* Returns the entry, a new one if there is none; NULL: no memory. */
struct described *described_add(struct descriptions *descriptions, const struct version_id *id);
void described_remove(struct descriptions *descriptions, struct described *file);
/* Forgets what was read of the names. */
void descriptions_forget_read(struct descriptions *descriptions);
/* Judges the open folder as it is now, by the function that a start uses. Returns whether a start would use it. Keeps why not in
 * `unsafe`, and logs each change. It asks no file system. */
bool descriptions_judge(struct descriptions *descriptions);
/* Closes the folder and forgets its files. */
void descriptions_close(struct descriptions *descriptions);
/* Closes the folder, which is not used, and says why. may_hold: versions that were left may be described in it all the same. */
void descriptions_give_up(struct descriptions *descriptions, bool may_hold, const struct error *error);
/* Opens the folder `path`, while no batch is being written. */
void descriptions_open_now(struct descriptions *descriptions, const char *path);

#endif
