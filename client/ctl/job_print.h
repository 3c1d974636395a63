/* Jobs as people read them: their course, their notes, the plan of a dry run. */
#ifndef GPUWM_CTL_JOB_PRINT_H
#define GPUWM_CTL_JOB_PRINT_H

#include <jansson.h>

/* A job's phases with their times, the notes of its loader. */
int job_course_print(const json_t *job);
/* Prints the notes of the job's loader, a line each. */
void job_notes_print(const json_t *job);
/* The plan of a dry run. */
int job_plan_print(const json_t *job);
/* EXIT_DONE, or EXIT_NO_ROOM after saying where it does not fit. */
int job_plan_judge(const json_t *job);

#endif
