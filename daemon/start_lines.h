/* What a start says in the log: which gpuwmd this is, and what it goes by. */
#ifndef GPUWM_DAEMON_START_LINES_H
#define GPUWM_DAEMON_START_LINES_H

struct server;

/* The first line: version and process. */
void start_lines_begin(void);
/* The others, when gpuwmd begins to serve: who keeps the weights, sockets, devices, roots and limits. */
void start_lines_serving(const struct server *server);

#endif
