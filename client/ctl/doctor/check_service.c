/* service: systemd and its store, or gpuwm-keeper. And descriptions, from which a reboot brings versions back. */
#include "groups.h"

#include "../answer.h"
#include "../line.h"
#include "gpuwmd.h"
#include "machine.h"
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEMD_MIN 252 /* Debian 12's, under which the units are tested */
#define STORE_FULL_PERCENT 90

static void systemd_judge(struct findings *findings)
{
	const char *const words[] = {"systemctl", "--version", NULL};
	char text[4096], limit[SHORT_TEXT];
	int r = program_run(words, program_limit(PROGRAM_MS), false, text, sizeof(text)), version = 0;

	sscanf(text, "systemd %d", &version);
	if (r == -ETIMEDOUT)
		finding(findings, VERDICT_FAILED, "systemd", NULL,
			"see journalctl -b and systemctl is-system-running",
			"systemctl does not answer within %s",
			time_text((uint64_t)program_limit(PROGRAM_MS), limit));
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
static void store_judge(struct findings *findings, const struct unit *unit, const json_t *status)
{
	const uint64_t wanted = answer_number(json_object_get(status, "limits"), "store_fds");
	const unsigned long long most = strtoull(unit->store_max, NULL, 10);
	const unsigned long long used = strtoull(unit->store_used, NULL, 10);

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

static void unit_judge(struct findings *findings, const struct unit *unit)
{
	char text[UNIT_TEXT_BYTES];

	if (strcmp(unit->load, "loaded") != 0) {
		finding(findings, VERDICT_NOT_APPLICABLE, "unit", UNIT, NULL, "systemd has no such unit%s%s",
			unit->load[0] ? ": " : "", unit->load);
	} else if (unit_is_down(unit)) {
		unit_tell(unit, text);
		finding(findings, VERDICT_FAILED, "unit", UNIT, UNIT_REMEDY, "%s", text);
	} else if (strcmp(unit->active, "active") == 0) {
		finding(findings, VERDICT_OK, "unit", UNIT, NULL, "active; restarts since its start: %s",
			unit->restarts);
	} else {
		finding(findings, VERDICT_WARNING, "unit", UNIT,
			"see journalctl -u gpuwmd; systemctl start gpuwmd starts it", "%s", unit->active);
	}
}

/* A systemd that may not lower the number, as in a container, starts the unit with that of its own and only logs it. */
static void oom_judge(struct findings *findings, const struct unit *unit)
{
	char path[UNIT_VALUE_BYTES + sizeof("/proc//oom_score_adj")], text[64];
	long has, wanted = strtol(unit->oom_adjust, NULL, 10);

	snprintf(path, sizeof(path), "/proc/%s/oom_score_adj", unit->pid);
	if (strcmp(unit->active, "active") != 0 || !machine_read(path, text, sizeof(text)))
		return;
	has = strtol(text, NULL, 10);
	if (has > wanted)
		finding(findings, VERDICT_WARNING, "oom_score_adj", path,
			"if this is a container, start it with that number or a lower one (systemd-nspawn: "
			"--oom-score-adjust=); else see journalctl -u gpuwmd, and restart gpuwmd",
			"gpuwmd has %ld, its unit wants %ld: if memory is short, the kernel may end gpuwmd before others",
			has, wanted);
	else
		finding(findings, VERDICT_OK, "oom_score_adj", path, NULL, "gpuwmd has %ld", has);
}

static void keeper_judge(struct findings *findings, const json_t *status)
{
	char path[64], parent[64], name[64] = "";
	long keeper = 0;

	snprintf(path, sizeof(path), "/proc/%llu/status", (unsigned long long)answer_number(status, "pid"));
	if (status && machine_line(path, "PPid:", parent, sizeof(parent)))
		keeper = strtol(parent, NULL, 10);
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
	struct unit unit;
	json_t *status;

	unit_look(&unit);
	if (machine_has("/run/systemd/system")) {
		systemd_judge(findings);
		unit_judge(findings, &unit);
		oom_judge(findings, &unit);
	} else {
		finding(findings, VERDICT_NOT_APPLICABLE, "systemd", NULL,
			"gpuwm-keeper keeps the weights where there is no systemd",
			"this system was not booted by systemd");
	}
	status = gpuwmd_status(socket);
	if (strcmp(unit.load, "loaded") == 0)
		store_judge(findings, &unit, status);
	keeper_judge(findings, status);
	json_decref(status);
}

/* ---- descriptions: whether a reboot would find the versions ---- */

void check_descriptions(struct findings *findings, const char *socket)
{
	json_t *status = gpuwmd_status(socket);
	const json_t *tiers = json_object_get(status, "tiers"), *error = json_object_get(tiers, "error");
	const char *folder = answer_text(tiers, "folder");
	const unsigned long long described = answer_number(tiers, "described");
	const unsigned long long all = answer_number(tiers, "to_restore");
	const unsigned long long done = answer_number(tiers, "restored");
	const unsigned long long failed = answer_number(tiers, "not_restored");

	if (!status || !json_object_get(tiers, "folder")) {
		finding(findings, VERDICT_NOT_APPLICABLE, "folder", NULL, NULL, "%s",
			status ? "no folder is configured: after a reboot versions have to be loaded again"
			       : "gpuwmd does not answer");
		json_decref(status);
		return;
	}

	if (error)
		finding(findings, VERDICT_FAILED, "folder", folder, answer_text(error, "detail"), "%s",
			answer_text(error, "message"));
	else
		finding(findings, VERDICT_OK, "folder", folder, NULL, "a reboot finds %llu version%s",
			described, described == 1 ? "" : "s");

	if (failed > 0)
		finding(findings, VERDICT_WARNING, "restore", NULL,
			"gpuwmctl show tells why; then gpuwmctl promote",
			"%llu of %llu versions did not come back", failed, all);
	else if (all > 0)
		finding(findings, VERDICT_OK, "restore", NULL, NULL, "%llu of %llu versions are back", done,
			all);
	json_decref(status);
}
