/* The commands of gpuwmctl, each in the file of its group. A command gets a connected client and checked
 * arguments, prints to stdout, and returns an exit code. */
#ifndef GPUWM_CTL_COMMANDS_H
#define GPUWM_CTL_COMMANDS_H

#include "arguments.h"

int command_status(struct gpuwm_client *client, const struct arguments *arguments);
int command_ls(struct gpuwm_client *client, const struct arguments *arguments);
int command_peers(struct gpuwm_client *client, const struct arguments *arguments); /* ls --peers */
int command_regions(struct gpuwm_client *client, const struct arguments *arguments);
int command_show(struct gpuwm_client *client, const struct arguments *arguments);
int command_handles(struct gpuwm_client *client, const struct arguments *arguments);
int command_ps(struct gpuwm_client *client, const struct arguments *arguments);
int command_clients(struct gpuwm_client *client, const struct arguments *arguments);
int command_ping(struct gpuwm_client *client, const struct arguments *arguments);
int command_load(struct gpuwm_client *client, const struct arguments *arguments);
int command_verify(struct gpuwm_client *client, const struct arguments *arguments);
int command_save(struct gpuwm_client *client, const struct arguments *arguments);
int command_jobs(struct gpuwm_client *client, const struct arguments *arguments);
int command_cancel(struct gpuwm_client *client, const struct arguments *arguments);
int command_swap(struct gpuwm_client *client, const struct arguments *arguments);
int command_replace(struct gpuwm_client *client, const struct arguments *arguments); /* swap --load */
int command_alias(struct gpuwm_client *client, const struct arguments *arguments);
int command_rollback(struct gpuwm_client *client, const struct arguments *arguments);
int command_pin(struct gpuwm_client *client, const struct arguments *arguments);
int command_unpin(struct gpuwm_client *client, const struct arguments *arguments);
int command_retire(struct gpuwm_client *client, const struct arguments *arguments);
int command_wait(struct gpuwm_client *client, const struct arguments *arguments);
int command_demote(struct gpuwm_client *client, const struct arguments *arguments);
int command_promote(struct gpuwm_client *client, const struct arguments *arguments);
int command_describe(struct gpuwm_client *client, const struct arguments *arguments);
int command_rm(struct gpuwm_client *client, const struct arguments *arguments);
int command_kick(struct gpuwm_client *client, const struct arguments *arguments);
int command_drain(struct gpuwm_client *client, const struct arguments *arguments);
int command_start(struct gpuwm_client *none, const struct arguments *arguments);
int command_restart(struct gpuwm_client *none, const struct arguments *arguments);
int command_stop(struct gpuwm_client *none, const struct arguments *arguments);
int command_reload(struct gpuwm_client *client, const struct arguments *arguments);
int command_top(struct gpuwm_client *client, const struct arguments *arguments);
int command_doctor(struct gpuwm_client *client, const struct arguments *arguments);
int command_explain(struct gpuwm_client *client, const struct arguments *arguments);
int command_logs(struct gpuwm_client *client, const struct arguments *arguments);
int command_version(struct gpuwm_client *client, const struct arguments *arguments);
int command_events(struct gpuwm_client *client, const struct arguments *arguments);

/* Moves or removes an alias, and tells what became of it: swap, alias and rollback end so. */
int swap_run(struct gpuwm_client *client, const struct arguments *arguments,
	     const struct gpuwm_swap_options *options);

#endif
