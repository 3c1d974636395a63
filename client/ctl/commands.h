/* The commands of gpuwmctl. Each has its words, options, help and code in one file, cmd_*.c, and a line in catalog/catalog.c. It gets
 * a connected client and checked arguments, prints to stdout, and returns an exit code. */
#ifndef GPUWM_CTL_COMMANDS_H
#define GPUWM_CTL_COMMANDS_H

#include "command.h"

#include <jansson.h>

/* look */
extern const struct command command_status, command_ls, command_show, command_handles, command_regions,
	command_ps, command_clients, command_jobs, command_wait, command_events, command_top, command_ping;
/* operate */
extern const struct command command_load, command_cancel, command_verify, command_save, command_swap,
	command_alias, command_rollback, command_pin, command_unpin, command_demote, command_promote,
	command_describe, command_retire, command_rm, command_kick;
/* gpuwmd itself */
extern const struct command command_start, command_restart, command_stop, command_drain, command_reload,
	command_doctor, command_logs;
/* gpuwmctl itself */
extern const struct command command_help, command_explain, command_version, command_complete;

/* ls --peers; config: NULL, that of the gpuwmd that runs; model: NULL, all. */
int peers_run(struct gpuwm_client *client, const char *config, const char *model);
/* The same without output: *ret_answer has the nodes, each with its versions. EXIT_DONE, or an exit code after printing why. */
int peers_get(struct gpuwm_client *client, const char *config, json_t **ret_answer);

#endif
