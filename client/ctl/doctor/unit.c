#include "unit.h"

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
static void value_of(const char *text, const char *key, char ret_value[UNIT_VALUE_BYTES])
{
	const size_t length = strlen(key);

	while (text && *text && !(strncmp(text, key, length) == 0 && text[length] == '='))
		text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
	ret_value[0] = '\0';
	if (text && *text)
		snprintf(ret_value, UNIT_VALUE_BYTES, "%.*s", (int)strcspn(text + length + 1, "\n"),
			 text + length + 1);
}

/* systemd's own lines about the unit have another identifier. */
static void last_line_read(char ret_line[UNIT_LINE_BYTES])
{
	const char *const words[] = {"journalctl", "-u", UNIT,  "-t",         "gpuwmd", "-n",
				     "1",          "-o", "cat", "--no-pager", "-q",     NULL};

	if (program_run(words, program_limit(PROGRAM_MS), false, ret_line, UNIT_LINE_BYTES) != 0)
		ret_line[0] = '\0';
	ret_line[strcspn(ret_line, "\n")] = '\0';
}

static bool tries_again(const struct unit *unit)
{
	return strcmp(unit->active, "activating") == 0 && strcmp(unit->sub, "auto-restart") != 0 &&
	       strcmp(unit->restarts, "0") != 0;
}

static void show(struct unit *ret)
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
	value_of(text, "LoadState", ret->load);
	value_of(text, "ActiveState", ret->active);
	value_of(text, "SubState", ret->sub);
	value_of(text, "NRestarts", ret->restarts);
	value_of(text, "ExecMainStatus", ret->exit_status);
	value_of(text, "FileDescriptorStoreMax", ret->store_max);
	value_of(text, "NFileDescriptorStore", ret->store_used);
	value_of(text, "MainPID", ret->pid);
	value_of(text, "OOMScoreAdjust", ret->oom_adjust);
}

/* Waits for the end of an attempt to start, so that what it returns holds for more than a moment. */
static void show_settled(struct unit *ret)
{
	show(ret);
	for (int looks = 1; tries_again(ret) && looks < LOOKS_MAX; looks++) {
		poll(NULL, 0, LOOK_AGAIN_MS);
		show(ret);
	}
	if (unit_is_down(ret))
		last_line_read(ret->last_line);
}

void unit_look(struct unit *ret)
{
	static struct unit seen;
	static bool has_looked;

	if (!has_looked)
		show_settled(&seen);
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

/* Whether a socket unit of gpuwmd listens at this path. */
static bool is_systemds(const char *path)
{
	const char *const words[] = {"systemctl", "show", "gpuwmd.socket", "gpuwmd-admin.socket", "-p",
				     "Listen",    NULL};
	char text[SHOWN_BYTES] = "", wanted[PLACE_BYTES + sizeof("Listen= ")];

	snprintf(wanted, sizeof(wanted), "Listen=%s ", path);
	program_run(words, program_limit(PROGRAM_MS), false, text, sizeof(text));
	return strstr(text, wanted);
}

bool unit_keeps_waiting(const char *given, struct unit *ret)
{
	char path[PLACE_BYTES];

	unit_look(ret);
	gpuwmd_socket(given, false, path, sizeof(path));
	return unit_is_down(ret) && is_systemds(path);
}
