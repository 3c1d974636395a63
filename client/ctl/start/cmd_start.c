/* start, restart: gpuwmd for this user. */
#include "../commands.h"

#include "own_gpuwmd.h"

#include "../doctor/program.h"
#include "../hub.h"
#include "../line.h"
#include "../runner.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Of start and restart. */
static struct option_texts root_flags, budget_flags;
static const char *config;
static bool foreground;
static const struct option_row start_options[] = {
	{"root", "a folder with models, besides the cache of the Hugging Face hub", "DIR", take_texts,
	 .into = &root_flags, .repeats = true, .most = ROOTS_MAX, .kind = WORD_FILE},
	{"budget", "how much of a device versions may take: see gpuwmd(8)", "DEVICE=SIZE", take_texts,
	 .into = &budget_flags, .repeats = true, .most = DEVICES_MAX},
	{"config", "gpuwmd's configuration; default: ~/.config/gpuwm/gpuwmd.conf if it is there", "FILE",
	 take_filled, .into = &config, .kind = WORD_FILE},
	{"foreground", "stay, with the log on this terminal; Ctrl-C or its end ends gpuwmd",
	 .into = &foreground},
	{0},
};

#define CONFIG "gpuwm/gpuwmd.conf"
#define LINGER "/var/lib/systemd/linger" /* a file of each user whose systemd stays after the last logout */
#define FLAGS_BYTES 65536 /* of the gpuwmd that runs: ROOTS_MAX roots, each of some hundred bytes */

/* What the words of a launch point to. */
struct programs {
	char keeper[PATH_MAX], gpuwmd[PATH_MAX];
	char config[PATH_MAX], hub[PATH_MAX];
	char *roots[ROOTS_MAX];
	char flags[FLAGS_BYTES];
};

/* ---- words ------------------------------------------------------------------- */

static void launch_word(struct launch *launch, const char *text)
{
	launch->words[launch->count++] = text;
	launch->words[launch->count] = NULL;
}

static void launch_flag(struct launch *launch, const char *name, const char *value)
{
	launch_word(launch, name);
	launch_word(launch, value);
}

/* Without --config: the user's own file, if it is there. Sets ret_path to "" if it is not. */
static void users_config_find(char ret_path[PATH_MAX])
{
	const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int length = folder && *folder ? snprintf(ret_path, PATH_MAX, "%s/" CONFIG, folder)
				       : snprintf(ret_path, PATH_MAX, "%s/.config/" CONFIG, home ? home : "");

	if (length >= PATH_MAX || access(ret_path, F_OK) < 0)
		ret_path[0] = '\0';
}

/* Whether the file names roots, which flags would replace. gpuwmd judges what is wrong with the file. */
static bool config_has_roots(const char *path)
{
	FILE *file = *path ? fopen(path, "re") : NULL;
	char *line = NULL, next;
	size_t size = 0;
	bool found = false;

	while (file && !found && getline(&line, &size, file) >= 0)
		found = sscanf(line, " root %c", &next) == 1 && (next == '=' || next == ':');
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* The hub's cache. A user without a home has none. */
static int hub_root_add(struct launch *launch, struct programs *programs)
{
	char resolved[PATH_MAX] = "";
	const char *relative = NULL;
	int r = hub_cache_path(programs->hub, sizeof(programs->hub), &relative);

	if (r == -ENOENT)
		return EXIT_DONE;
	if (r < 0)
		return hub_cache_tell(r);
	if (relative && realpath(programs->hub, resolved))
		memcpy(programs->hub, resolved, sizeof(programs->hub)); /* without .., if it is there */
	if (relative)
		exit_note(
			"a program that runs in another folder has another cache: an absolute path names the same one "
			"everywhere",
			"%s names a folder relative to this one: gpuwmd takes %s", relative, programs->hub);
	launch_flag(launch, "--root", programs->hub);
	return EXIT_DONE;
}

static int flags_add(struct launch *launch, struct programs *programs)
{
	int code;

	if (!config)
		users_config_find(programs->config);
	else if (!realpath(config, programs->config))
		return exit_with(EXIT_NOT_FOUND, "name a file that is there", "--config %s: %s", config,
				 strerror(errno));
	if (*programs->config)
		launch_flag(launch, "--config", programs->config);

	if (root_flags.count > 0 || !config_has_roots(programs->config)) {
		code = hub_root_add(launch, programs);
		if (code != EXIT_DONE)
			return code;
	}
	for (size_t i = 0; i < root_flags.count; i++) {
		programs->roots[i] = realpath(root_flags.texts[i], NULL);
		if (!programs->roots[i])
			return exit_with(EXIT_NOT_FOUND, "name a folder that is there", "--root %s: %s",
					 root_flags.texts[i], strerror(errno));
		launch_flag(launch, "--root", programs->roots[i]);
	}

	for (size_t i = 0; i < budget_flags.count; i++)
		launch_flag(launch, "--budget", budget_flags.texts[i]);
	launch_flag(launch, "--socket", launch->own->socket);
	return EXIT_DONE;
}

static int program_add(struct launch *launch, const char *name, char ret_path[PATH_MAX])
{
	if (!program_find(name, ret_path, PATH_MAX))
		return exit_with(
			EXIT_FAILED, "install the package that has it, in the same place",
			"%s is neither beside gpuwmctl nor in ../libexec/gpuwm from there: there is no %s",
			name, ret_path);
	launch_word(launch, ret_path);
	return EXIT_DONE;
}

static bool has_options(void)
{
	return root_flags.count > 0 || budget_flags.count > 0 || config;
}

/* The flags of the gpuwmd that runs. */
static int same_flags_add(struct launch *launch, struct programs *programs)
{
	const char *at = programs->flags;
	size_t bytes = 0;

	runner_keeper_at(launch->own->take_over, 0, programs->flags, sizeof(programs->flags), &bytes);
	for (; at < programs->flags + bytes; at += strlen(at) + 1) {
		if (launch->count + 1 == LAUNCH_WORDS_MAX)
			return exit_with(EXIT_FAILED, "name its options again, as of start",
					 "gpuwmd runs with more flags than gpuwmctl takes over");
		launch_word(launch, at);
	}
	return EXIT_DONE;
}

/* ---- telling ------------------------------------------------------------------- */

static bool user_lingers(void)
{
	char path[sizeof(LINGER) + 256], buffer[PASSWD_BYTES];
	struct passwd entry, *user = NULL;

	if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &user) != 0 || !user)
		return false;
	snprintf(path, sizeof(path), LINGER "/%s", user->pw_name);
	return access(path, F_OK) == 0;
}

static int launch_show(const json_t *result)
{
	const char *unit = answer_text(result, "unit"), *log = answer_text(result, "log");
	char roots[PATH_MAX];

	say("gpuwmd %s (pid %llu) runs for this user, under gpuwm-keeper (pid %llu)",
	    answer_text(result, "version"), (unsigned long long)answer_number(result, "pid"),
	    (unsigned long long)answer_number(result, "keeper"));
	if (answer_number(result, "adopted") > 0)
		say("it has taken %llu versions over, without loading a byte",
		    (unsigned long long)answer_number(result, "adopted"));
	if (json_is_true(json_object_get(result, "named")))
		say("socket: %s; clients find it if GPUWM_SOCKET is set to that",
		    answer_text(result, "socket"));
	else
		say("socket: %s; every program of this user finds it", answer_text(result, "socket"));
	if (*log)
		say("log: %s", log);
	if (*unit)
		say("unit: %s of this user's systemd", unit);
	answer_join(json_object_get(result, "roots"), roots, sizeof(roots));
	say("models are loaded from below: %s",
	    *roots ? roots : "no folder; gpuwmctl restart --root DIR names one");
	say("the weights end %s", answer_text(result, "ends"));
	if (json_is_string(json_object_get(result, "system")))
		say("the system's gpuwmd runs, too: programs of this user take it only if GPUWM_SOCKET is %s",
		    answer_text(result, "system"));
	return EXIT_DONE;
}

/* gpuwmd answers. Its log is the terminal if it runs in the foreground. */
static int launch_ready(const struct launch *launch)
{
	static const struct view view = {launch_show, NULL, NULL, NULL};
	const struct own_gpuwmd *own = launch->own;
	json_t *system = own->system_answers ? json_string("/run/gpuwm/gpuwm.sock") : json_null();
	const char *ends;

	if (!*launch->log)
		ends = "with Ctrl-C, when this terminal is closed, or with gpuwmctl stop";
	else if (!*launch->unit)
		ends = "with gpuwmctl stop, or when this machine or container ends";
	else if (user_lingers())
		ends = "with gpuwmctl stop, or when this machine ends";
	else
		ends = "with gpuwmctl stop, and at this user's last logout: loginctl enable-linger keeps them "
		       "beyond it";
	return result_show(json_pack("{s:b, s:O, s:O, s:O, s:O, s:i, s:s, s:b, s:s, s:s, s:s, s:o}", "started",
				     true, "version", json_object_get(own->status, "server"), "pid",
				     json_object_get(own->status, "pid"), "adopted",
				     json_object_get(own->status, "adopted"), "roots",
				     json_object_get(own->status, "roots"), "keeper", (int)own->keeper,
				     "socket", own->socket, "named", own->is_named, "unit", launch->unit, "log",
				     launch->log, "ends", ends, "system", system),
			   &view);
}

/* ---- starting -------------------------------------------------------------------- */

/* Starts it; if a keeper runs, the new one takes over from it. */
static int gpuwmd_start(struct own_gpuwmd *own)
{
	struct programs *programs = calloc(1, sizeof(*programs));
	struct launch launch = {.own = own, .is_restart = own->keeper != 0};
	int code = programs ? own_folder_make(own->folder) : (int)exit_with(EXIT_FAILED, NULL, "out of memory");

	if (code == EXIT_DONE)
		code = program_add(&launch, "gpuwm-keeper", programs->keeper);
	if (code == EXIT_DONE) {
		launch_flag(&launch, "--take-over", own->take_over);
		launch_word(&launch, "--");
		code = program_add(&launch, "gpuwmd", programs->gpuwmd);
	}
	if (code == EXIT_DONE)
		code = launch.is_restart && !has_options() ? same_flags_add(&launch, programs)
							   : flags_add(&launch, programs);
	if (code == EXIT_DONE && foreground) {
		code = launch_foreground(&launch, launch_ready);
	} else if (code == EXIT_DONE) {
		code = launch_background(&launch);
		if (code == EXIT_DONE)
			code = launch_ready(&launch);
	}
	for (size_t i = 0; programs && i < ROOTS_MAX; i++)
		free(programs->roots[i]);
	free(programs);
	return code;
}

static int running_show(const json_t *result)
{
	const uint64_t keeper = answer_number(result, "keeper");
	char by[64] = "";

	if (keeper)
		snprintf(by, sizeof(by), ", under gpuwm-keeper (pid %llu)", (unsigned long long)keeper);
	if (*answer_text(result, "note"))
		say("%s; gpuwmctl version says what to do", answer_text(result, "note"));
	say("gpuwmd %s (pid %llu) runs already, since %s%s; its socket is %s", answer_text(result, "version"),
	    (unsigned long long)answer_number(result, "pid"), answer_text(result, "since"), by,
	    answer_text(result, "socket"));
	return EXIT_DONE;
}

static json_t *running_result(const struct own_gpuwmd *own)
{
	const time_t since = time(NULL) - (time_t)(answer_number(own->status, "uptime_ms") / 1000);
	char since_text[sizeof("2026-01-31 23:59:59")] = "", note[RELEASE_TEXT];
	struct tm local;

	if (localtime_r(&since, &local))
		strftime(since_text, sizeof(since_text), "%F %T", &local);
	return json_pack("{s:b, s:O, s:O, s:i, s:s, s:s, s:s*}", "started", false, "version",
			 json_object_get(own->status, "server"), "pid", json_object_get(own->status, "pid"),
			 "keeper", (int)own->keeper, "socket", own->socket, "since", since_text, "note",
			 release_differs(own->status, note) ? note : NULL);
}

/* A gpuwmd runs already. Options of this start would be lost. */
static int running_tell(const struct own_gpuwmd *own)
{
	static const struct view view = {running_show, NULL, NULL, NULL};
	char program[PATH_MAX];

	if (!own->status && runner_program_is_gone(own->keeper, program, sizeof(program)))
		return exit_with(EXIT_UNREACHABLE, RUNNER_GONE_REMEDY, RUNNER_GONE, (int)own->keeper, program);
	if (!own->status)
		return exit_with(
			EXIT_UNREACHABLE,
			"gpuwmctl logs may show why; gpuwmctl restart takes over from it, gpuwmctl stop ends it",
			"gpuwm-keeper (pid %d) runs for this user, and its gpuwmd gives no answer: %s",
			(int)own->keeper, own->why);
	if (has_options())
		return exit_with(EXIT_IN_USE,
				 "gpuwmctl restart with these options takes over without losing weights",
				 "gpuwmd (pid %llu) runs already: the options of this start don't reach it",
				 (unsigned long long)answer_number(own->status, "pid"));
	return result_show(running_result(own), &view);
}

static int start_run(struct gpuwm_client *none, const struct arguments *arguments)
{
	struct own_gpuwmd own;
	int code = own_gpuwmd_find(arguments, &own);

	(void)none;
	if (code != EXIT_DONE)
		return code;
	code = own.status || own.keeper ? running_tell(&own) : gpuwmd_start(&own);
	own_gpuwmd_clear(&own);
	return code;
}

const struct command command_start = {
	.name = "start",
	.summary = "start gpuwmd for this user, with gpuwm-keeper",
	.about =
		"gpuwm-keeper keeps the weights if gpuwmd crashes. start says where socket and log are, and when the "
		"weights end. If this user's gpuwmd runs already, "
		"start says so and changes nothing.",
	.options = start_options,
	.example = "gpuwmctl start --root ~/models\n"
		   "gpuwmctl start --foreground",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = start_run,
};

/* ---- restarting --------------------------------------------------------------------- */

static int restart_run(struct gpuwm_client *none, const struct arguments *arguments)
{
	char remedy[512] = "gpuwmd runs in another container: renew that one";
	struct own_gpuwmd own;
	struct runner runner;
	int code = own_gpuwmd_find(arguments, &own);

	(void)none;
	if (code != EXIT_DONE)
		return code;
	if (own.status && !own.keeper) {
		runner = own_gpuwmd_runner(&own);
		if (runner_is_gpuwmd((pid_t)answer_number(own.status, "pid")))
			runner_renew_text(&runner, remedy, sizeof(remedy));
		code = own_gpuwmd_foreign_tell(&own, remedy);
	} else {
		code = gpuwmd_start(&own);
	}
	own_gpuwmd_clear(&own);
	return code;
}

const struct command command_restart = {
	.name = "restart",
	.summary = "start this user's gpuwmd anew, without losing weights",
	.about =
		"The new gpuwm-keeper takes the weights over from the running one, which ends. Without options, "
		"gpuwmd gets those that it has.",
	.options = start_options,
	.example = "gpuwmctl restart",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = restart_run,
};
