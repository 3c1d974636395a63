/* What gpuwm_name_faults says of a write into read-only memory, and what becomes of other faults. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>

#include "tests/support/lib/dlpack.h"

#define EXIT_OF_HANDLER 7

static void setup(void)
{
	export_start_on("host");
}

static void teardown(void)
{
	gpuwm_close(client);
	fake_stop(fake);
}

TestSuite(fault, .init = setup, .fini = teardown, .timeout = 60);

static char said[1024]; /* by the child, on standard error */

/* What a child of this process ends with that does something, as waitpid tells. */
static int end_of(void (*act)(void *data), void *data)
{
	int ends[2], status = 0;
	ssize_t bytes;
	pid_t child;

	cr_assert(eq(int, pipe(ends), 0));
	child = fork();
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		act(data);
		_exit(0);
	}
	close(ends[1]);
	bytes = read(ends[0], said, sizeof(said) - 1);
	said[bytes > 0 ? bytes : 0] = '\0';
	close(ends[0]);
	cr_assert(eq(int, waitpid(child, &status, 0), child));
	return status;
}

static void name_faults_and_write(void *address)
{
	signal(SIGSEGV, SIG_DFL); /* a sanitizer's own handler would only exit */
	gpuwm_name_faults(NULL);
	gpuwm_name_faults("nothing"); /* once more changes nothing */
	*(volatile char *)address = 1;
}

static void handle(int number)
{
	(void)number;
	_exit(EXIT_OF_HANDLER);
}

static void handle_with_info(int number, siginfo_t *info, void *context)
{
	(void)context;
	_exit(number == SIGSEGV && info->si_addr ? EXIT_OF_HANDLER : 0);
}

static void write_with_a_handler(void *address)
{
	signal(SIGSEGV, handle);
	gpuwm_name_faults(NULL);
	*(volatile char *)address = 1;
}

static void write_with_a_handler_of_three_arguments(void *address)
{
	struct sigaction action = {.sa_sigaction = handle_with_info, .sa_flags = SA_SIGINFO};

	sigaction(SIGSEGV, &action, NULL);
	gpuwm_name_faults(NULL);
	*(volatile char *)address = 1;
}

static void send_to_oneself(void *unused)
{
	(void)unused;
	signal(SIGSEGV, SIG_DFL);
	gpuwm_name_faults(NULL);
	kill(getpid(), SIGSEGV);
	pause();
}

static struct gpuwm_tensor find(const struct gpuwm_mapping *mapping, const char *name)
{
	struct gpuwm_tensor tensor;

	cr_assert(eq(int, gpuwm_tensor_find(mapping, name, &tensor), 0));
	return tensor;
}

static void names(void *address, const char *what)
{
	char expected[256];

	snprintf(expected, sizeof(expected),
		 "gpuwm: SIGSEGV: a write into %s, which is shared and read-only: "
		 "write into a copy, or attach with private_writes\n",
		 what);
	cr_assert(eq(int, end_of(name_faults_and_write, address), SIGSEGV));
	cr_assert(eq(str, (char *)said, expected));
}

static void name_faults_in_other_words(void *address)
{
	signal(SIGSEGV, SIG_DFL);
	gpuwm_name_faults("writes=\"private\"");
	*(volatile char *)address = 1;
}

Test(fault, names_the_tensor_and_the_version)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	const char *const all[] = {"a", "b", "c"};
	char what[64];

	for (size_t i = 0; i < 3; i++) {
		struct gpuwm_tensor tensor = find(mapping, all[i]);

		snprintf(what, sizeof(what), "tensor %s of m@v1", all[i]);
		names((void *)tensor.data, what);
		names((char *)tensor.data + tensor.bytes - 1, what);
	}
	gpuwm_detach(mapping);
}

Test(fault, says_how_the_program_asks_for_private_writes)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	cr_assert(eq(int, end_of(name_faults_in_other_words, (void *)find(mapping, "a").data), SIGSEGV));
	cr_assert(strstr(said, "or attach with writes=\"private\"\n") != NULL, "%s", said);
	gpuwm_detach(mapping);
}

Test(fault, names_the_version_that_is_there_after_a_switch)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	names((void *)find(mapping, "c").data, "tensor c of m@v2");
	gpuwm_detach(mapping);
}

Test(fault, names_a_tensor_of_a_part_of_the_segments)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	const char *const globs[] = {"c"};
	struct gpuwm_mapping *mapping;

	options.globs = globs;
	options.glob_count = 1;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0), "%s", gpuwm_error()->message);
	names((void *)find(mapping, "c").data, "tensor c of m@v1");
	gpuwm_detach(mapping);
}

Test(fault, tells_the_padding_from_the_tensors)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor first = find(mapping, "a");

	names((char *)first.data + first.bytes, "the padding between tensors of m@v1");
	gpuwm_detach(mapping);
}

Test(fault, leaves_other_faults_as_they_are)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	cr_assert(eq(int, end_of(name_faults_and_write, (void *)16), SIGSEGV));
	cr_assert(eq(str, said, ""));
	/* Read-only, and not the library's. */
	cr_assert(eq(int, end_of(name_faults_and_write, (void *)"constant"), SIGSEGV));
	cr_assert(eq(str, said, ""));
	cr_assert(eq(int, end_of(send_to_oneself, NULL), SIGSEGV));
	cr_assert(eq(str, said, ""));
	gpuwm_detach(mapping);
}

Test(fault, calls_the_handler_that_was_there_before)
{
	void (*const writes[])(void *) = {write_with_a_handler, write_with_a_handler_of_three_arguments};
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	void *data = (void *)find(mapping, "a").data;

	for (size_t i = 0; i < 2; i++) {
		cr_assert(eq(int, end_of(writes[i], data), EXIT_OF_HANDLER << 8));
		cr_assert(strstr(said, "tensor a of m@v1") != NULL);
		cr_assert(eq(int, end_of(writes[i], (void *)16), EXIT_OF_HANDLER << 8));
		cr_assert(eq(str, said, ""));
	}
	gpuwm_detach(mapping);
}

Test(fault, says_nothing_where_writes_are_private)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	options.private_writes = true;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, end_of(name_faults_and_write, (void *)find(mapping, "a").data), 0));
	cr_assert(eq(str, said, ""));
	gpuwm_detach(mapping);
}
