/* What options take: numbers, times, sizes, names. Each function is the `take` of rows. */
#ifndef GPUWM_CTL_VALUES_H
#define GPUWM_CTL_VALUES_H

#include "command.h"

int take_socket(struct arguments *arguments, const struct option_row *row, const char *text);
int take_output(struct arguments *arguments, const struct option_row *row, const char *text);
int take_help(struct arguments *arguments, const struct option_row *row, const char *text);
int take_version(struct arguments *arguments, const struct option_row *row, const char *text);

int take_device(struct arguments *arguments, const struct option_row *row, const char *text);
int take_key(struct arguments *arguments, const struct option_row *row, const char *text);
int take_alias(struct arguments *arguments, const struct option_row *row, const char *text);
int take_expect(struct arguments *arguments, const struct option_row *row, const char *text);
int take_fingerprint(struct arguments *arguments, const struct option_row *row, const char *text);
int take_from(struct arguments *arguments, const struct option_row *row, const char *text);
int take_config(struct arguments *arguments, const struct option_row *row, const char *text);
int take_root(struct arguments *arguments, const struct option_row *row, const char *text);
int take_budget(struct arguments *arguments, const struct option_row *row, const char *text);
int take_load(struct arguments *arguments, const struct option_row *row, const char *text);
int take_share_with(struct arguments *arguments, const struct option_row *row, const char *text);
int take_segment_bytes(struct arguments *arguments, const struct option_row *row, const char *text);
int take_ranks(struct arguments *arguments, const struct option_row *row, const char *text);
int take_cut(struct arguments *arguments, const struct option_row *row, const char *text);
int take_rank(struct arguments *arguments, const struct option_row *row, const char *text);
int take_pid(struct arguments *arguments, const struct option_row *row, const char *text);
int take_uid(struct arguments *arguments, const struct option_row *row, const char *text);
int take_count(struct arguments *arguments, const struct option_row *row, const char *text);
int take_after_event(struct arguments *arguments, const struct option_row *row, const char *text);
int take_after_time(struct arguments *arguments, const struct option_row *row, const char *text);
int take_watch(struct arguments *arguments, const struct option_row *row, const char *text);
int take_wait_seconds(struct arguments *arguments, const struct option_row *row, const char *text);
int take_tier(struct arguments *arguments, const struct option_row *row, const char *text);
int take_for(struct arguments *arguments, const struct option_row *row, const char *text);
int take_timeout(struct arguments *arguments, const struct option_row *row, const char *text);
int take_transport(struct arguments *arguments, const struct option_row *row, const char *text);
int take_lines(struct arguments *arguments, const struct option_row *row, const char *text);

#endif
