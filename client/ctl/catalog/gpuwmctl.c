/* Commands about gpuwmctl itself, and the list of all groups. */
#include "catalog.h"

#include "../commands.h"

static const struct option_row help_options[] = {
	{OPTION_ALL, "all", 0, NULL, false, NULL, NULL, "the help of every command"},
	{0},
};

const struct command commands_gpuwmctl[] = {
	{
		.name = "help",
		.words = {{"COMMAND", WORD_COMMAND, true}},
		.summary = "list the commands, or show the help of one",
		.options = help_options,
		.example = "gpuwmctl help swap",
		.socket = SOCKET_NONE,
		.no_names = true,
		.run = command_help,
	},
	{
		.name = "explain",
		.words = {{"CODE", WORD_CODE, true}},
		.summary = "say what an error code or an exit status means, and what to do",
		.about = "Without CODE: list all of them.",
		.example = "gpuwmctl explain ENOSPC\n"
			   "gpuwmctl explain 4",
		.socket = SOCKET_NONE,
		.no_names = true,
		.run = command_explain,
	},
	{
		.name = "version",
		.summary = "print the versions of gpuwmctl, the library and gpuwmd",
		.example = "gpuwmctl version",
		.socket = SOCKET_NONE,
		.no_names = true,
		.run = command_version,
	},
	{
		.name = "complete",
		.summary = "print what may stand in the place of the last word",
		.example = "gpuwmctl complete -- swap llama \"\"",
		.socket = SOCKET_NONE,
		.raw = true,
		.hidden = true,
		.run = command_complete,
	},
	{0},
};

/* ---- all groups, in the order of --help and the man page ---- */

const struct command_group command_groups[] = {
	{"look", commands_look},
	{"operate", commands_operate},
	{"gpuwmd itself", commands_gpuwmd},
	{"gpuwmctl itself", commands_gpuwmctl},
	{0},
};
