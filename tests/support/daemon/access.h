/* Sessions of several users, rules, and what they ask for. */
#ifndef GPUWM_TESTS_DAEMON_ACCESS_H
#define GPUWM_TESTS_DAEMON_ACCESS_H

#include "tests/support/daemon/server.h"

/* Users that no machine has: none is the one who runs the tests. */
#define OWNER 61001
#define NAMED 61002
#define OTHER 61003

/* A new connection of this user. */
int connect_uid(uid_t uid, unsigned roles);

/* Sets a key of the configuration, as if it was read again. */
void rule(const char *section, const char *key, const char *value);

/* Makes a ready version that this user owns. */
struct version *owned(const char *model, const char *tag, uid_t uid);

/* Asks for handles. Returns the code. */
int get(int sock, const char *ref);

/* Returns how many of `what` ("versions", …) a list tells this connection. */
uint32_t told(int sock, const char *what);

/* Each sends the request of its name. Returns the code. */
int retire(int sock, const char *ref);
int swap(int sock, const char *model, const char *to);
int pin(int sock, const char *ref);

/* Whether a new connection of this user may publish the model: 0 or the error. */
int may_publish(uid_t uid, unsigned roles, const char *model, struct error *error);

#endif
