/* gpuwmd.service as systemd sees it, which needs no connection to gpuwmd. */
#ifndef GPUWM_CTL_DOCTOR_UNIT_H
#define GPUWM_CTL_DOCTOR_UNIT_H

#include <stdbool.h>
#include <stddef.h>

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
