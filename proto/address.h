/* The address at which a worker serves requests. Workers announce it with a lease, and load balancers send requests there.
 *
 *   address = host ":" port | "[" IPv6 "]:" port | "unix:" absolute path
 *   host    = letters, digits, '.', '-' and '_'
 *   port    = 1 to 65535, without leading zeros
 *   path    = at most 107 bytes (a socket's path has no more) of letters, digits and "/._-@+"
 *
 * An address has at most ADDRESS_BYTES_MAX bytes. Its characters need no quotes: not in a shell, not in a load balancer's
 * command. */
#ifndef GPUWM_PROTO_ADDRESS_H
#define GPUWM_PROTO_ADDRESS_H

#include "../base/limits.h"

#include <stdbool.h>

/* Returns NULL if `text` is a valid address, else what is wrong with it, as the end of a sentence ("is empty"). */
const char *address_wrong(const char *text);

/* Splits an address of an IP address and a port. Returns true and sets ret_ip (without brackets, as inet_ntop
 * writes it) and *ret_port. Returns false
 * if the text is anything else, such as a host's name. */
#define ADDRESS_IP_TEXT 46 /* INET6_ADDRSTRLEN */
bool address_ip(const char *text, char ret_ip[ADDRESS_IP_TEXT], unsigned *ret_port);

#endif
