/* The gpuwmd that the checks look at, and its unit. */
#ifndef GPUWM_CTL_DOCTOR_GPUWMD_H
#define GPUWM_CTL_DOCTOR_GPUWMD_H

#include <gpuwm/client.h>

#include "groups.h"
#include "machine.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

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
/* Where the system's gpuwmd has its configuration, as its unit says. */
#define GPUWMD_CONFIG_SYSTEM "/etc/gpuwm/gpuwmd.conf"
/* Sets ret_path to the file that the gpuwmd of this status runs with. A relative path becomes one that leads there from
 * anywhere. Returns false if gpuwmd runs without a file. */
bool gpuwmd_config_told(const json_t *status, char *ret_path, size_t size);
/* Where the path of gpuwmd's configuration comes from. */
enum config_origin {
	CONFIG_CHOSEN, /* --config says it */
	CONFIG_TOLD, /* gpuwmd says it */
	CONFIG_DEFAULT, /* gpuwmd does not answer: it is the one of the system's gpuwmd, /etc/gpuwm/gpuwmd.conf */
	CONFIG_NONE, /* gpuwmd says that it runs without a file: there is no path */
};
/* Sets ret_path to it, and ret_place to where that is, which is another path in tests. */
enum config_origin gpuwmd_config(const char *given, char ret_path[PLACE_BYTES], char ret_place[PLACE_BYTES]);
/* Finds the file for a check, as above. Returns false if there is none: then it adds the finding that says so, and says whose
 * file was looked for. Sets *ret_note to what a finding about the file says at its end ("": nothing), which is that gpuwmd
 * did not answer. */
bool gpuwmd_config_find(struct findings *findings, const char *check, const char *given,
			char ret_path[PLACE_BYTES], char ret_place[PLACE_BYTES], const char **ret_note);
/* For command_doctor: the argument of --config, or NULL. */
void gpuwmd_config_choose(const char *path);

/* ---- gpuwmd.service as systemd sees it, which needs no connection to gpuwmd ---- */

#define UNIT "gpuwmd.service"
#define UNIT_VALUE_BYTES 64
#define UNIT_LINE_BYTES 512 /* of the journal; the rest of a longer line is left out */
#define UNIT_TEXT_BYTES (UNIT_LINE_BYTES + 4 * UNIT_VALUE_BYTES)

struct unit {
	char load[UNIT_VALUE_BYTES], active[UNIT_VALUE_BYTES], sub[UNIT_VALUE_BYTES]; /* "": not known */
	char restarts[UNIT_VALUE_BYTES], exit_status[UNIT_VALUE_BYTES];
	char store_max[UNIT_VALUE_BYTES], store_used[UNIT_VALUE_BYTES];
	char pid[UNIT_VALUE_BYTES]; /* of gpuwmd; "0": none runs */
	char oom_adjust[UNIT_VALUE_BYTES]; /* what the unit wants for it */
	char last_line[UNIT_LINE_BYTES]; /* of gpuwmd, in the journal; only if the unit does not run */
};

/* Asks systemctl, and journalctl for the last line, once in a process: a systemd that hangs costs its limit once. All is "" if this system was not booted by systemd, or systemctl does not
 * answer. */
void unit_look(struct unit *ret);
/* Returns whether gpuwmd ends again and again, or has ended for good, so that nobody answers on its sockets. */
bool unit_is_down(const struct unit *unit);
/* Writes what systemd says of a unit that is down: its state, how often it was restarted, and why it ended. */
void unit_tell(const struct unit *unit, char ret_text[UNIT_TEXT_BYTES]);
/* What to do about a unit that is down. */
#define UNIT_REMEDY                                                                                                  \
	"mend what it says (gpuwmd --check-config --config FILE tries a file), then: systemctl restart gpuwmd; see " \
	"journalctl -u gpuwmd"

/* Returns whether systemd holds the socket that gpuwmctl would connect to, and gpuwmd.service is down: a connection would wait for
 * nothing. Sets *ret then. given: the argument of --socket, or NULL. */
bool unit_keeps_waiting(const char *given, struct unit *ret);

#endif
