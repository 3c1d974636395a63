#include "keeper/notify.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct notification n;

static void parse(const char *text)
{
	/* A copy of exactly this size, so that a sanitizer sees a read beyond it. */
	size_t bytes = strlen(text);
	char *copy = malloc(bytes + 1);

	memcpy(copy, text, bytes);
	copy = realloc(copy, bytes ? bytes : 1);
	cr_assert_eq(notify_parse(copy, bytes, &n), 0);
	n.status = n.status ? text + (n.status - copy) : NULL;
	free(copy);
}

Test(keeper_notify, a_message_of_many_lines)
{
	parse("READY=1\nSTATUS=holds 3 versions\nMAINPID=12\n");
	cr_expect(n.ready && n.main_pid);
	cr_expect(n.status && n.status_bytes == 16 && memcmp(n.status, "holds 3 versions", 16) == 0);
	cr_expect(!n.stopping && !n.watchdog && !n.watchdog_trigger && !n.store && !n.remove && !n.name_given);
	cr_expect_eq(n.extend_us, 0);
	parse("STOPPING=1\nEXTEND_TIMEOUT_USEC=2500000");
	cr_expect(n.stopping && n.extend_us == 2500000 && !n.ready && !n.status);
	parse("WATCHDOG=1");
	cr_expect(n.watchdog && !n.watchdog_trigger);
	parse("WATCHDOG=trigger");
	cr_expect(!n.watchdog && n.watchdog_trigger);
	parse("FDSTORE=1\nFDNAME=s01\nFDPOLL=0");
	cr_expect(n.store && !n.remove && n.name_given && n.name_valid);
	cr_expect_str_eq(n.name, "s01");
	parse("FDSTOREREMOVE=1\nFDNAME=s01\n\n");
	cr_expect(!n.store && n.remove && n.name_valid);
	parse("X_GPUWM_ADOPTED=1");
	cr_expect(n.adopted && !n.ready);
	parse("BARRIER=1");
	cr_expect(n.barrier && !n.store);
}

Test(keeper_notify, what_is_unknown_or_asks_nothing_is_skipped)
{
	static const struct notification nothing;
	static const char *const texts[] = {"",
					    "\n",
					    "\n\n\n",
					    "READY",
					    "READY=",
					    "READY=0",
					    "READY=1 ",
					    " READY=1",
					    "ready=1",
					    "READY=11",
					    "=",
					    "=1",
					    "FDSTORE=2",
					    "XREADY=1",
					    "BARRIER=0",
					    "ERRNO=5",
					    "RELOADING=1",
					    "FDPOLL=1",
					    "NEWER=1\nX",
					    "WATCHDOG=",
					    "X_GPUWM_ADOPTED=",
					    "X_GPUWM_ADOPTED=10",
					    "WATCHDOG=2",
					    "READY=1\rREADY=1"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		memset(&n, 0xff, sizeof(n));
		parse(texts[i]);
		cr_expect(memcmp(&n, &nothing, sizeof(n)) == 0, "'%s'", texts[i]);
	}
}

Test(keeper_notify, a_zero_byte_anywhere_refuses_the_whole)
{
	static const char text[] = "READY=1\nFDSTORE=1";
	char copy[sizeof(text) - 1];

	memset(&n, 0x55, sizeof(n));
	for (size_t i = 0; i < sizeof(copy); i++) {
		memcpy(copy, text, sizeof(copy));
		copy[i] = 0;
		cr_expect_eq(notify_parse(copy, sizeof(copy), &n), -EBADMSG);
	}
	cr_expect_eq(((char *)&n)[0], 0x55, "what it gave was touched");
}

Test(keeper_notify, a_text_cut_anywhere_is_read_up_to_there)
{
	static const char text[] = "FDSTORE=1\nFDNAME=abc\nSTATUS=x\nREADY=1";

	for (size_t bytes = 0; bytes < sizeof(text); bytes++) {
		char *copy = malloc(bytes ? bytes : 1);

		memcpy(copy, text, bytes);
		cr_assert_eq(notify_parse(copy, bytes, &n), 0);
		cr_expect_eq(n.store, bytes >= 9);
		cr_expect_eq(n.name_given, bytes >= 17);
		cr_expect_eq(n.name_valid, bytes >= 18);
		cr_expect_eq(n.ready, bytes >= 37, "%zu", bytes);
		free(copy);
	}
}

Test(keeper_notify, names)
{
	char longest[FD_NAME_BYTES_MAX + 2], text[FD_NAME_BYTES_MAX + 20];

	cr_expect(fd_name_valid("a", 1) && fd_name_valid("worker.socket-1/x y", 19));
	cr_expect(!fd_name_valid("", 0));
	cr_expect(!fd_name_valid("a:b", 3) && !fd_name_valid("a\tb", 3) && !fd_name_valid("a\x7f", 2));
	cr_expect(!fd_name_valid("\xc3\xa9", 2) && !fd_name_valid("a\0b", 3));
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	cr_expect(fd_name_valid(longest, FD_NAME_BYTES_MAX));
	cr_expect(!fd_name_valid(longest, FD_NAME_BYTES_MAX + 1));

	parse("FDSTORE=1\nFDNAME=\n");
	cr_expect(n.name_given && !n.name_valid && n.name[0] == 0);
	snprintf(text, sizeof(text), "FDNAME=%s", longest);
	parse(text);
	cr_expect(n.name_given && !n.name_valid && n.name[0] == 0);
	text[7 + FD_NAME_BYTES_MAX] = 0;
	parse(text);
	cr_expect(n.name_valid && strlen(n.name) == FD_NAME_BYTES_MAX);
}

Test(keeper_notify, the_first_of_two_counts)
{
	parse("FDNAME=a\nFDNAME=b\nSTATUS=1\nSTATUS=2\nEXTEND_TIMEOUT_USEC=3\nEXTEND_TIMEOUT_USEC=4");
	cr_expect_str_eq(n.name, "a");
	cr_expect(n.status_bytes == 1 && n.status[0] == '1');
	cr_expect_eq(n.extend_us, 3);
	parse("FDNAME=:\nFDNAME=b");
	cr_expect(!n.name_valid, "a bad name is not mended by another one");
}

Test(keeper_notify, numbers_that_are_none_are_zero)
{
	static const char *const texts[] = {
		"", "x", "1x", "-1", "+1", " 1", "1.5", "18446744073709551616", "99999999999999999999999"};
	char text[64];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%s", texts[i]);
		parse(text);
		cr_expect_eq(n.extend_us, 0, "%s", texts[i]);
	}
	parse("EXTEND_TIMEOUT_USEC=18446744073709551615");
	cr_expect_eq(n.extend_us, UINT64_MAX);
}
