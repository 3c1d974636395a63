/* Exit codes, how errors are told, and what they mean. */
#ifndef GPUWM_CTL_EXIT_H
#define GPUWM_CTL_EXIT_H

enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_UNREACHABLE = 3,
	EXIT_NOT_FOUND = 4,
	EXIT_IN_USE = 5,
	EXIT_PERMISSION = 6,
	EXIT_TIMEOUT = 7,
	EXIT_NO_ROOM = 8,
	EXIT_DAMAGED = 9,
};

/* The exit code for a negative errno of a call on a connected client. */
enum exit_code exit_code_of(int error);

/* Prints the library's last error, and returns the code for it. */
enum exit_code exit_with_error(void);
/* The same after gpuwm_connect: a socket that is not there is EXIT_UNREACHABLE. */
enum exit_code exit_with_connect_error(void);

/* Prints "gpuwmctl: MESSAGE\n  DETAIL" to stderr (detail may be NULL or ""), control characters replaced, and returns code.
 * With -o json it prints {"error": {"code", "message", "detail", "exit"}} there instead: the name of an errno, both
 * texts, and the exit code. What was printed to stdout comes first. */
enum exit_code exit_with(enum exit_code code, const char *detail, const char *message, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for texts and an errno (negative) that are there already, such as an error in an answer of gpuwmd. */
enum exit_code exit_tell(enum exit_code code, int error, const char *message, const char *detail);
/* Prints the same text for people, and nothing with -o json: for what the result says too. */
void exit_note(const char *detail, const char *message, ...) __attribute__((format(printf, 2, 3)));

/* From now on a lack of memory for JSON ends gpuwmctl with an error: no result is told in part, and no event is missed. */
void exit_without_memory(void);

/* ---- explanations ----
 * What error codes and exit statuses mean, what usually causes them, and what to do. */

struct explanation {
	const char *code; /* "ENOENT", or the digits of an exit status; NULL ends a list */
	const char *meaning; /* one line */
	const char *cause;
	const char *remedy;
};

/* Every error code of docs/protocol.md, and every exit status of gpuwmctl: tests/ctl-help.sh compares both. */
extern const struct explanation explanations_of_errors[], explanations_of_statuses[];

#endif
