/* Leases, with what is known of their holders. */
#ifndef GPUWM_CTL_LEASES_H
#define GPUWM_CTL_LEASES_H

#include "answer.h"

/* Leases with what is known of their holders, of the version with this id or (NULL) of all. EXIT_DONE with
 * *ret_leases for json_decref, or an exit code after printing why. */
int leases_query(struct gpuwm_client *client, const char *version, json_t **ret_leases);
/* The same from the answer to `clients`. */
json_t *leases_collect(const json_t *clients, const char *version);
int leases_print(const json_t *leases);

#endif
