/* Lets the n-th call of gpuwmd, gpuwm-keeper and gpuwm-loader, or of a program beside them, fail, for n = 1, 2, 3 and so on until a round goes by in
 * which the call was not reached, and looks at what becomes of it:
 *   faults [--short] [--stack] [--tools] [--jobs N] [--scenario NAME] [--program NAME] [--call NAME [--number N]]
 * --stack leaves the programs beside the stack out, --tools has them alone.
 * GPUWM_BUILD names the tree with bin/. Failures are listed in GPUWM_BUILD/faults.txt, and told at the end. */
#include "item.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ITEMS_MAX (SCENARIOS_MAX * PROGRAM_COUNT * CALL_COUNT)
#define JOBS_MAX 64
#define FAILURES_SHOWN 50
/* Of each call in a short run, for each program and scenario. */
#define SHORT_PICKS 1
/* A short run's items: few, so that stacks are started seldom, and more than one for each program and scenario, since a
 * round in which a loader dies takes LOADER_RETRY_MS. */
#define SHORT_WAYS 4
/* Rounds wait most of the time: so many at once for a processor. */
#define JOBS_PER_PROCESSOR 4

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif
#define EXIT_SKIPPED 77 /* scripts/run-tests */

struct wishes {
	bool is_short, no_stack, no_tools;
	unsigned jobs, number;
	const char *scenario, *program, *call;
};

struct work {
	struct plan plan;
	struct item *items; /* in shared memory */
	size_t count;
	unsigned lost; /* items that could not be run */
};

/* ---- side by side ----------------------------------------------------- */

static pid_t item_start(const struct work *work, size_t number)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(item_run(&work->plan, &work->items[number]));
	return pid;
}

static void item_over(struct work *work, size_t number, int status)
{
	const struct item *item = &work->items[number];

	if (status == 0)
		return;
	if (item->call == ITEM_COUNTS) {
		fprintf(stderr, "%s fails without a fault: status %#x\n", scenarios[item->scenario].name,
			(unsigned)status);
		work->lost++;
		return;
	}
	item_lost(&work->plan, &work->items[number], status);
}

/* Runs all items, `jobs` of them at a time, each in a process of its own. If a process is lost, another one continues
 * its item. */
static void work_all(struct work *work, unsigned jobs)
{
	struct {
		pid_t pid;
		size_t item;
	} running[JOBS_MAX] = {{0}};
	size_t next = 0, left = work->count;

	while (left > 0) {
		int status;
		pid_t pid;

		for (unsigned i = 0; i < jobs && next < work->count; i++) {
			if (running[i].pid == 0) {
				running[i].item = next;
				running[i].pid = item_start(work, next++);
			}
		}
		pid = wait(&status);
		for (unsigned i = 0; i < jobs; i++) {
			if (running[i].pid != pid)
				continue;
			item_over(work, running[i].item, status);
			running[i].pid = 0;
			if (status == 0 || work->items[running[i].item].call == ITEM_COUNTS)
				left--;
			else
				running[i].pid = item_start(work, running[i].item);
		}
	}
	work->count = 0;
}

/* ---- what is to be done ----------------------------------------------- */

static struct item *add(struct work *work, size_t scenario, enum program program, int call)
{
	struct item *item = &work->items[work->count++];

	*item = (struct item){.scenario = scenario, .program = program, .call = call, .number = 1};
	return item;
}

static bool is_meant(const char *wish, const char *name)
{
	return !wish || strcmp(wish, name) == 0;
}

static bool is_meant_scenario(const struct wishes *wishes, size_t scenario)
{
	return is_meant(wishes->scenario, scenarios[scenario].name) &&
	       !(scenarios[scenario].words ? wishes->no_tools : wishes->no_stack);
}

static void add_counts(struct work *work, const struct wishes *wishes)
{
	for (size_t i = 0; i < scenario_count; i++) {
		if (is_meant_scenario(wishes, i))
			add(work, i, PROGRAM_GPUWMD, ITEM_COUNTS);
	}
}

static void add_program(struct work *work, const struct wishes *wishes, size_t scenario, enum program program)
{
	bool few = wishes->is_short && !wishes->call;

	for (unsigned way = 0; few && way < SHORT_WAYS; way++) {
		struct item *item = add(work, scenario, program, ITEM_ALL_CALLS);

		item->way = way;
		item->ways = SHORT_WAYS;
	}
	for (int call = 0; !few && call < CALL_COUNT; call++) {
		if (is_meant(wishes->call, call_name((enum call)call)))
			add(work, scenario, program, call);
	}
}

/* Where a program beside the stack is run, only its calls fail: those of the stack do in its own scenarios. */
static bool is_reached(const struct work *work, size_t scenario, enum program program)
{
	if (scenarios[scenario].words ? program != scenarios[scenario].of : program >= PROGRAM_CTL)
		return false;
	for (size_t fault = 0; fault < fault_count; fault++) {
		if (plan_calls(&work->plan, scenario, program, fault) > 0)
			return true;
	}
	return false;
}

static void add_rounds(struct work *work, const struct wishes *wishes)
{
	for (size_t i = 0; i < scenario_count; i++) {
		for (int program = 0; program < PROGRAM_COUNT; program++) {
			if (is_meant_scenario(wishes, i) &&
			    is_meant(wishes->program, program_name((enum program)program)) &&
			    is_reached(work, i, (enum program)program))
				add_program(work, wishes, i, (enum program)program);
		}
	}
}

/* ---- the table -------------------------------------------------------- */

struct row {
	unsigned calls;
	struct tally tally;
};

static void row_add(struct row *row, const struct row *more)
{
	row->calls += more->calls;
	row->tally.rounds += more->tally.rounds;
	for (int i = 0; i <= ROUND_FAILED; i++)
		row->tally.ends[i] += more->tally.ends[i];
}

static void row_print(const char *program, const char *call, const struct row *row)
{
	const unsigned *ends = row->tally.ends;

	printf("%-13s %-15s %7u %7u %7u %7u %7u %7u\n", program, call, row->calls, row->tally.rounds,
	       ends[ROUND_RIGHT], ends[ROUND_REFUSED], ends[ROUND_ENDED], ends[ROUND_FAILED]);
}

/* Of all scenarios. */
static struct row row_of(const struct plan *plan, enum program program, enum call call)
{
	struct row row = {.calls = 0};

	for (size_t i = 0; i < scenario_count; i++) {
		for (size_t fault = 0; fault < fault_count; fault++) {
			struct row one = {.tally = plan->board->tallies[i][program][fault]};

			if (faults[fault].call != call)
				continue;
			if (fault_is_first(&faults[fault]))
				one.calls = plan_calls(plan, i, program, fault);
			row_add(&row, &one);
		}
	}
	return row;
}

static struct row table_print(const struct plan *plan)
{
	struct row all = {.calls = 0};

	printf("%-13s %-15s %7s %7s %7s %7s %7s %7s\n", "program", "call", "calls", "rounds", "right",
	       "refused", "ended", "failed");
	for (int program = 0; program < PROGRAM_COUNT; program++) {
		for (int call = 0; call < CALL_COUNT; call++) {
			struct row row = row_of(plan, (enum program)program, (enum call)call);

			if (row.tally.rounds > 0)
				row_print(program_name((enum program)program), call_name((enum call)call),
					  &row);
			row_add(&all, &row);
		}
	}
	row_print("all", "", &all);
	return all;
}

/* ---- the program ------------------------------------------------------ */

static int usage(void)
{
	fputs("usage: faults [--short] [--stack] [--tools] [--jobs N] [--scenario NAME] [--program NAME] [--call NAME [--number N]]\n",
	      stderr);
	return 2;
}

static bool parse(struct wishes *ret, int argc, char **argv)
{
	static const struct option options[] = {{"short", no_argument, NULL, 's'},
						{"stack", no_argument, NULL, 'S'},
						{"tools", no_argument, NULL, 'T'},
						{"jobs", required_argument, NULL, 'j'},
						{"scenario", required_argument, NULL, 'c'},
						{"program", required_argument, NULL, 'p'},
						{"call", required_argument, NULL, 'f'},
						{"number", required_argument, NULL, 'n'},
						{0}};
	int option;

	*ret = (struct wishes){.jobs = JOBS_PER_PROCESSOR * (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's':
			ret->is_short = true;
			break;
		case 'S':
			ret->no_tools = true;
			break;
		case 'T':
			ret->no_stack = true;
			break;
		case 'j':
			ret->jobs = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'c':
			ret->scenario = optarg;
			break;
		case 'p':
			ret->program = optarg;
			break;
		case 'f':
			ret->call = optarg;
			break;
		case 'n':
			ret->number = (unsigned)strtoul(optarg, NULL, 10);
			break;
		default:
			return false;
		}
	}
	if (ret->jobs > JOBS_MAX)
		ret->jobs = JOBS_MAX;
	return optind == argc && ret->jobs > 0;
}

static void *shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(EXIT_FAILURE);
	}
	return memory;
}

static int report_open(char *ret_path, size_t size)
{
	int file;

	snprintf(ret_path, size, "%s/faults.txt", getenv("GPUWM_BUILD"));
	file = open(ret_path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
	if (file < 0) {
		perror(ret_path);
		exit(EXIT_FAILURE);
	}
	return file;
}

/* The first of the failures, without their traces. */
static void failures_print(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[1024];
	unsigned count = 0;

	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, "FAIL ", 5) == 0 && ++count <= FAILURES_SHOWN)
			fputs(line, stdout);
	}
	if (file)
		fclose(file);
	printf("all %u, where, and what was said: %s\n", count, path);
}

int main(int argc, char **argv)
{
	struct work work = {.items = shared(ITEMS_MAX * sizeof(struct item))};
	struct wishes wishes;
	char path[512];
	struct row all;
	int64_t began = clock_ms();

	if (!parse(&wishes, argc, argv) || !getenv("GPUWM_BUILD"))
		return usage();
	if (SANITIZED) {
		puts("calls do not fail under a sanitizer: it has functions of its own in place of libc's");
		return EXIT_SKIPPED;
	}
	work.plan = (struct plan){.board = shared(sizeof(struct board)),
				  .picks = wishes.is_short ? SHORT_PICKS : 0,
				  .only_number = wishes.number,
				  .report = report_open(path, sizeof path)};
	add_counts(&work, &wishes);
	work_all(&work, wishes.jobs);
	add_rounds(&work, &wishes);
	work_all(&work, wishes.jobs);
	all = table_print(&work.plan);
	printf("%u rounds in %jd s\n", all.tally.rounds, (intmax_t)(clock_ms() - began) / 1000);
	if (all.tally.rounds > 0 && all.tally.ends[ROUND_FAILED] == 0 && work.lost == 0)
		return EXIT_SUCCESS;
	failures_print(path);
	return EXIT_FAILURE;
}
