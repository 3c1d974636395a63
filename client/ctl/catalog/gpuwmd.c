/* Commands about gpuwmd itself. */
#include "catalog.h"

#include "../commands.h"
#include "../command.h"

static const struct option_row drain_options[] = {
	ROW_DEVICE("free the versions that were lost with this GPU, and go on"),
	{OPTION_KEEP_DESCRIPTIONS, "keep-descriptions", 0, NULL, false, NULL, NULL,
	 "keep the descriptions: the next start brings the versions back"},
	{OPTION_YES, "yes", 'y', NULL, false, NULL, NULL, "don't ask"},
	{0},
};

static const struct option_row logs_options[] = {
	{OPTION_FOLLOW, "follow", 'f', NULL, false, NULL, NULL, "go on with what comes, until Ctrl-C"},
	{OPTION_LINES, "lines", 'n', "N", false, NULL, take_lines, "only the last N lines"},
	{0},
};

static const struct option_row doctor_options[] = {
	{OPTION_CONFIG, "config", 0, "FILE", false, NULL, take_config,
	 "gpuwmd.conf to judge (default: that of the gpuwmd that runs)"},
	{0},
};
/* Of start and restart. */
#define ROWS_OF_A_START                                                                                          \
	{OPTION_ROOT, "root", 0,         "DIR",                                                                  \
	 true,        NULL,   take_root, "a folder with models, besides the cache of the Hugging Face hub"},     \
		{OPTION_BUDGET, "budget", 0,           "DEVICE=SIZE",                                            \
		 true,          NULL,     take_budget, "how much of a device versions may take: see gpuwmd(8)"}, \
		{OPTION_CONFIG,                                                                                  \
		 "config",                                                                                       \
		 0,                                                                                              \
		 "FILE",                                                                                         \
		 false,                                                                                          \
		 NULL,                                                                                           \
		 take_config,                                                                                    \
		 "gpuwmd's configuration; default: ~/.config/gpuwm/gpuwmd.conf if it is there"},                 \
	{                                                                                                        \
		OPTION_FOREGROUND, "foreground", 0, NULL, false, NULL, NULL,                                     \
			"stay, with the log on this terminal; Ctrl-C or its end ends gpuwmd"                     \
	}

static const struct option_row start_options[] = {ROWS_OF_A_START, {0}};

const struct command commands_gpuwmd[] = {
	{
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
		.run = command_start,
	},
	{
		.name = "restart",
		.summary = "start this user's gpuwmd anew, without losing weights",
		.about =
			"The new gpuwm-keeper takes the weights over from the running one, which ends. Without options, "
			"gpuwmd gets those that it has.",
		.options = start_options,
		.example = "gpuwmctl restart",
		.socket = SOCKET_NONE,
		.no_names = true,
		.run = command_restart,
	},
	{
		.name = "stop",
		.summary = "end this user's gpuwmd, which lets all weights go",
		.about = "Workers keep what they have mapped until they unmap it.",
		.example = "gpuwmctl stop",
		.socket = SOCKET_NONE,
		.no_names = true,
		.run = command_stop,
	},
	{
		.name = "drain",
		.summary = "retire every version, and take nothing new until a restart",
		.about =
			"It says what goes, and asks. Where nobody can be asked, it needs --yes. The exit status is 5 while "
			"somebody holds a version.",
		.options = drain_options,
		.example = "gpuwmctl drain\n"
			   "gpuwmctl drain --keep-descriptions --yes",
		.socket = SOCKET_ADMIN,
		.run = command_drain,
	},
	{
		.name = "reload",
		.summary = "make gpuwmd read its configuration again",
		.about =
			"If the file has an error, the old configuration stays in force, and reload says where the error is.",
		.example = "gpuwmctl reload",
		.socket = SOCKET_ADMIN,
		.run = command_reload,
	},
	{
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
		.run = command_doctor,
	},
	{
		.name = "logs",
		.summary = "show gpuwmd's log: journalctl of its unit, or its file",
		.about = "If neither systemd nor gpuwmctl start runs gpuwmd, logs says where the log goes.",
		.options = logs_options,
		.example = "gpuwmctl logs -n 50 -f",
		.socket = SOCKET_NONE,
		.no_names = true,
		.run = command_logs,
	},
	{0},
};
