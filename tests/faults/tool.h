/* Programs beside the stack whose calls fail: gpuwmctl, which ends by itself, and those that serve until they are told to end. */
#ifndef GPUWM_FAULTS_TOOL_H
#define GPUWM_FAULTS_TOOL_H

#include "round.h"

/* Words of a scenario that stand for something of its stack. */
#define WORD_SOURCE "%source" /* the folder with CONTENT_TWO */
#define WORD_SAVED "%saved" /* a folder that is not there, beneath the root */
#define WORD_SOCKET "%socket"
#define WORD_ADMIN "%admin" /* the operators' socket */
#define WORD_CONFIG "%config" /* with [peers] */
#define WORD_HOOK "%hook" /* a command that puts what it reads into the file of tool_heard */

/* For `act`: a program that ends by itself. Its status goes to the scenario's `after`. */
void act_command(struct round *r);
/* For `act`: those that serve. */
void act_exporter(struct round *r);
void act_follow(struct round *r);
void act_peer(struct round *r);

/* For `after`. */
void after_load(struct round *r, int status);
void after_save(struct round *r, int status);
void after_pin(struct round *r, int status);
void after_swap(struct round *r, int status);

#endif
