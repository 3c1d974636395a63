#include "storm.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_MS 60000
#define LOOK_AGAIN_US 200

int64_t clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

void pause_us(uint64_t us)
{
	nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000},
		  NULL);
}

bool process_runs(pid_t pid)
{
	char path[32], state = 'X';
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 'X';
	fclose(file);
	return state != 'Z' && state != 'X';
}

/* ---- the seed ------------------------------------------------------------- */

/* How to repeat the storm that is under way; "": there is none. */
static char repeat[1024];

void storm_cleanup(void)
{
	if (repeat[0])
		fprintf(stderr, "A storm has failed. %s\n", repeat);
	harness_cleanup();
}

static uint64_t seed_new(void)
{
	uint32_t seed;

	cr_assert_eq(getrandom(&seed, sizeof seed, 0), (ssize_t)sizeof seed);
	return seed;
}

static void tell_how_to_repeat(const struct storm *s, const char *variable)
{
	static const char *const backends[] = {"host", "fakecuda", "cuda"};
	char libraries[300] = "";

	if (backend() == BACKEND_FAKECUDA)
		snprintf(libraries, sizeof libraries, " LD_LIBRARY_PATH=%s/fakecuda", build_path());
	snprintf(repeat, sizeof repeat,
		 "%s: seed %ju. To repeat it: GPUWM_STORM_SEED=%ju %s=%ju GPUWM_TEST_BACKEND=%s%s "
		 "%s/tests/system/system-tests --filter '%s/*'",
		 s->name, (uintmax_t)s->seed, (uintmax_t)s->seed, variable, (uintmax_t)s->length,
		 backends[backend()], libraries, build_path(), s->name);
	fprintf(stderr, "%s\n", repeat);
}

void storm_begin(struct storm *s, const char *name, const char *variable, uint64_t length)
{
	*s = (struct storm){.name = name, .length = number_wanted(variable, length)};
	s->seed = s->dice.state = number_wanted("GPUWM_STORM_SEED", seed_new());
	tell_how_to_repeat(s, variable);
}

void storm_end(struct storm *s)
{
	if (s->board)
		munmap(s->board, s->play->board_bytes);
	if (s->client)
		gpuwm_close(s->client);
	gpuwmd_stop_empty(s->d);
	storm_passed();
}

void storm_passed(void)
{
	repeat[0] = 0;
}

/* ---- gpuwmd --------------------------------------------------------------- */

void storm_serve(struct storm *s, const struct kept *how)
{
	s->d = gpuwmd_start_kept(how);
	s->client = client_new();
}

void storm_gpuwmd_is_back(struct storm *s)
{
	if (s->is_away)
		kept_wait(s->d);
	s->is_away = false;
}

void storm_gpuwmd_kill(struct storm *s)
{
	storm_gpuwmd_is_back(s);
	cr_assert(kill(s->d->pid, SIGKILL) == 0);
	s->gpuwmd_kills++;
	s->is_away = true;
}

/* ---- actors ---------------------------------------------------------------- */

void storm_actor_start(struct storm *s, unsigned actor)
{
	char number[16], seed[32];

	atomic_store(&s->board->told[actor].state, STORM_STARTING);
	s->starts++;
	if (s->play->starting)
		s->play->starting(s, actor);
	snprintf(number, sizeof number, "%u", actor);
	snprintf(seed, sizeof seed, "%ju", (uintmax_t)(s->seed * 1000003 + s->starts));
	s->actors[actor] = process_start(s->play->actor, s->path, number, seed, NULL);
}

void storm_actor_kill(struct storm *s, unsigned actor)
{
	int status;

	s->kills++;
	cr_assert(kill(s->actors[actor].pid, SIGKILL) == 0);
	status = process_join(&s->actors[actor]);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		  "an actor found something wrong before it was killed: status %#x", status);
}

void storm_actor_stop(struct storm *s, unsigned actor, uint64_t most_us)
{
	cr_assert(kill(s->actors[actor].pid, SIGSTOP) == 0);
	pause_us(dice_throw(&s->dice, most_us));
	cr_assert(kill(s->actors[actor].pid, SIGCONT) == 0);
	s->stops++;
}

/* In the folder of gpuwmd, which is removed at the end. */
static void board_make(struct storm *s)
{
	int fd;

	snprintf(s->path, sizeof s->path, "%s/board", s->d->dir);
	fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && ftruncate(fd, (off_t)s->play->board_bytes) == 0);
	s->board = mmap(NULL, s->play->board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert(s->board != MAP_FAILED);
	close(fd);
}

void storm_populate(struct storm *s, const struct storm_play *play)
{
	s->play = play;
	board_make(s);
	for (unsigned i = 0; i < play->actors; i++)
		storm_actor_start(s, i);
}

void storm_finish(struct storm *s)
{
	storm_gpuwmd_is_back(s);
	atomic_store(&s->board->finish, true);
	for (unsigned i = 0; i < s->play->actors; i++)
		process_finish(&s->actors[i]);
}

/* ---- loaders ---------------------------------------------------------------- */

static bool is_our_loader(const char *pid)
{
	static char environment[1 << 16];
	char path[300], program[512], run[64];
	ssize_t length;
	size_t got;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%s/exe", pid);
	length = readlink(path, program, sizeof program - 1);
	program[length > 0 ? length : 0] = 0;
	if (!strstr(program, "/gpuwm-loader"))
		return false;
	snprintf(path, sizeof path, "/proc/%s/environ", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	got = fread(environment, 1, sizeof environment, file);
	fclose(file);
	snprintf(run, sizeof run, "FAKECUDA_RUN=%s", getenv("FAKECUDA_RUN"));
	return memmem(environment, got, run, strlen(run) + 1);
}

unsigned storm_loaders(void)
{
	DIR *proc = opendir("/proc");
	unsigned count = 0;

	for (struct dirent *entry; (entry = readdir(proc));) {
		if (entry->d_name[0] > '0' && entry->d_name[0] <= '9')
			count += is_our_loader(entry->d_name);
	}
	closedir(proc);
	return count;
}

/* ---- going on --------------------------------------------------------------- */

/* An actor ends by itself only when it has found something wrong, and said so. */
static bool all_run(const struct storm *s)
{
	for (unsigned i = 0; i < s->play->actors; i++) {
		siginfo_t info = {0};

		waitid(P_PID, (id_t)s->actors[i].pid, &info, WEXITED | WNOHANG | WNOWAIT);
		if (info.si_pid != 0)
			return false;
	}
	return true;
}

void storm_wait(const struct storm *s, int64_t began_ms, const char *what)
{
	cr_assert(all_run(s), "an actor found something wrong");
	cr_assert(clock_ms() < began_ms + PROGRESS_MS, "nobody gets on: %s", what);
	pause_us(LOOK_AGAIN_US);
}

static unsigned parked_count(const struct storm *s)
{
	unsigned count = 0;

	for (unsigned i = 0; i < s->play->actors; i++)
		count += atomic_load(&s->board->told[i].state) == STORM_PARKED;
	return count;
}

void storm_check(struct storm *s)
{
	storm_gpuwmd_is_back(s);
	atomic_store(&s->board->park, true);
	STORM_UNTIL(s, parked_count(s) == s->play->actors);
	s->play->check(s);
	s->checks++;
	atomic_store(&s->board->park, false);
	STORM_UNTIL(s, parked_count(s) == 0);
}

void storm_go_on(struct storm *s, uint64_t until)
{
	uint64_t at = atomic_load(&s->board->operations);

	while (at < until) {
		at += 1 + dice_throw(&s->dice, s->play->burst);
		at = at < until ? at : until;
		atomic_store(&s->board->granted, until - at < s->play->beyond ? until : at + s->play->beyond);
		STORM_UNTIL(s, atomic_load(&s->board->operations) >= at);
		s->play->strike(s);
	}
	STORM_UNTIL(s, atomic_load(&s->board->operations) >= until);
}

void storm_run(struct storm *s)
{
	for (uint64_t at = s->play->check_each; at <= s->length; at += s->play->check_each) {
		storm_go_on(s, at);
		storm_check(s);
	}
}

/* ---- users -------------------------------------------------------------------- */

void storm_check_users(const struct storm *s, const struct control *control, const struct gpuwm_region *region)
{
	struct gpuwm_region_info info;
	uint32_t wanted;

	gpuwm_region_info(region, &info);
	wanted = 1u << info.slot;
	for (unsigned i = 0; i < s->play->actors; i++)
		wanted |= 1u << atomic_load(&s->board->told[i].slot);
	cr_assert(EVENTUALLY(STORM_SETTLE_MS, control_users(control) == wanted), "users %#x are there, not %#x",
		  control_users(control), wanted);
}

/* ---- what it was like ----------------------------------------------------------- */

static void tell_operation(const struct storm *s, unsigned operation)
{
	uint64_t done = 0, refused = 0;

	for (unsigned i = 0; i < s->play->actors; i++) {
		done += s->board->told[i].done[operation];
		refused += s->board->told[i].refused[operation];
	}
	fprintf(stderr, "  %-9s %7ju done, %7ju refused\n", s->play->operations[operation].name,
		(uintmax_t)done, (uintmax_t)refused);
}

void storm_tell(const struct storm *s)
{
	fprintf(stderr, "%s: %ju operations, %u kills, %u of gpuwmd, %u stops, %u checks\n", s->name,
		(uintmax_t)s->board->operations, s->kills, s->gpuwmd_kills, s->stops, s->checks);
	for (unsigned i = 0; s->play->operations[i].name; i++)
		tell_operation(s, i);
}

/* ---- workers beside one that does harm -------------------------------------- */

static struct process numbered(process_fn *fn, uint64_t seed, unsigned number)
{
	char seed_text[32], number_text[16];

	snprintf(seed_text, sizeof seed_text, "%ju", (uintmax_t)(seed + number));
	snprintf(number_text, sizeof number_text, "%u", number);
	return process_start(fn, seed_text, number_text, NULL);
}

void storm_harm(process_fn *worker, unsigned workers, process_fn *harmful, uint64_t seed)
{
	struct process processes[STORM_ACTORS + 1];

	for (unsigned i = 0; i <= workers; i++)
		processes[i] = numbered(i < workers ? worker : harmful, seed, i);
	for (unsigned i = 0; i <= workers; i++)
		process_expect(&processes[i], 'o');
	for (unsigned i = 0; i <= workers; i++)
		process_tell(&processes[i], 'g');
	for (unsigned i = 0; i < workers; i++)
		process_finish(&processes[i]);
	process_kill(&processes[workers], SIGKILL);
}
