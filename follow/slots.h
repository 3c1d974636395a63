/* The slots of a backend of HAProxy, as its runtime API tells them: "show servers state BACKEND". */
#ifndef GPUWM_FOLLOW_SLOTS_H
#define GPUWM_FOLLOW_SLOTS_H

#include "fleet.h"
#include "../proto/address.h"

#define SLOT_NAME_BYTES_MAX 63 /* a prefix of server-template and a number */

enum slot_state { SLOT_MAINT, SLOT_READY, SLOT_DRAIN };

struct slot {
	char name[SLOT_NAME_BYTES_MAX + 1];
	char ip[ADDRESS_IP_TEXT]; /* "": none, or one that is no IP address */
	unsigned port;
	enum slot_state state;
};

struct slots {
	struct slot *items; /* malloced */
	size_t count;
};

/* Reads an answer of HAProxy, which it changes. Sets *ret, which the caller frees with slots_clear. Fails with -EBADMSG if the text is
 * no such answer, and -ENOMEM. */
int slots_read(char *text, struct slots *ret);
void slots_clear(struct slots *slots);

/* Sets ret to the slot's address in the form of proto/address.h. */
void slot_address(const struct slot *slot, char ret[ADDRESS_BYTES_MAX + 1]);

#endif
