/* What is written of a round that failed. */
#ifndef GPUWM_FAULTS_REPORT_H
#define GPUWM_FAULTS_REPORT_H

#include "round.h"

/* The round, the call that failed, and what the programs said last. */
void report_round(int file, const struct round *r);
/* One line. */
void report_line(int file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
