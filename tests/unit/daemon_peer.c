#include "daemon/net/peer.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <grp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];
static struct peer peer;

static void identify(void)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	cr_assert_eq(peer_credentials(pair[0], &peer) | peer_look(pair[0], &peer), 0);
}

static void finish(void)
{
	peer_clear(&peer);
	peer_clear(&peer);
	close(pair[0]);
	close(pair[1]);
}

Test(peer, is_who_the_kernel_says)
{
	int fds = fd_count();

	identify();
	cr_assert_eq(peer.pid, getpid());
	cr_assert_eq(peer.uid, getuid());
	cr_assert_eq(peer.gid, getgid());
	cr_assert_neq(strlen(peer.command), 0);
	finish();
	cr_assert_eq(fd_count(), fds);
}

/* Others are told it, some of whom take nothing but UTF-8. */
Test(peer, may_call_itself_what_is_no_text)
{
	cr_assert_eq(prctl(PR_SET_NAME, "\xff\x1b[2J\xc3\xa4\xc3"), 0);
	identify();
	cr_assert_str_eq(peer.command, "??[2J\xc3\xa4?");
	finish();
}

Test(peer, may_call_itself_lines)
{
	cr_assert_eq(prctl(PR_SET_NAME, "\na\n\n"), 0);
	identify();
	cr_assert_str_eq(peer.command, "?a??", "not what stands before the first newline: nothing");
	finish();
}

Test(peer, of_no_connection_is_an_error)
{
	cr_assert_lt(peer_credentials(0, &peer), 0);
}

Test(peer, is_in_its_primary_group)
{
	identify();
	cr_assert(peer_in_group(pair[0], &peer, getgid()));
	cr_assert_not(peer_in_group(pair[0], &peer, 64998));
	finish();
}

Test(peer, is_in_its_supplementary_groups_however_many)
{
	static gid_t groups[300];

	if (geteuid() != 0)
		cr_skip_test("only root can take groups");
	for (size_t few = 3; few <= 300; few *= 10) {
		for (size_t i = 0; i < few; i++)
			groups[i] = (gid_t)(64000 + i);
		cr_assert_eq(setgroups(few, groups), 0);
		identify();
		cr_assert(peer_in_group(pair[0], &peer, groups[few - 1]));
		cr_assert_not(peer_in_group(pair[0], &peer, (gid_t)(64000 + few)));
		finish();
	}
}

Test(peer, roles_have_names)
{
	cr_assert_str_eq(role_name(ROLE_WORKER), "worker");
	cr_assert_str_eq(role_name(ROLE_PUBLISHER), "publisher");
	cr_assert_str_eq(role_name(ROLE_OPERATOR), "operator");
	cr_assert_str_eq(role_name(ROLE_LOADER), "loader");
}
