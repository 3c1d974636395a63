/* service: systemd and its store, or gpuwm-keeper. */
#include "groups.h"

#include "../answer.h"
#include "gpuwmd.h"
#include "machine.h"
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT "gpuwmd.service"
#define SYSTEMD_MIN 252 /* Debian 12's, under which the units are tested */
#define STORE_FULL_PERCENT 90

/* Of `systemctl show`: the value of KEY=VALUE; "" without one. */
static void value_of(const char *text, const char *key, char *ret_value, size_t size)
{
	const size_t length = strlen(key);

	ret_value[0] = '\0';
	for (; text && *text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL)
		if (strncmp(text, key, length) == 0 && text[length] == '=')
			snprintf(ret_value, size, "%.*s", (int)strcspn(text + length + 1, "\n"),
				 text + length + 1);
}

static void systemd_judge(struct findings *findings)
{
	const char *const words[] = {"systemctl", "--version", NULL};
	char text[4096];
	int r = program_run(words, program_limit(PROGRAM_MS), false, text, sizeof(text)), version = 0;

	sscanf(text, "systemd %d", &version);
	if (r == -ETIMEDOUT)
		finding(findings, VERDICT_FAILED, "systemd", NULL,
			"see journalctl -b and systemctl is-system-running",
			"systemctl does not answer within %lld ms", (long long)program_limit(PROGRAM_MS));
	else if (version == 0)
		finding(findings, VERDICT_NOT_APPLICABLE, "systemd", NULL, NULL, "there is no systemctl here");
	else if (version < SYSTEMD_MIN)
		finding(findings, VERDICT_WARNING, "systemd", NULL,
			"gpuwm's units are tested with systemd 252 and newer; gpuwm-keeper needs none",
			"systemd %d", version);
	else
		finding(findings, VERDICT_OK, "systemd", NULL, NULL, "systemd %d", version);
}

/* The store must have room for all that gpuwmd may put there: a full one drops descriptors without a word. */
static void store_judge(struct findings *findings, const char *shown, const json_t *status)
{
	const uint64_t wanted = answer_number(json_object_get(status, "limits"), "store_fds");
	char most_text[32], used_text[32];
	unsigned long long most, used;

	value_of(shown, "FileDescriptorStoreMax", most_text, sizeof(most_text));
	value_of(shown, "NFileDescriptorStore", used_text, sizeof(used_text));
	most = strtoull(most_text, NULL, 10);
	used = strtoull(used_text, NULL, 10);
	if (most == 0)
		finding(findings, VERDICT_FAILED, "store", UNIT, "set FileDescriptorStoreMax=2048 in the unit",
			"the unit has no descriptor store: versions end with gpuwmd");
	else if (most < wanted)
		finding(findings, VERDICT_FAILED, "store", UNIT,
			"set FileDescriptorStoreMax= and Environment=FDSTORE= to the same number",
			"the unit's store has room for %llu descriptors, gpuwmd counts on %llu", most,
			(unsigned long long)wanted);
	else if (used * 100 > most * STORE_FULL_PERCENT)
		finding(findings, VERDICT_WARNING, "store", UNIT,
			"retire versions, or load them in larger segments (--segment-bytes)",
			"the store has %llu of %llu descriptors", used, most);
	else
		finding(findings, VERDICT_OK, "store", UNIT, NULL, "the store has %llu of %llu descriptors",
			used, most);
}

static void unit_judge(struct findings *findings, const json_t *status)
{
	const char *const words[] = {
		"systemctl",
		"show",
		UNIT,
		"-p",
		"LoadState,ActiveState,FileDescriptorStoreMax,NFileDescriptorStore,NRestarts",
		NULL};
	char text[4096], load[32], active[32], restarts[32];

	program_run(words, program_limit(PROGRAM_MS), false, text, sizeof(text));
	value_of(text, "LoadState", load, sizeof(load));
	value_of(text, "ActiveState", active, sizeof(active));
	value_of(text, "NRestarts", restarts, sizeof(restarts));
	if (strcmp(load, "loaded") != 0) {
		finding(findings, VERDICT_NOT_APPLICABLE, "unit", UNIT, NULL, "systemd has no such unit%s%s",
			*load ? ": " : "", load);
		return;
	}
	if (strcmp(active, "active") == 0)
		finding(findings, VERDICT_OK, "unit", UNIT, NULL, "active; restarts since its start: %s",
			restarts);
	else
		finding(findings, strcmp(active, "failed") == 0 ? VERDICT_FAILED : VERDICT_WARNING, "unit",
			UNIT, "see journalctl -u gpuwmd; systemctl start gpuwmd starts it", "%s", active);
	store_judge(findings, text, status);
}

static long parent_of(long pid)
{
	char path[64], line[64];

	snprintf(path, sizeof(path), "/proc/%ld/status", pid);
	return machine_line(path, "PPid:", line, sizeof(line)) ? strtol(line, NULL, 10) : 0;
}

static void keeper_judge(struct findings *findings, const json_t *status)
{
	long keeper = status ? parent_of((long)answer_number(status, "pid")) : 0;
	char path[64], name[64] = "";

	snprintf(path, sizeof(path), "/proc/%ld/comm", keeper);
	if (keeper > 0)
		machine_read(path, name, sizeof(name));
	name[strcspn(name, "\n")] = '\0';
	if (strcmp(name, "gpuwm-keeper") == 0)
		finding(findings, VERDICT_OK, "keeper", NULL, NULL, "gpuwm-keeper (pid %ld) keeps gpuwmd",
			keeper);
	else
		finding(findings, VERDICT_NOT_APPLICABLE, "keeper", NULL, NULL,
			"gpuwmd was not started by gpuwm-keeper");
}

void check_service(struct findings *findings, const char *socket)
{
	json_t *status = gpuwmd_status(socket);

	if (machine_has("/run/systemd/system")) {
		systemd_judge(findings);
		unit_judge(findings, status);
	} else {
		finding(findings, VERDICT_NOT_APPLICABLE, "systemd", NULL,
			"gpuwm-keeper keeps the weights where there is no systemd",
			"this system was not booted by systemd");
	}
	keeper_judge(findings, status);
	json_decref(status);
}
