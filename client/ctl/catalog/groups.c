/* The groups, in the order of --help and the man page. */
#include "catalog.h"

const struct command_group command_groups[] = {
	{"look", commands_look},
	{"operate", commands_operate},
	{"gpuwmd itself", commands_gpuwmd},
	{"gpuwmctl itself", commands_gpuwmctl},
	{0},
};
