/* The folder of descriptions, which gpuwmd keeps in line with the ledger. It has a file for each version for which description_is_due
 * returns true, and one file with the names. So a start without a state finds the versions again.
 *
 * Files are written on the thread pool, one batch at a time, after the state: a version's file, then the names that list it. A
 * version that the names do not list is not described. When a version goes, the names are written first, and then its file is removed.
 * If the folder can't be used, gpuwmd serves without it, and descriptions_error says why. */
#ifndef GPUWM_DAEMON_DESCRIPTIONS_H
#define GPUWM_DAEMON_DESCRIPTIONS_H

#include "../ledger/ledger.h"

#include <uv.h>

struct descriptions;

/* Returns an object without a folder, or NULL if there is no memory. */
struct descriptions *descriptions_new(uv_loop_t *loop, struct ledger *ledger);
/* Judges, for --check-config, whether this process could use the folder at its start, by the function that a start uses. It makes
 * nothing, and a gpuwmd that uses the folder is no error. Returns 0 or -errno. */
int descriptions_check(const char *path, struct error *error);
/* Opens the folder, and makes it if only it is missing. path "": none is used from now on. The log gets what is wrong. It blocks, as
 * opening files does. A second call with the same path tries again what failed. When the loop runs, call descriptions_begin first:
 * then a folder with versions that the ledger does not have is not used. */
void descriptions_open(struct descriptions *descriptions, const char *path);
void descriptions_begin(struct descriptions *descriptions);
/* At start, when the folder is open: finds out what is on disk, and sets version->restores of versions that are to come back. adopts:
 * also adds versions that the ledger does not have, on the tier `files`, with the owners of their models, and sets *ret_adopted to
 * their number.
 *
 * An error of one file costs its own version. gpuwmd moves a file that is torn, foreign or wrong aside. It leaves a file that it could not
 * read, or that a newer gpuwmd wrote: descriptions_error says so, the names go on listing the file, and a later start tries again.
 * In both cases the log names the file, and its model stays its owner's. If nothing says the model, registry_has_unnamed
 * returns true from then on.
 *
 * Returns 0, also if there is no folder or files are left. Fails with the error of the folder, which is not used then, or with the
 * -errno of writing the names; then the next start must adopt again. */
int descriptions_take(struct descriptions *descriptions, bool adopts, uint64_t *ret_adopted);

/* Notes that the ledger has changed, so that descriptions_settle writes the changes. */
void descriptions_mark(struct descriptions *descriptions);
/* Begins to write the changes, if no batch is being written. The loop calls it before it sleeps. */
void descriptions_settle(struct descriptions *descriptions);
/* Begins to write what is not written yet, and closes the timer. Call it when gpuwmd ends, and run the loop, before the ledger is cleared. */
void descriptions_end(struct descriptions *descriptions);
/* Returns whether changes are still being written then. If the file system has not answered for some seconds, logs that and returns
 * false. */
bool descriptions_end_goes_on(struct descriptions *descriptions);
/* After the loop. Returns NULL; NULL is fine. */
struct descriptions *descriptions_free(struct descriptions *descriptions);

/* Leaves the folder as it is from now on, whatever becomes of the ledger. Returns 0. Fails with -ENOENT if there is no folder, with
 * the error of a folder that can't be used, and with -EBUSY while changes are not written yet. */
int descriptions_freeze(struct descriptions *descriptions, struct error *error);

/* Returns whether a start without a state would find the version. */
bool descriptions_have(const struct descriptions *descriptions, const struct version *version);
/* Returns how many versions a start without a state would find. */
uint64_t descriptions_count(const struct descriptions *descriptions);
/* Returns whether the folder may not be in line with the ledger yet. */
bool descriptions_pending(const struct descriptions *descriptions);
/* Returns the path of the folder, or "" if none is configured. */
const char *descriptions_path(const struct descriptions *descriptions);
/* Looks at the folder, and returns why it can't be used, or why the next start would not use it, or what could not be written.
 * NULL: nothing is wrong. */
const struct error *descriptions_error(struct descriptions *descriptions);

#endif
