/* The gpuwmd that the checks look at. */
#ifndef GPUWM_CTL_DOCTOR_GPUWMD_H
#define GPUWM_CTL_DOCTOR_GPUWMD_H

#include <gpuwm/client.h>
#include <jansson.h>

/* Sets ret_path to the socket, as the library chooses it. given: the argument of --socket, or NULL. admin: the operators'
 * socket. */
void gpuwmd_socket(const char *given, bool admin, char *ret_path, size_t size);
/* Connects once, and waits for nobody. Returns what gpuwm_connect returns. */
int gpuwmd_connect(const char *given, bool admin, struct gpuwm_client **ret_client);
/* The answer of `status`, for json_decref. NULL: gpuwmd can't be reached, or does not answer. */
json_t *gpuwmd_status(const char *given);

#endif
