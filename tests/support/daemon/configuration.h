/* What the tests of the configuration share: `config` and ways to set it. */
#ifndef GPUWM_TESTS_DAEMON_CONFIGURATION_H
#define GPUWM_TESTS_DAEMON_CONFIGURATION_H

#include "tests/support/daemon/server.h"

/* What went wrong in the last call. */
extern struct error config_error;
extern char config_path[64];

/* Fixtures: the defaults; an end. */
void config_open(void);
void config_close(void);

int set(const char *section, const char *key, const char *value);

/* Arguments up to NULL, "gpuwmd" first. */
#define arguments(...) run_arguments((char *[]){"gpuwmd", __VA_ARGS__ __VA_OPT__(, ) NULL})
int run_arguments(char **argv);

/* Writes this text to the file config_path. config_from_bytes and config_from also read that file as a configuration. */
void config_file(const char *text, size_t bytes);
int config_from_bytes(const char *text, size_t bytes);
int config_from(const char *text);

#define expect_error(call, text)                                                                               \
	do {                                                                                                   \
		cr_expect_eq((call), -EINVAL, "%s", #call);                                                    \
		cr_expect(strstr(config_error.message, (text)), "\"%s\" is not in \"%s\"", (text),             \
			  config_error.message);                                                               \
	} while (0)

#endif
