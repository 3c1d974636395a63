/* The list of commands, in the order of --help and the man page. */
#include "catalog.h"

#include "../commands.h"

static const struct command *const look[] = {
	&command_status, &command_ls,      &command_show, &command_handles, &command_regions,
	&command_ps,     &command_clients, &command_jobs, &command_wait,    &command_events,
	&command_top,    &command_ping,    NULL,
};

static const struct command *const operate[] = {
	&command_load,   &command_cancel, &command_verify,   &command_save,
	&command_swap,   &command_alias,  &command_rollback, &command_pin,
	&command_unpin,  &command_demote, &command_promote,  &command_describe,
	&command_retire, &command_rm,     &command_kick,     NULL,
};

static const struct command *const gpuwmd[] = {
	&command_start,  &command_restart, &command_stop, &command_drain,
	&command_reload, &command_doctor,  &command_logs, NULL,
};

static const struct command *const gpuwmctl[] = {
	&command_help, &command_explain, &command_version, &command_complete, NULL,
};

const struct command_group command_groups[] = {
	{"look", look}, {"operate", operate}, {"gpuwmd itself", gpuwmd}, {"gpuwmctl itself", gpuwmctl}, {0},
};
