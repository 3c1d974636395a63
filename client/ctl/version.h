/* Which versions stay, under which alias, on which tier and by which leases: what several commands do about it. */
#ifndef GPUWM_CTL_VERSION_H
#define GPUWM_CTL_VERSION_H

#include "answer.h"
#include "../../base/errors.h"

struct swap_outcome {
	char old[33]; /* the id of the version that the alias named before; "": none */
	bool retire_old; /* the caller asked to retire that version */
	struct error kept; /* code 0, or why gpuwmd could not retire that version */
};
/* Calls gpuwm_swap and sets *ret_outcome. Returns 0 or the error of gpuwm_swap. */
int version_swap(struct gpuwm_client *client, const struct gpuwm_swap_options *options,
		 struct swap_outcome *ret_outcome);
/* Returns which version an alias names now (version, name), what it named before (old, old_name), whether the alias has moved
 * (changed), and what became of the old version if it was to be retired (old_state, old_leases, old_pins, retire_error).
 * before, list: the answers to `list` before and after the swap. A version that was freed is only in the first one. */
json_t *swap_result(const json_t *before, const json_t *list, const char *model, const char *alias,
		    const struct swap_outcome *outcome);
/* Prints all of that for people: the `show` of a view. */
int swap_print(const json_t *result);
/* Prints to stderr why the old version was not retired. Returns the exit code of the command: EXIT_DONE, unless the user
 * asked for the retirement (is_asked). */
int swap_judge(const struct swap_outcome *outcome, bool is_asked);
/* Moves or removes an alias, and tells what became of it: swap, alias and rollback end so. */
int alias_move(struct gpuwm_client *client, const struct gpuwm_swap_options *options);
/* gpuwm_retire; after_ms: gpuwm_retire_by_force; NULL: without force. id: the version's, "": not known; with it, one
 * that gpuwmd took and did not answer is asked for once more. */
int version_retire(struct gpuwm_client *client, const char *ref, const char *id, const uint64_t *after_ms,
		   int64_t wait_ms);
/* Removes the aliases of `list` that name the version with this id, and adds their names to `names`, an array. EXIT_DONE, or an exit
 * code after printing why; then `names` has those that were removed before. aliases_print says which these are. */
int aliases_drop(struct gpuwm_client *client, const json_t *list, const char *id, json_t *names);
void aliases_print(const json_t *names);
/* Prints why the version was not retired. If aliases name the version with this id, says how the command removes
 * them. Returns the exit code. */
int version_busy(struct gpuwm_client *client, const struct arguments *arguments, const char *id);

/* ---- where a version lies: gpuwmd's list tells it ---- */

/* The tier that a version of a list lies on: "device", "host" or "files". */
const char *tier_of(const json_t *version);
/* What its state says of that: ", on host", ", on files, promoting"; "" if it lies on its devices and stays there. */
const char *tier_text(const json_t *version, char text[CELL_TEXT]);

/* show of a version that does not lie on its devices, which nobody can attach to now. */
int tier_show(const json_t *version);

/* ---- leases, with what is known of their holders ---- */

/* Leases with what is known of their holders, of the version with this id or (NULL) of all. EXIT_DONE with
 * *ret_leases for json_decref, or an exit code after printing why. */
int leases_query(struct gpuwm_client *client, const char *version, json_t **ret_leases);
/* The same from the answer to `clients`. */
json_t *leases_collect(const json_t *clients, const char *version);
int leases_print(const json_t *leases);

/* ---- who holds a version, so that gpuwmd does not free it, and what to do about it ---- */

/* Returns the leases on the version with this id, as `leases_query` does, for json_decref. Returns NULL if gpuwmd does not
 * tell this user about leases: only observers and operators may know who holds a version. */
json_t *holders_query(struct gpuwm_client *client, const char *id);

/* "2 leases and 1 pin hold it", with what is not 0. */
#define HOLDERS_TEXT 80
const char *holders_text(uint64_t leases, size_t pins, char ret_text[HOLDERS_TEXT]);

/* Prints who holds a version, and the commands that end that. ref: names it. pins: their names. leases: NULL if this user may
 * not know them. */
int holders_print(const char *ref, const json_t *pins, const json_t *leases);

#endif
