/* The daemon's half of a loader's connection: a loader in a thread, and the
 * test as its gpuwmd. */
#ifndef GPUWM_TESTS_LOADER_DAEMON_H
#define GPUWM_TESTS_LOADER_DAEMON_H

#include "loader/check.h"
#include "loader/standby.h"
#include "proto/wire/message.h"
#include "proto/wire/packet.h"
#include "tests/support/loader/files.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#define ID "0123456789abcdef0123456789abcdef"

extern int gpuwmd; /* the daemon's end */
extern pthread_t thread;
extern int loader_end, loader_result;
extern struct roots_service roots; /* zero: those of the job count */
extern bool dry_run; /* of the loads that are sent */
extern const char *share_with; /* the same; NULL: they share nothing */
extern int kept; /* a publisher's socket that stays open to the end */

extern struct packet packet;
extern struct message message;

/* ---- the loader's life ------------------------------------------------- */

/* Makes the folder and starts a loader, which says hello. */
void start(void);
/* Closes gpuwmd's end of the connection. */
void hang_up(void);
/* Waits for the loader's end: it returned `result`, and left no descriptor. */
void expect_end(int result);
/* Removes the folder, and forgets the last message. */
void finish(void);

/* ---- what the loader says ---------------------------------------------- */

/* Waits for the next packet of `sock` and sets `packet` and `message`. Returns false at the end of the connection. */
bool listen_to(int sock);
/* Clears both. */
void forget(void);
/* The next message of the loader besides progress is for this method. */
void expect(const char *method);
/* The loader's job is done, or failed with this code (a name; "" for none) and these words. It is answered, and the loader
 * ends. */
void expect_done(const char *code, const char *says);
/* `message`, a loader_done, has an error with this code and these words; "": it has none. */
void expect_error(const char *code, const char *says);
/* Reads the part of a loader_checked. Its descriptors are the packet's. */
void read_part(struct check_part *check, struct part *part);
/* Returns a duplicate of the descriptor, which stays open beyond the loader's end. */
int keep_fd(int fd);

/* ---- what gpuwmd says -------------------------------------------------- */

/* Ends the message, sends it with these descriptors, and clears the writer. */
void say(int sock, struct message_writer *w, const int *fds, size_t count);
/* Answer `message`: with nothing, or with the version of a publish_begin. */
void answer_empty(void);
void answer_begin(void);
void notify(const char *method);

void write_model(void);
/* Sends a load to `devices`, which ends with NULL. If `root` is NULL, the job names no roots. */
void send_load_to(const char *source, const char *root, const char *const *devices);
/* Sends a check of rank 0 of 1 with so many bytes. keep: the loader may keep its context. Returns the publisher's socket. */
int send_check(const char *device, uint64_t bytes, bool keep);

#endif
