/* What other programs get from gpuwmctl's environment. */
#include "client/ctl/doctor/program.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has(const char *text, const char *entry)
{
	char line[128], all[8192];

	snprintf(line, sizeof line, "\n%s\n", entry);
	snprintf(all, sizeof all, "\n%s", text);
	return strstr(all, line);
}

Test(ctl_program, variables_about_gpuwmctl_do_not_reach_other_programs)
{
	static const char *const about_gpuwmctl[] = {"GPUWM_SOCKET", "STATE_DIRECTORY", "NOTIFY_SOCKET",
						     "SYSTEMD_LOG_LEVEL", "SYSTEMD_COLORS"};
	const char *const words[] = {"env", NULL};
	char text[4096], entry[64];

	clearenv();
	setenv("PATH", "/usr/bin:/bin", 1);
	setenv("GPUWM_SOCKETS", "other", 1); /* another name */
	setenv("XDG_RUNTIME_DIR", "/here", 1);
	for (size_t i = 0; i < sizeof about_gpuwmctl / sizeof about_gpuwmctl[0]; i++)
		setenv(about_gpuwmctl[i], "x", 1);
	cr_assert_eq(program_run(words, PROGRAM_MS, true, text, sizeof text), 0);
	for (size_t i = 0; i < sizeof about_gpuwmctl / sizeof about_gpuwmctl[0]; i++) {
		snprintf(entry, sizeof entry, "%s=x", about_gpuwmctl[i]);
		cr_expect_not(has(text, entry), "%s", entry);
	}
	cr_expect(has(text, "GPUWM_SOCKETS=other") && has(text, "XDG_RUNTIME_DIR=/here"), "%s", text);
	cr_assert_eq(program_run_without("XDG_RUNTIME_DIR", words, PROGRAM_MS, true, text, sizeof text), 0);
	cr_expect(has(text, "GPUWM_SOCKETS=other") && !has(text, "XDG_RUNTIME_DIR=/here"), "%s", text);
}
