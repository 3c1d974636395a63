#include "gpuwmd.h"
#include "machine.h"
#include "program.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 4096
/* While an attempt to start runs, nothing shows yet whether it fails as those before. One that fails does so within 0.3 s. */
#define LOOKS_MAX 6
#define LOOK_AGAIN_MS 60

/* Of `systemctl show`: the value of the first KEY=VALUE; "" without one. */
static void unit_value(const char *text, const char *key, char ret_value[UNIT_VALUE_BYTES])
{
	const size_t length = strlen(key);

	while (text && *text && !(strncmp(text, key, length) == 0 && text[length] == '='))
		text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
	ret_value[0] = '\0';
	if (text && *text)
		snprintf(ret_value, UNIT_VALUE_BYTES, "%.*s", (int)strcspn(text + length + 1, "\n"),
			 text + length + 1);
}

/* What systemctl says now. */
static void unit_read(struct unit *ret)
{
	const char *const words[] = {"systemctl",
				     "show",
				     UNIT,
				     "-p",
				     "LoadState,ActiveState,SubState,NRestarts,ExecMainStatus,"
				     "FileDescriptorStoreMax,NFileDescriptorStore,MainPID,OOMScoreAdjust",
				     NULL};
	char text[SHOWN_BYTES] = "";

	*ret = (struct unit){.load = ""};
	if (!machine_has("/run/systemd/system"))
		return;
	program_run(words, program_limit(PROGRAM_MS), false, text, sizeof(text));
	unit_value(text, "LoadState", ret->load);
	unit_value(text, "ActiveState", ret->active);
	unit_value(text, "SubState", ret->sub);
	unit_value(text, "NRestarts", ret->restarts);
	unit_value(text, "ExecMainStatus", ret->exit_status);
	unit_value(text, "FileDescriptorStoreMax", ret->store_max);
	unit_value(text, "NFileDescriptorStore", ret->store_used);
	unit_value(text, "MainPID", ret->pid);
	unit_value(text, "OOMScoreAdjust", ret->oom_adjust);
}

void unit_look(struct unit *ret)
{
	/* systemd's own lines about the unit have another identifier. */
	const char *const words[] = {"journalctl", "-u", UNIT,  "-t",         "gpuwmd", "-n",
				     "1",          "-o", "cat", "--no-pager", "-q",     NULL};
	static struct unit seen;
	static bool has_looked;

	if (has_looked) {
		*ret = seen;
		return;
	}
	unit_read(&seen);
	/* Waits for the end of an attempt to start, so that what it returns holds for more than a moment. */
	for (int looks = 1; looks < LOOKS_MAX && strcmp(seen.active, "activating") == 0 &&
			    strcmp(seen.sub, "auto-restart") != 0 && strcmp(seen.restarts, "0") != 0;
	     looks++) {
		poll(NULL, 0, LOOK_AGAIN_MS);
		unit_read(&seen);
	}
	if (unit_is_down(&seen)) {
		if (program_run(words, program_limit(PROGRAM_MS), false, seen.last_line, UNIT_LINE_BYTES) != 0)
			seen.last_line[0] = '\0';
		seen.last_line[strcspn(seen.last_line, "\n")] = '\0';
	}
	has_looked = true;
	*ret = seen;
}

bool unit_is_down(const struct unit *unit)
{
	return strcmp(unit->load, "loaded") == 0 &&
	       (strcmp(unit->sub, "auto-restart") == 0 || strcmp(unit->active, "failed") == 0);
}

void unit_tell(const struct unit *unit, char ret_text[UNIT_TEXT_BYTES])
{
	snprintf(ret_text, UNIT_TEXT_BYTES, "%s, %s restarts, exit status %s%s%s",
		 strcmp(unit->active, "failed") == 0 ? unit->active : unit->sub, unit->restarts,
		 unit->exit_status, unit->last_line[0] ? "; " : "", unit->last_line);
}

bool unit_keeps_waiting(const char *given, struct unit *ret)
{
	const char *const words[] = {"systemctl", "show", "gpuwmd.socket", "gpuwmd-admin.socket", "-p",
				     "Listen",    NULL};
	char path[PLACE_BYTES], text[SHOWN_BYTES] = "", wanted[PLACE_BYTES + sizeof("Listen= ")];

	unit_look(ret);
	if (!unit_is_down(ret))
		return false;
	gpuwmd_socket(given, false, path, sizeof(path));
	snprintf(wanted, sizeof(wanted), "Listen=%s ", path);
	program_run(words, program_limit(PROGRAM_MS), false, text, sizeof(text));
	return strstr(text, wanted);
}
