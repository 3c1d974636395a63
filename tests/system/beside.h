/* A gpuwm-peer beside a gpuwmd of the test. */
#ifndef GPUWM_TESTS_BESIDE_H
#define GPUWM_TESTS_BESIDE_H

#include "harness.h"

struct beside {
	pid_t pid; /* 0: it does not run */
	unsigned port;
	char config[96], asking[96], log[96]; /* asking: the configuration of a node that asks this one */
	char source[64]; /* m@v1 there, as a load names it */
};

/* The file of the secret that all nodes of the test have; "peers.secret=" with it, after it was written. Valid until the test ends. */
const char *peers_secret(void);
const char *peers_setting(void);
void peers_secret_write(const char *secret);
/* Writes a file of this mode. */
void text_write(const char *path, unsigned mode, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Skips the test if this build has no gpuwm-peer. */
void beside_needs_built(void);
/* Starts one without waiting. settings: lines of [peers]. beside_wait waits until it serves, and finds its port. */
void beside_spawn(struct beside *peer, const struct gpuwmd *d, const char *settings, uid_t uid);
void beside_wait(struct beside *peer);
/* Starts one that serves at a port of its own, with the secret. */
void beside_start(struct beside *peer, const struct gpuwmd *d);
void beside_start_as(struct beside *peer, const struct gpuwmd *d, uid_t uid);
/* Its exit code once it has ended, which it must within SOON_MS. beside_stop tells it to. */
int beside_ended(struct beside *peer);
int beside_stop(struct beside *peer);
/* Kills one that runs. */
void beside_clear(struct beside *peer);
/* What it has logged; whether these words are in there. */
char *beside_log(const struct beside *peer);
bool beside_says(const struct beside *peer, const char *words);

#endif
