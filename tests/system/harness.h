/* What the system tests stand on: real programs, real sockets, real kills.
 *
 * Environment: GPUWM_BUILD (the tree with bin/; default: two levels above this
 * program's folder), GPUWM_TEST_BACKEND (host, fakecuda, cuda), GPUWM_TEST_LOADER (spawn: gpuwmd
 * starts its loaders; socket: a service does).
 */
#ifndef GPUWM_TESTS_HARNESS_H
#define GPUWM_TESTS_HARNESS_H

#include <gpuwm/client.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#define KB(n) ((uint64_t)(n) << 10)
#define MB(n) ((uint64_t)(n) << 20)

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* Every suite's .fini: ends what a failed test left and removes its folder. */
void harness_cleanup(void);
#define SYSTEM_SUITE(name) TestSuite(name, .fini = harness_cleanup)
/* Criterion calls no fini after a skip: ends what was started, removes the folders, and skips the test. */
_Noreturn void skip(const char *why);

int64_t clock_ms(void);
/* The pause between two looks at what other processes change: an eighth of the time since the first look, from 1 to 10 ms. So
 * a long wait costs few looks, and its end is seen soon. */
void poll_pause(int64_t began_ms);
/* A bounded poll. */
#define EVENTUALLY(ms, condition)                                                                              \
	({                                                                                                     \
		int64_t began_ = clock_ms();                                                                   \
		bool holds_;                                                                                   \
		while (!(holds_ = (condition)) && clock_ms() < began_ + (ms))                                  \
			poll_pause(began_);                                                                    \
		holds_;                                                                                        \
	})

/* How long a test waits for what takes milliseconds, on a machine that is busy with all else. Less than
 * GRACE_MS and LOADER_EXIT_MS, at whose end it would come too. */
#define SOON_MS 8000
/* The same for a load, which reads and writes megabytes and may have to wait for other versions to move. */
#define LOAD_MS 60000

/* Asserts that a library call did not fail, and tells its error. */
#define OK(call)                                                                                               \
	({                                                                                                     \
		int ok_result_ = (call);                                                                       \
		cr_assert(ok_result_ >= 0, "%s: %s (%s)", #call, gpuwm_error()->message,                       \
			  gpuwm_error()->detail);                                                              \
		ok_result_;                                                                                    \
	})
/* Asserts that a library call failed with this errno, and said something. */
#define FAILS(errno_, call)                                                                                    \
	({                                                                                                     \
		int fails_result_ = (call);                                                                    \
		cr_assert(fails_result_ == -(errno_), "%s: %d instead of -%s: %s", #call, fails_result_,       \
			  #errno_, fails_result_ < 0 ? gpuwm_error()->message : "no error");                   \
		cr_assert(gpuwm_error()->message[0], "%s: no message", #call);                                 \
	})

/* ---- backends --------------------------------------------------------- */

enum backend { BACKEND_HOST, BACKEND_FAKECUDA, BACKEND_CUDA };
enum backend backend(void);
const char *build_path(void);
/* Whether this user may run the programs of the build, which may lie below /root. Needs root. */
bool build_is_open_to(uid_t uid);
#define SKIP_UNLESS(condition, why)                                                                            \
	do {                                                                                                   \
		if (!(condition))                                                                              \
			skip(why);                                                                             \
	} while (0)
#define NEEDS_ROOT() SKIP_UNLESS(geteuid() == 0, "only root can be somebody else")
#define ON_FAKECUDA() SKIP_UNLESS(backend() == BACKEND_FAKECUDA, "needs the stand-in for the driver")

/* ---- the daemon ------------------------------------------------------- */

/* A child that runs one function in a fresh image of this program, with a pipe each way. */
struct process {
	pid_t pid;
	int to, from;
	int pidfd;
};

struct gpuwmd {
	pid_t pid;
	pid_t keeper; /* 0: there is none; see kept.h */
	char dir[64]; /* short: a socket's path has 108 bytes */
	char socket[96], admin_socket[96], log[96];
	char root[96]; /* the configured model root */
	char loader_socket[96]; /* where a service's loaders are */
	struct process service; /* that starts them; pid 0: none */
	char device[64]; /* host, or the first GPU's UUID */
	struct gpuwm_client *admin;
	size_t fds; /* open in the idle daemon */
	size_t keeper_fds; /* the same of the keeper */
	char instance[33]; /* of this pid; with a keeper only */
	bool stopped;
};

/* A folder of its own below /tmp, with root/ in it; removed by harness_cleanup. */
void folder_make(struct gpuwmd *ret);
/* Starts a daemon in a fresh folder with these flags (end with NULL) besides
 * its sockets and root, waits until it serves and its loader stands by, and
 * sets GPUWM_SOCKET. On a GPU stand-in it gets a machine of its own. */
struct gpuwmd *gpuwmd_start(const char *flag, ...);
/* The same in a folder that exists, with the service for its loaders that runs, without waiting:
 * the process. */
pid_t gpuwmd_spawn(const struct gpuwmd *d, const char *const *flags);
/* The same, by a program of these words (end with NULL) that is to run it. */
pid_t gpuwmd_spawn_by(const struct gpuwmd *d, const char *const *words, const char *const *flags);
/* A daemon that harness_cleanup ends and frees, with a folder of its own. */
struct gpuwmd *gpuwmd_new(void);
void gpuwmd_wait(struct gpuwmd *d);
/* Asserts that no lease, publish, waiting request, foreign session or
 * descriptor is left besides those of the versions that are there, stops it
 * and asserts that it left with 0. Idle loaders that gpuwmd would end in seconds
 * are killed: idle checkers, and those that stand by beyond the first. */
void gpuwmd_stop(struct gpuwmd *d);
/* The same after everything was retired: no version either. */
void gpuwmd_stop_empty(struct gpuwmd *d);

/* A test of a gpuwmd `d`: `start` is the expression that starts it, and `stop` the function that stops it after the test's
 * body. GPUWMD_TEST is for a gpuwmd without flags, in whose body the test drops its versions. */
#define GPUWMD_TEST_BY(suite, name, start, stop) GPUWMD_TEST_IF(suite, name, (void)0, start, stop)
#define GPUWMD_TEST(suite, name) GPUWMD_TEST_BY(suite, name, gpuwmd_start(NULL), gpuwmd_stop_empty)
/* The same on the stand-in for the driver only. */
#define FAKECUDA_TEST(suite, name, start, stop) GPUWMD_TEST_IF(suite, name, ON_FAKECUDA(), start, stop)
#define GPUWMD_TEST_IF(suite, name, condition, start, stop)                                                    \
	static void suite##_##name(struct gpuwmd *d);                                                          \
	Test(suite, name)                                                                                      \
	{                                                                                                      \
		struct gpuwmd *d;                                                                              \
                                                                                                               \
		condition;                                                                                     \
		d = start;                                                                                     \
		suite##_##name(d);                                                                             \
		stop(d);                                                                                       \
	}                                                                                                      \
	static void suite##_##name(struct gpuwmd *d __attribute__((unused)))

struct gpuwm_client *client_new(void);
struct gpuwm_client *admin_new(void);

/* A number of `status`. */
uint64_t status_of(struct gpuwmd *d, const char *key);
/* Bytes that versions hold: pages of the daemon's memfds on host, what is
 * granted of the device else. */
uint64_t memory_of(struct gpuwmd *d);
/* A number of the entry of d->device in `status`. device_used is of versions, without the contexts of loaders. */
uint64_t device_number(struct gpuwmd *d, const char *key);
uint64_t device_used(struct gpuwmd *d);
size_t fds_of(pid_t pid);
/* The daemon's own, once no loader comes or goes. */
size_t fds_settled(struct gpuwmd *d);
/* The pid of the checker at this position of those that are idle and stay for the next check of their user; 0: there is none. */
pid_t checker_at(struct gpuwmd *d, size_t position);
/* Kills these checkers, whose time would end them in seconds. Returns true if there was none. */
bool checkers_end(struct gpuwmd *d);
uint64_t rss_of(pid_t pid);
size_t children_of(pid_t pid, pid_t *ret_pids, size_t max);
/* Whether the process is there, and its name begins so. The kernel cuts names after 15 bytes. */
bool process_is_named(pid_t pid, const char *beginning);
/* The daemon's children, and those of its service where it has one. */
#define CHILDREN_MAX 32
size_t loaders_of(pid_t pid, pid_t ret_pids[CHILDREN_MAX]);
void loaders_kill(struct gpuwmd *d, int signal_number);
/* A service like systemd's at d->loader_socket: it starts a loader a connection, for this user only, which
 * reads its roots from a file. service_stop ends it and leaves its loaders, and its socket's file. */
void service_start(struct gpuwmd *d);
void service_start_for(struct gpuwmd *d, uid_t user);
void service_stop(struct gpuwmd *d);
/* True when the log of gpuwmd and its loaders has these words. */
bool log_says(const struct gpuwmd *d, const char *words);
/* A version's entry in `list`; NULL. json_decref it. */
json_t *version_entry(struct gpuwmd *d, const char *model, const char *tag);
bool version_is(struct gpuwmd *d, const char *model, const char *tag, const char *state);
json_t *query(struct gpuwm_client *client, const char *method, const char *filter);

/* Loads with the admin client and waits. */
void load_version(struct gpuwmd *d, const char *source, const char *name);
/* Writes and loads m@v1, m@v2 and so on, `count` of them. m@v1 has the content SMALL(1). */
void load_small(struct gpuwmd *d, unsigned count);
/* Loads m@v1, which is current, and m@v2. m@v2 gets the pin `night`, and the alias `prod`, which has moved from m@v1. */
void load_scene(struct gpuwmd *d);
/* Loads m@v1, which is current, and m@v2. Returns d. */
struct gpuwmd *with_two_versions(struct gpuwmd *d);
int load_try(struct gpuwmd *d, const char *source, const char *name);
/* Begins a load with these options on d->device. */
int load_on_device(struct gpuwmd *d, struct gpuwm_load_options options, uint64_t *ret_job);
int load_start(struct gpuwmd *d, const char *source, const char *name, const char *alias, uint64_t *ret_job);
/* 0 or the error of swapping `current`. */
int swap_to(struct gpuwmd *d, const char *model, const char *to, bool retire_old);
/* Removes the aliases of a model, retires this version of it and waits until it is freed. */
void version_drop(struct gpuwmd *d, const char *model, const char *tag);
/* The same of each of these names ("m@v1"), in this order. */
void versions_drop(struct gpuwmd *d, const char *const *names);
#define DROP(d, ...) versions_drop((d), (const char *const[]){__VA_ARGS__, NULL})

/* ---- bytes ------------------------------------------------------------ */

/* What tensor `name` of the checkpoint `seed` holds from `offset` on. */
void content_fill(uint64_t seed, const char *name, uint64_t offset, void *data, uint64_t bytes);
/* True when every tensor of the mapping holds what checkpoint `seed` has. */
bool mapping_holds(const struct gpuwm_mapping *mapping, uint64_t seed);
bool tensor_holds(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor, uint64_t seed);

/* The tensors of a test checkpoint: `count` matrices "layer.000.weight" (F32)
 * of `bytes` each, and "matrix" (BF16), "scalar" (F32), "empty" (I64). */
struct checkpoint {
	uint64_t seed;
	unsigned count;
	uint64_t bytes; /* of each; a multiple of 256 */
};
unsigned checkpoint_tensors(const struct checkpoint *c);
/* Shapes stay valid until the next call. */
void checkpoint_specs(const struct checkpoint *c, struct gpuwm_tensor_spec *ret_specs);
uint64_t checkpoint_bytes(const struct checkpoint *c);
/* Writes d->root/NAME.safetensors; the path is valid until the next call. */
const char *checkpoint_write(struct gpuwmd *d, const char *name, const struct checkpoint *c);
/* The same, but one bit of the byte that lies so far into the tensors' data. */
const char *checkpoint_write_flipped(struct gpuwmd *d, const char *name, const struct checkpoint *c,
				     uint64_t offset);
/* Writes a file of these bytes beneath the root, making folders; the same. */
const char *file_write(struct gpuwmd *d, const char *name, const void *data, size_t bytes);
/* A safetensors file of this header text and `bytes` zero bytes of data. */
const char *safetensors_write(struct gpuwmd *d, const char *name, const char *header, size_t bytes);
#define SMALL(seed_) (&(const struct checkpoint){.seed = (seed_), .count = 6, .bytes = KB(64)})
#define LARGE(seed_) (&(const struct checkpoint){.seed = (seed_), .count = 16, .bytes = MB(4)})

/* Publishes; the error of the step that failed. */
int publish_begin(struct gpuwm_client *client, const char *device, const char *name, const struct checkpoint *c,
		  struct gpuwm_publish **ret_publish);
int publish_begin_with(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
		       const struct checkpoint *c, struct gpuwm_publish **ret_publish);
int publish_fill(struct gpuwm_publish *publish, const struct checkpoint *c);
int publish_version(struct gpuwm_client *client, const char *device, const char *name,
		    const struct checkpoint *c);

/* ---- processes -------------------------------------------------------- */

/* The programs that the test starts from now on load tests/preload/NAME.so first. NULL: no library of the test's. After it they
 * load what LD_PRELOAD named when the test began. An ordinary user's programs always load dumpable.so too: without it only root
 * may look into gpuwmd. */
void preload(const char *name);

typedef int process_fn(int argc, char **argv);

/* Starts it with these texts (end with NULL). It dies with the test. */
struct process process_start(process_fn *fn, ...);
/* Waits for the child's next word, which must come. */
char process_hear(struct process *p);
/* The same, and it must be `word`. */
void process_expect(struct process *p, char word);
void process_tell(struct process *p, char word);
/* Waits for its end: the wait status. Also closes the pipes. */
int process_join(struct process *p);
/* Joins and asserts exit code 0. */
void process_finish(struct process *p);
void process_kill(struct process *p, int signal_number);
/* True when it died by the memory fault that was asked for. */
bool died_of_fault(int status);

/* In a child, on a GPU: a context for as long as the process, as workers have. Without one each
 * reading of a mapping makes its own, and the driver makes only a few a second. */
void child_keeps_context(void);
/* In the child: its ends of the pipes, for more than words. */
enum { CHILD_IN = 3, CHILD_OUT = 4 };
/* In the child: says a word; waits for one (0 when the test is gone). */
void child_say(char word);
char child_hear(void);
/* In the child: ends it with a message. */
#define CHILD_ASSERT(condition)                                                                                \
	do {                                                                                                   \
		if (!(condition))                                                                              \
			child_fail(__FILE__, __LINE__, #condition);                                            \
	} while (0)
void child_fail(const char *file, int line, const char *what) __attribute__((noreturn));

/* argv: ref, device ("" or what to ask for), seed. Attaches, says 'a', waits for
 * a word, verifies all bytes and ends: 'd' by detaching, 'e' without. */
int worker_hold(int argc, char **argv);
struct process worker_start(struct gpuwmd *d, const char *ref, uint64_t seed);
/* Runs worker_hold on `ref` in a child of its own, which detaches, and asserts that it found all bytes of checkpoint
 * `seed`. */
void worker_reads(struct gpuwmd *d, const char *ref, uint64_t seed);

/* Runs gpuwmctl with these arguments (end with NULL): the exit code, and its
 * output and errors in ret (up to size). */
int ctl(char *ret_output, size_t size, const char *argument, ...);
/* The same into `output`, without a NULL at the end of the arguments. */
extern char output[65536];
#define CTL(...) ctl(output, sizeof output, __VA_ARGS__, NULL)
#define CTL_IS(code, ...) cr_assert_eq(CTL(__VA_ARGS__), code, "%s", output)
#define SAYS(words) cr_assert(strstr(output, words), "no \"%s\" in: %s", words, output)
/* The same in two steps: one that runs, and its wait status. */
struct ctl_run {
	pid_t pid;
	int from;
};
struct ctl_run ctl_start(const char *argument, ...);
int ctl_join(struct ctl_run *run, char *ret_output, size_t size);
/* The same into `output`, and it must end with this exit code. */
void ctl_ends(struct ctl_run *run, int code);

#endif
