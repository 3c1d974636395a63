#include "commands.h"

#include "exit.h"
#include "words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct command {
	const char *name, *alias; /* alias: another name, or NULL */
	const char *usage; /* with the name; as in the man page */
	const char *help; /* one line */
	int positional_min, positional_max;
	enum word_kind first, second;
	unsigned options; /* bits of command_option */
	bool admin; /* on admin.sock only. Without it, users who are no operators use the workers' socket */
	int (*run)(struct gpuwm_client *client, const struct arguments *arguments);
};

/* The one list of commands: --help prints it, and tests/ctl-help.sh compares it
 * with the man page. */
static const struct command commands[] = {
	{"status", NULL, "status", "show what gpuwmd holds, its devices and its limits", 0, 0, 0, 0, 0, false,
	 command_status},
	{"ls", "list", "ls [MODEL]", "list versions: aliases, state, devices, size, leases, pins, owner, age",
	 0, 1, WORD_MODEL, 0, 0, false, command_ls},
	{"show", NULL, "show REF [--device DEVICE] [--rank N]",
	 "show one version: its tensors, metadata and files", 1, 1, WORD_REF, 0, OPTION_DEVICE | OPTION_RANK,
	 false, command_show},
	{"regions", NULL, "regions [REGION] [--remove]",
	 "list regions: kind, device, size, what of it is in use; with REGION also its users, and its oldest chunks, its "
	 "blocks by state, or who holds it; with --remove, end it",
	 0, 1, WORD_ANY, 0, OPTION_REMOVE, false, command_regions},
	{"ps", "leases", "ps", "list leases: which process holds which version", 0, 0, 0, 0, 0, false,
	 command_ps},
	{"clients", NULL, "clients", "list sessions: who is connected", 0, 0, 0, 0, 0, false, command_clients},
	{"load", NULL,
	 "load SOURCE MODEL@TAG [--device DEVICE]... [--alias ALIAS] [--swap] [--key FIELD=VALUE]... "
	 "[--share-with REF] [--segment-bytes SIZE] [--wait] [--dry-run]",
	 "load a checkpoint as a new version; with --dry-run, only say whether it fits. The first version of a model "
	 "becomes current; --swap (short for --alias current) makes a later one current; with --share-with, the version "
	 "uses the memory of REF where the bytes are equal",
	 2, 2, WORD_ANY, WORD_NEW,
	 OPTION_DEVICE | OPTION_ALIAS | OPTION_SWAP | OPTION_KEY | OPTION_WAIT | OPTION_DRY_RUN |
		 OPTION_SHARE_WITH | OPTION_SEGMENT_BYTES,
	 true, command_load},
	{"verify", NULL, "verify REF [--device DEVICE] [--no-wait]",
	 "read a version's memory again and compare it with the version's digests", 1, 1, WORD_REF, 0,
	 OPTION_DEVICE | OPTION_NO_WAIT, false, command_verify},
	{"jobs", NULL, "jobs [ID]", "list loads, checks and verifies: phases, progress, errors", 0, 1, 0, 0, 0,
	 false, command_jobs},
	{"cancel", NULL, "cancel ID", "end a queued or running job", 1, 1, 0, 0, 0, true, command_cancel},
	{"swap", NULL,
	 "swap MODEL[@ALIAS] [TO] [--expect ID] [--retire-old] [--remove] "
	 "[--load SOURCE [--device DEVICE]... [--key FIELD=VALUE]... "
	 "[--share-with REF] [--segment-bytes SIZE] [--keep-old]]",
	 "move an alias (default: current) to TO, which is a tag, an alias or a version id; with --remove, remove the "
	 "alias; with --load, load TO as a new version, move the alias to it and retire the old version",
	 1, 2, WORD_ALIAS_OF, WORD_TARGET,
	 OPTION_EXPECT | OPTION_RETIRE_OLD | OPTION_REMOVE | OPTION_LOAD | OPTION_DEVICE | OPTION_KEY |
		 OPTION_KEEP_OLD | OPTION_SHARE_WITH | OPTION_SEGMENT_BYTES,
	 false, command_swap},
	{"rollback", NULL, "rollback MODEL", "move current back to the version that it named before", 1, 1,
	 WORD_MODEL, 0, 0, false, command_rollback},
	{"pin", NULL, "pin REF NAME", "keep a version until it is unpinned; NAME names the pin", 2, 2, WORD_REF,
	 WORD_NAME, 0, false, command_pin},
	{"unpin", NULL, "unpin REF NAME", "remove the pin with that name", 2, 2, WORD_REF, WORD_NAME, 0, false,
	 command_unpin},
	{"retire", NULL, "retire REF [--wait [SECONDS]] [--force [--after TIME]]",
	 "give no new leases, and free the version when its last lease and pin are gone; with --force, revoke its "
	 "leases",
	 1, 1, WORD_REF, 0, OPTION_WAIT | OPTION_WAIT_SECONDS | OPTION_FORCE | OPTION_AFTER, false,
	 command_retire},
	{"rm", NULL, "rm REF", "remove a failed version from the list", 1, 1, WORD_REF, 0, 0, false,
	 command_rm},
	{"kick", NULL, "kick [LEASE] [--pid PID] [--uid UID]",
	 "revoke a lease, or all leases of a process or a user", 0, 1, WORD_ANY, 0, OPTION_PID | OPTION_UID,
	 true, command_kick},
	{"drain", NULL, "drain [--device DEVICE]",
	 "retire every version, and take nothing new until gpuwmd is started again; with --device, free the versions "
	 "that were lost with that GPU",
	 0, 0, 0, 0, OPTION_DEVICE, true, command_drain},
	{"reload", NULL, "reload",
	 "make gpuwmd read its configuration again, and say where the file has an error", 0, 0, 0, 0, 0, true,
	 command_reload},
	{"events", NULL, "events [--after SEQ] [--count N]", "print events as they happen", 0, 0, 0, 0,
	 OPTION_AFTER | OPTION_COUNT, false, command_events},
	{"ping", NULL, "ping", "measure one round trip to gpuwmd", 0, 0, 0, 0, 0, false, command_ping},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char usage_line[] =
	"usage: gpuwmctl [--socket PATH] [-o json|table] [--help] [--version] COMMAND [ARGUMENTS]\n";

static void help_print(FILE *file)
{
	fputs(usage_line, file);
	fputs("\ncommands:\n", file);
	for (size_t i = 0; i < COMMANDS; i++) {
		fprintf(file, "  %s\n      %s", commands[i].usage, commands[i].help);
		if (commands[i].alias)
			fprintf(file, " (also: %s)", commands[i].alias);
		fputc('\n', file);
	}
	fputs("\noptions:\n"
	      "  --socket PATH       the workers' socket; admin.sock lies beside it.\n"
	      "                      Default: $GPUWM_SOCKET, else $XDG_RUNTIME_DIR/gpuwm/gpuwm.sock\n"
	      "                      when it exists, else /run/gpuwm/gpuwm.sock\n"
	      "  -o, --output FORM   table (for people) or json (for programs)\n"
	      "  -h, --help          this text; after a command's name, the command's usage\n"
	      "  --version           the version of gpuwm\n"
	      "\nREF is MODEL, MODEL@TAG, MODEL@ALIAS or a version id. DEVICE is host, a GPU's UUID\n"
	      "(or the beginning of one) or cuda:N, numbered from 0 in the order of gpuwmctl status.\n"
	      "\nexit status: 0 ok, 1 failed, 2 usage, 3 gpuwmd not reachable, 4 not found, 5 in use,\n"
	      "6 permission, 7 timed out, 8 no room, 9 damaged\n",
	      file);
}

static int command_usage(const struct command *command, const char *what)
{
	exit_with(EXIT_USAGE, NULL, "%s", what);
	fprintf(stderr, "usage: gpuwmctl %s\n", command->usage);
	return EXIT_USAGE;
}

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0 ||
		    (commands[i].alias && strcmp(commands[i].alias, name) == 0))
			return &commands[i];
	return NULL;
}

/* Returns true if admin.sock is not there or refuses this user. gpuwmctl reports every other error. */
static bool is_no_operator(int code)
{
	return code == -EACCES || code == -EPERM || code == -ENOENT || code == -ECONNREFUSED;
}

/* Connects to admin.sock. A user who may not use it gets the workers' socket, where the rules say what the user sees. */
static int command_connect(const struct command *command, const struct arguments *arguments,
			   struct gpuwm_client **ret_client)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	int r;

	options.socket = arguments->socket;
	options.name = "gpuwmctl";
	options.flags = GPUWM_CONNECT_ADMIN;
	r = gpuwm_connect(&options, ret_client);
	if (command->admin || !is_no_operator(r))
		return r;
	options.flags = 0;
	return gpuwm_connect(&options, ret_client);
}

static int command_run(const struct command *command, const struct arguments *arguments)
{
	struct gpuwm_client *client;
	int code;

	if (command_connect(command, arguments, &client) < 0)
		return exit_with_connect_error();
	code = command->run(client, arguments);
	gpuwm_close(client);
	return code;
}

static int command_dispatch(const struct arguments *arguments)
{
	const struct command *command = command_find(arguments->command);

	if (!command)
		return exit_with(EXIT_USAGE, "gpuwmctl --help lists the commands", "there is no command '%s'",
				 arguments->command);
	if (arguments->help) {
		printf("usage: gpuwmctl %s\n%s\n", command->usage, command->help);
		return EXIT_DONE;
	}
	if (arguments->positional_count < command->positional_min)
		return command_usage(command, "an argument is missing");
	if (arguments->positional_count > command->positional_max)
		return command_usage(command, "too many arguments");
	if (arguments->given & ~command->options)
		return command_usage(command,
				     "the command does not take one of these options, or the value of one");
	if (words_check(arguments, command->first, command->second) != EXIT_DONE)
		return EXIT_USAGE;
	return command_run(command, arguments);
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	int code = arguments_parse(argc, argv, &arguments);

	if (code != EXIT_DONE)
		return code;
	if (arguments.version) {
		printf("gpuwmctl %s\n", gpuwm_library_version());
	} else if (arguments.command) {
		code = command_dispatch(&arguments);
	} else if (arguments.help) {
		help_print(stdout);
	} else {
		fputs(usage_line, stderr);
		return exit_with(EXIT_USAGE, "gpuwmctl --help lists the commands", "no command was given");
	}
	/* A write before the last one may have failed too. */
	if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_DONE)
		return exit_with(EXIT_FAILED, NULL, "can't write to stdout");
	return code;
}
