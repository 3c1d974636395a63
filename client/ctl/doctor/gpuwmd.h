/* The gpuwmd that the checks look at. */
#ifndef GPUWM_CTL_DOCTOR_GPUWMD_H
#define GPUWM_CTL_DOCTOR_GPUWMD_H

#include "machine.h"

#include <gpuwm/client.h>
#include <jansson.h>

/* Sets ret_path to the socket, as the library chooses it. given: the argument of --socket, or NULL. admin: the operators'
 * socket. */
void gpuwmd_socket(const char *given, bool admin, char *ret_path, size_t size);
/* Connects once, and waits for nobody. Returns what gpuwm_connect returns; -ECONNREFUSED also if systemd holds the socket and
 * gpuwmd's unit is down, since the connection would wait in the queue. */
int gpuwmd_connect(const char *given, bool admin, struct gpuwm_client **ret_client);
/* The answer of `status`, for json_decref. NULL: gpuwmd can't be reached, or does not answer. */
json_t *gpuwmd_status(const char *given);
/* The same of another method. */
json_t *gpuwmd_ask(const char *given, const char *method);
/* The path of gpuwmd's configuration: what --config says, else what gpuwmd says, else /etc/gpuwm/gpuwmd.conf. ret_place: where
 * that is, which is another path in tests. */
void gpuwmd_config(const char *given, char ret_path[PLACE_BYTES], char ret_place[PLACE_BYTES]);
/* For command_doctor: the argument of --config, or NULL. */
void gpuwmd_config_choose(const char *path);

#endif
