/* What doctor prints. */
#ifndef GPUWM_CTL_DOCTOR_REPORT_H
#define GPUWM_CTL_DOCTOR_REPORT_H

#include "groups.h"

#include <stdbool.h>

struct report {
	bool json; /* the end prints all */
	unsigned counts[VERDICTS];
	json_t *checks, *devices;
};

void report_begin(struct report *report, bool json);
/* Adds what a group found, and takes it over. For people it is printed at once: the groups after it may take long. */
void report_add(struct report *report, const struct check_group *group, struct findings *findings);
/* Prints the end. Returns the exit code: EXIT_FAILED if something failed. */
int report_end(struct report *report);

#endif
