/* The messages: for each method of docs/protocol.md a struct of its parameters and a struct of its
 * result, and their records, which both sides read and write by. record.h says how a struct holds
 * what a map says.
 *
 * A new key is a member of its struct and a row in messages_*.c. A key that is added to a result must
 * be optional, since an older gpuwmd does not send it. */
#ifndef GPUWM_PROTO_MESSAGES_H
#define GPUWM_PROTO_MESSAGES_H

#include "messages_events.h"
#include "messages_jobs.h"
#include "messages_lease.h"
#include "messages_loader.h"
#include "messages_look.h"
#include "messages_operate.h"
#include "messages_publish.h"
#include "messages_region.h"
#include "messages_session.h"

/* Every form; NULL ends the array. */
extern const struct message_form *const message_forms[];

#endif
