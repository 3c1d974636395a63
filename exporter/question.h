/* What the exporter asks gpuwmd. */
#ifndef GPUWM_EXPORTER_QUESTION_H
#define GPUWM_EXPORTER_QUESTION_H

enum question { ASK_STATUS, ASK_LIST, ASK_CLIENTS, ASK_JOBS, ASK_REGIONS, ASK_METRICS, QUESTIONS };
/* The names of the methods, each for gpuwm_query. */
extern const char *const question_names[QUESTIONS];

#endif
