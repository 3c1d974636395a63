/* gpuwm-keeper with tests/tools/notify-service below it: each start of that connects to the test, which tells it what to do. */
#ifndef GPUWM_TESTS_KEEPER_RUN_H
#define GPUWM_TESTS_KEEPER_RUN_H

#include "harness.h"

#define KEEPER_MS 20000 /* anything a keeper or a service does takes less */

struct keeper {
	struct gpuwmd folder; /* of which only the folder is used */
	char log[96], control[96], program[96]; /* program: what runs in place of notify-service, when set */
	pid_t pid;
	int listener;
	int service; /* the connection of the running one */
	pid_t service_pid; /* as it sees itself */
	int64_t began_ns; /* when its main began, on CLOCK_MONOTONIC */
	char label[32];
	/* Set before keeper_spawn, for what is unusual: runs in the child before the exec. */
	void (*before_exec)(void);
};

/* A folder, no process yet. */
void keeper_prepare(struct keeper *k);
/* Starts gpuwm-keeper with these flags (end with NULL), and `command` (end with NULL; NULL: the service). */
void keeper_spawn(struct keeper *k, const char *const *flags, const char *const *command);
/* All three, and waits for the service. */
void keeper_start(struct keeper *k, const char *flag, ...);

/* Waits for the next start of the service. */
void service_wait(struct keeper *k);
/* Sends a command; service_ask waits for its answer too, which is valid until the next one. */
void service_tell(struct keeper *k, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *service_ask(struct keeper *k, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends it by SIGKILL, and waits for the next start. */
void service_crash(struct keeper *k);
/* Asserts that it is the one of the last service_wait, and no other was started. */
void service_runs(struct keeper *k);

/* How often the log says this. */
unsigned keeper_log_count(const struct keeper *k, const char *words);
/* Waits for the keeper's end: its exit status. */
int keeper_join(struct keeper *k);
void keeper_signal(const struct keeper *k, int number);
/* SIGTERM; asserts that it leaves with 0, and with no folder left. */
void keeper_stop(struct keeper *k);
/* The keeper's own children, zombies included. */
size_t keeper_children(const struct keeper *k);

/* A test after which the keeper is stopped, unless it has ended. The keeper knows no memory kinds: once is enough. */
#define KEEPER_TEST(suite, name, ...)                                                                          \
	static void suite##_##name(struct keeper *k);                                                          \
	Test(suite, name, ##__VA_ARGS__)                                                                       \
	{                                                                                                      \
		struct keeper k = {0};                                                                         \
		SKIP_UNLESS(backend() == BACKEND_HOST, "the keeper is the same on every memory kind");         \
		suite##_##name(&k);                                                                            \
		if (k.pid > 0)                                                                                 \
			keeper_stop(&k);                                                                       \
	}                                                                                                      \
	static void suite##_##name(struct keeper *k)

#define ASK_IS(k, expected, ...)                                                                               \
	({                                                                                                     \
		const char *answer_ = service_ask(k, __VA_ARGS__);                                             \
		cr_assert_str_eq(answer_, expected);                                                           \
	})

#endif
