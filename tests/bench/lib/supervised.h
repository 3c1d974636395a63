/* A gpuwmd of the program's own, under a service manager that takes its notifications and tells how regularly they
 * come. Sockets and the log lie in a temporary folder. */
#ifndef GPUWM_BENCH_SUPERVISED_H
#define GPUWM_BENCH_SUPERVISED_H

#include <sys/types.h>

struct supervised {
	char folder[32], socket[64], admin[64];
	pid_t pid;
	int notify; /* where notifications come in */
	double last_ping_us, gap_us; /* the longest since supervised_gap_begin */
};

/* Starts `bin`/gpuwmd and waits until it has a standby loader. Everybody may connect to its socket, and the group
 * `publish_group` may publish. At most one; it ends with the program. */
struct supervised *supervised_start(const char *bin, const char *publish_group);
void supervised_stop(struct supervised *gpuwmd);

/* Takes the notifications that have come; ends the program if gpuwmd has ended. */
void supervised_look(struct supervised *gpuwmd);
/* Forgets earlier gaps. */
void supervised_gap_begin(struct supervised *gpuwmd);
/* The longest time between two pings of the watchdog, up to now. */
double supervised_gap_us(struct supervised *gpuwmd);
/* A ping comes so often while gpuwmd does nothing else. */
#define SUPERVISED_PING_US 100000

#endif
