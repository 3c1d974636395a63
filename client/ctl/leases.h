/* Leases, with what is known of their holders, and who holds a version. */
#ifndef GPUWM_CTL_LEASES_H
#define GPUWM_CTL_LEASES_H

#include "answer.h"

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
