/* doctor: looks at all that gpuwm needs of this machine. Needs no gpuwmd, no GPU and no rights. */
#include "../commands.h"

#include "gpuwmd.h"
#include "groups.h"

#include "../answer.h"
#include "../exit.h"
#include "../line.h"

#include "../../../base/utf8.h"
#include "../../../proto/memory_kind.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *config;
static const struct option_row doctor_options[] = {
	{"config", "gpuwmd.conf to judge (default: that of the gpuwmd that runs)", "FILE", take_filled,
	 .into = &config, .kind = WORD_FILE},
	{0},
};

struct report {
	bool json; /* the end prints all */
	unsigned counts[VERDICTS];
	json_t *checks, *devices;
};

#define SCHEMA 1 /* of -o json: grows when a key changes its meaning or goes */

static const enum style styles[VERDICTS] = {
	[VERDICT_OK] = STYLE_GOOD,
	[VERDICT_WARNING] = STYLE_BUSY,
	[VERDICT_FAILED] = STYLE_BAD,
	[VERDICT_NOT_APPLICABLE] = STYLE_DIM,
};

static void report_begin(struct report *report, bool json)
{
	char host[256] = "", when[64] = "";
	time_t now = time(NULL);
	struct tm local;

	*report = (struct report){.json = json, .checks = json_array(), .devices = json_array()};
	if (json)
		return;
	gethostname(host, sizeof(host) - 1);
	if (localtime_r(&now, &local))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &local);
	printf("gpuwmctl doctor %s on %s, %s, uid %u\n", GPUWM_VERSION, host, when, geteuid());
}

static void finding_text(const json_t *object, const char *key, char *ret_text, size_t size)
{
	utf8_show(answer_text(object, key), ret_text, size);
}

static void finding_print(const json_t *object, enum verdict verdict)
{
	static const char *const words[VERDICTS] = {"ok", "warning", "FAILED", "-"};
	char check[64], subject[UTF8_SHOWN_MAX(512)], found[4096], remedy[4096], text[8192], lead[16];

	finding_text(object, "check", check, sizeof(check));
	finding_text(object, "subject", subject, sizeof(subject));
	if (device_uuid(subject))
		device_short(answer_text(object, "subject"), subject);
	finding_text(object, "found", found, sizeof(found));
	finding_text(object, "remedy", remedy, sizeof(remedy));
	snprintf(lead, sizeof(lead), "  %-7s  ", words[verdict]);
	snprintf(text, sizeof(text), "%s%s%s: %s", check, *subject ? " " : "", subject, found);
	line_print(stdout, styles[verdict], lead, text);
	if (*remedy)
		line_print(stdout, STYLE_PLAIN, "    → ", remedy);
}

/* Adds what a group found, and takes it over. For people it is printed at once: the groups after it may take long. */
static void report_add(struct report *report, const struct check_group *group, struct findings *findings)
{
	json_t *object;
	size_t i;

	if (!report->json)
		printf("\n%s%s%s\n", terminal_style(STDOUT_FILENO, STYLE_BOLD), group->name,
		       terminal_style(STDOUT_FILENO, STYLE_PLAIN));
	json_array_foreach(findings->list, i, object) {
		enum verdict verdict = verdict_of(answer_text(object, "verdict"));

		report->counts[verdict < VERDICTS ? verdict : VERDICT_FAILED]++;
		json_object_set_new(object, "group", json_string(group->name));
		if (!report->json)
			finding_print(object, verdict);
	}
	json_array_extend(report->checks, findings->list);
	json_array_extend(report->devices, findings->devices);
	fflush(stdout);
	json_decref(findings->list);
	json_decref(findings->devices);
}

/* Prints the end. Returns the exit code: EXIT_FAILED if something failed. */
static int report_end(struct report *report)
{
	json_t *summary;
	int code = EXIT_DONE;

	if (report->json) {
		summary = json_object();
		for (enum verdict verdict = 0; verdict < VERDICTS; verdict++)
			json_object_set_new(summary, verdict_name(verdict),
					    json_integer(report->counts[verdict]));
		code = answer_print(json_pack("{s:i, s:s, s:I, s:o, s:o, s:o}", "schema", SCHEMA, "version",
					      GPUWM_VERSION, "time_ms", (json_int_t)time(NULL) * 1000,
					      "summary", summary, "checks", report->checks, "devices",
					      report->devices));
	} else {
		printf("\n%u ok, %u warning%s, %u failed, %u not applicable (-)\n", report->counts[VERDICT_OK],
		       report->counts[VERDICT_WARNING], report->counts[VERDICT_WARNING] == 1 ? "" : "s",
		       report->counts[VERDICT_FAILED], report->counts[VERDICT_NOT_APPLICABLE]);
		json_decref(report->checks);
		json_decref(report->devices);
	}
	return code == EXIT_DONE && report->counts[VERDICT_FAILED] ? EXIT_FAILED : code;
}

static int doctor_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct report report;

	(void)client;
	gpuwmd_config_choose(config);
	report_begin(&report, arguments->json);
	for (size_t i = 0; i < group_count; i++) {
		struct findings findings = group_run(&groups[i], arguments->socket);

		report_add(&report, &groups[i], &findings);
	}
	return report_end(&report);
}

const struct command command_doctor = {
	.name = "doctor",
	.summary = "look at driver, GPUs, sockets, groups, limits: what works here",
	.about =
		"Each check says ok, warning, FAILED, or - (not applicable), what it found, and the remedy. It needs "
		"neither gpuwmd nor a GPU nor rights. The exit status is 1 if something failed.",
	.options = doctor_options,
	.example = "gpuwmctl doctor\n"
		   "gpuwmctl doctor --config /etc/gpuwm/new.conf",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = doctor_run,
};
