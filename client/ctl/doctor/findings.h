/* What the checks of `gpuwmctl doctor` find: a verdict, what was found, and the remedy. */
#ifndef GPUWM_CTL_DOCTOR_FINDINGS_H
#define GPUWM_CTL_DOCTOR_FINDINGS_H

#include <jansson.h>

enum verdict {
	VERDICT_OK,
	VERDICT_WARNING, /* gpuwm works, and something will be slower, missing or in danger */
	VERDICT_FAILED, /* what gpuwm needs does not work: doctor ends with 1 */
	VERDICT_NOT_APPLICABLE, /* this machine has no such thing, or this user may not see it */
	VERDICTS,
};
/* "ok", "warning", "failed", "not applicable" */
const char *verdict_name(enum verdict verdict);
/* Returns VERDICTS for a name that is none. */
enum verdict verdict_of(const char *name);

/* What one group of checks found, in its order. */
struct findings {
	json_t *list; /* of {check, subject?, verdict, found, remedy?} */
	json_t *devices; /* what the driver's group tells of each device: docs of -o json in gpuwmctl(1) */
};

/* Adds a finding. check: its name, such as "share". subject: the device, the file or the user that it is about, or NULL. remedy:
 * what to do about it, or NULL. Texts may have any bytes: those that are not UTF-8 become '?'. */
void finding(struct findings *findings, enum verdict verdict, const char *check, const char *subject,
	     const char *remedy, const char *format, ...) __attribute__((format(printf, 6, 7)));

#endif
