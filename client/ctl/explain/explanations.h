/* What error codes and exit statuses mean, what usually causes them, and what to do. */
#ifndef GPUWM_CTL_EXPLANATIONS_H
#define GPUWM_CTL_EXPLANATIONS_H

struct explanation {
	const char *code; /* "ENOENT", or the digits of an exit status; NULL ends a list */
	const char *meaning; /* one line */
	const char *cause;
	const char *remedy;
};

/* Every error code of docs/protocol.md, and every exit status of gpuwmctl: tests/ctl-help.sh compares both. */
extern const struct explanation explanations_of_errors[], explanations_of_statuses[];

#endif
