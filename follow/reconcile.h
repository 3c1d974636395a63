/* What HAProxy has to be told so that the slots of a backend are as the fleet wants them. Plain data in, commands out. */
#ifndef GPUWM_FOLLOW_RECONCILE_H
#define GPUWM_FOLLOW_RECONCILE_H

#include "slots.h"

/* "set server BACKEND/SLOT addr IP port N", with names of any length that there is. */
#define COMMAND_BYTES 384

struct commands {
	char (*items)[COMMAND_BYTES]; /* malloced */
	size_t count;
	/* Servers that have no place: HAProxy has too few slots, or takes only IP addresses. */
	size_t without_slot, without_ip;
	char odd[ADDRESS_BYTES_MAX + 1]; /* one of those without an IP address */
};

/* Sets *ret, which the caller frees with commands_clear. A server keeps the slot that has its address; else it gets one that is in
 * maintenance. First come servers that get requests, then those that drain, then those that leave: there is no gap. Fails
 * with -ENOMEM. */
int reconcile(const char *backend, const struct fleet *fleet, const struct slots *slots, struct commands *ret);
void commands_clear(struct commands *commands);

#endif
