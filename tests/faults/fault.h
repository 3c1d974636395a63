/* Which calls fail, and how: the errors that Linux gives for each, and that a program must expect. */
#ifndef GPUWM_FAULTS_FAULT_H
#define GPUWM_FAULTS_FAULT_H

#include "control.h"

#include <stdbool.h>
#include <stddef.h>

struct fault {
	enum call call;
	int error;
	unsigned kinds;
};

extern const struct fault faults[];
extern const size_t fault_count;

const char *call_name(enum call call);
const char *program_name(enum program program);
/* The first error of its call: a short run has only these. */
bool fault_is_first(const struct fault *fault);
/* How many of these counted calls the fault fits. */
unsigned fault_calls(const struct fault *fault, const atomic_uint counts[CALL_COUNT][KIND_COUNT]);

#endif
