/* Catches what gpuwmd logs. */
#ifndef GPUWM_TESTS_DAEMON_CAUGHT_H
#define GPUWM_TESTS_DAEMON_CAUGHT_H

/* From here on the log goes into a pipe. */
void log_catch(void);
/* Ends that. Returns what was logged; the text stays until the next call. */
const char *log_caught(void);

#endif
