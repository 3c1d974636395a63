#include "item.h"
#include "report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* A program that calls so often without an end is not looked at further. */
#define NUMBER_MAX 100000u
/* Of a program beside the stack, so many calls with one error, spread over all: gpuwm-peer has 30,000 allocations, which OpenSSL
 * makes. */
#define SPREAD_MAX 300u
/* A fault of a program that ends so many processes is told often enough. */
#define LOSSES_MAX 20u
/* For writing the report of a round that hangs. If the signal came while the C library had a lock, the report hangs, too. */
#define REPORT_SECONDS 30

/* Of this process, for the handler of SIGALRM. */
static const struct plan *plan_here;
static struct round round_here;
static struct stack stack_here;

static void on_alarm(int number)
{
	(void)number;
	alarm(REPORT_SECONDS);
	round_here.failed = false;
	round_fail(&round_here, "it hangs: %s", round_here.step);
	report_round(plan_here->report, &round_here);
	stack_remove(&stack_here);
	_exit(EXIT_HUNG);
}

unsigned plan_calls(const struct plan *plan, size_t scenario, enum program program, size_t fault)
{
	return fault_calls(&faults[fault], plan->board->counts[scenario][program]);
}

static bool is_wanted(const struct plan *plan, const struct item *item, size_t fault)
{
	if (item->call >= 0 ? (int)faults[fault].call != item->call : fault % item->ways != item->way)
		return false;
	if (plan->picks > 0 && !fault_is_first(&faults[fault]))
		return false;
	return plan_calls(plan, item->scenario, item->program, fault) > 0;
}

/* The same in every run, spread over the calls that there are. */
static unsigned picked_number(const struct plan *plan, const struct item *item, unsigned pick)
{
	unsigned calls = plan_calls(plan, item->scenario, item->program, item->fault);
	unsigned hash =
		((unsigned)item->scenario * 31 + item->program * 7 + (unsigned)item->fault) * 2654435761u;

	if (calls <= plan->picks)
		return pick <= calls ? pick : 0;
	return 1 + (unsigned)(((uint64_t)(hash >> 8) + (uint64_t)calls * (pick - 1) / plan->picks) % calls);
}

/* The n-th number of the item's fault; 0: there is none any more. */
static unsigned number_of_round(const struct plan *plan, const struct item *item)
{
	const unsigned calls = plan_calls(plan, item->scenario, item->program, item->fault);

	if (plan->only_number > 0)
		return item->number == 1 ? plan->only_number : 0;
	if (plan->picks > 0)
		return item->number <= plan->picks ? picked_number(plan, item, item->number) : 0;
	if (scenarios[item->scenario].words && calls > SPREAD_MAX)
		return item->number <= SPREAD_MAX
			       ? 1 + (unsigned)((uint64_t)(item->number - 1) * calls / SPREAD_MAX)
			       : 0;
	return item->number <= NUMBER_MAX ? item->number : 0;
}

/* True: the call was reached, so that there may be a next one. */
static bool run_round(const struct plan *plan, const struct item *item, unsigned number)
{
	struct tally *tally = &plan->board->tallies[item->scenario][item->program][item->fault];
	enum round_end end;
	bool struck;

	round_here = (struct round){.stack = &stack_here,
				    .scenario = &scenarios[item->scenario],
				    .program = item->program,
				    .fault = &faults[item->fault],
				    .number = number,
				    .step = "before the first step"};
	end = round_run(&round_here, &struck);
	if (end == ROUND_FAILED)
		report_round(plan->report, &round_here);
	tally->rounds += struck || end == ROUND_FAILED;
	if (struck || end == ROUND_FAILED)
		tally->ends[end]++;
	if (end == ROUND_FAILED || leaves_files(round_here.fault)) {
		stack_remove(&stack_here);
		if (!stack_make(&stack_here))
			_exit(EXIT_FAILURE);
	}
	return struck;
}

static void run_fault(const struct plan *plan, struct item *item)
{
	unsigned number;

	for (; (number = number_of_round(plan, item)) > 0; item->number++) {
		if (!run_round(plan, item, number) && plan->picks == 0)
			return;
	}
}

static int run_count(const struct plan *plan, const struct item *item)
{
	atomic_uint(*to)[CALL_COUNT][KIND_COUNT] = plan->board->counts[item->scenario];
	bool struck;

	round_here = (struct round){
		.stack = &stack_here, .scenario = &scenarios[item->scenario], .step = "counting"};
	if (round_run(&round_here, &struck) != ROUND_RIGHT) {
		round_fail(&round_here, "a step is refused without a fault");
		report_round(plan->report, &round_here);
		return EXIT_FAILURE;
	}
	memcpy(to, round_here.counts, sizeof round_here.counts);
	return EXIT_SUCCESS;
}

int item_run(const struct plan *plan, struct item *item)
{
	int r = EXIT_SUCCESS;

	/* The second signal ends the process. */
	const struct sigaction hung = {.sa_handler = on_alarm, .sa_flags = SA_NODEFER | SA_RESETHAND};

	plan_here = plan;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigaction(SIGALRM, &hung, NULL);
	round_here = (struct round){
		.stack = &stack_here, .scenario = &scenarios[item->scenario], .step = "beginning"};
	if (!stack_make(&stack_here) || !round_begin(&round_here)) {
		report_round(plan->report, &round_here);
		return EXIT_FAILURE;
	}
	if (item->call == ITEM_COUNTS)
		r = run_count(plan, item);
	for (; item->call != ITEM_COUNTS && item->fault < fault_count; item->fault++, item->number = 1) {
		if (is_wanted(plan, item, item->fault))
			run_fault(plan, item);
	}
	stack_remove(&stack_here);
	return r;
}

void item_lost(const struct plan *plan, struct item *item, int status)
{
	struct tally *tally = &plan->board->tallies[item->scenario][item->program][item->fault];

	if (status != EXIT_HUNG << 8)
		report_line(plan->report,
			    "FAIL %s: %s, %s of %s %u: the test's own process ended with status %#x",
			    scenarios[item->scenario].name, program_name(item->program),
			    strerrorname_np(faults[item->fault].error), call_name(faults[item->fault].call),
			    item->number, (unsigned)status);
	tally->rounds++;
	tally->ends[ROUND_FAILED]++;
	item->number++;
	if (++item->losses % LOSSES_MAX == 0) {
		item->fault++;
		item->number = 1;
	}
}
