/* The slots of a backend of HAProxy, as its runtime API tells them: "show servers state BACKEND"; and what HAProxy has to be told. */
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

/* ---- what HAProxy has to be told so that they are as the fleet wants them ----
 * Plain data in, commands out. */

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
