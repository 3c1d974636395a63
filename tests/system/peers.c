/* gpuwm-peer: who gets what from it, and what nobody does to it. tests/unit/peer_stranger.c has all who are refused. */
#include "beside.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct beside peer;

static void end(void)
{
	beside_clear(&peer);
	harness_cleanup();
}

TestSuite(peers, .fini = end);

/* A gpuwmd that may take from peers, and whose model `closed` is for root alone. The secret's file has to be there first. */
static struct gpuwmd *begin(void)
{
	return gpuwmd_start("--set", peers_setting(), "--set", "model.1.match=closed", "--set",
			    "model.1.attach=0", NULL);
}

/* In the body: a gpuwmd with m@v1, and m is current. */
#define PEER_TEST(name) GPUWMD_TEST_IF(peers, name, beside_needs_built(), begin(), gpuwmd_stop_empty)

/* Asks gpuwm-peer, for this form of output. */
#define ASK(form) CTL("ls", "--peers", "--config", peer.asking, "-o", form)

/* ---- what it serves -------------------------------------------------------- */

PEER_TEST(another_node_sees_and_takes_a_version)
{
	char source[64];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("m@v1");
	SAYS("yes");
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m@v1", peer.port);
	cr_assert_eq(ASK("name"), 0);
	SAYS(source);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait");
	worker_reads(d, "copy@v1", 1);
	cr_expect(EVENTUALLY(SOON_MS, beside_says(&peer, "took m@v1")), "%s", beside_log(&peer));
	cr_assert_eq(CTL("jobs", "-o", "json"), 0);
	SAYS("both had met after ");
	SAYS("the bytes came by TLS; not by RDMA: there is no network card with RDMA here");
	SAYS(" has the version\"");
	cr_assert_eq(ASK("json"), 0);
	cr_expect(strstr(output, "\"fingerprint\":\""), "the sums are known now: %s", output);
	cr_expect_eq(beside_stop(&peer), 0, "%s", beside_log(&peer));
	DROP(d, "copy@v1", "m@v1");
}

/* It is a worker as any other, and a version that it may not attach does not exist for other nodes. */
PEER_TEST(rules_for_models_hold)
{
	NEEDS_ROOT();
	SKIP_UNLESS(build_is_open_to(65534), "another user can't run the build's programs");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "open@v1");
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "closed@v1");
	chmod(d->dir, 0755);
	chmod(d->socket, 0666);
	cr_assert_eq(chown(peers_secret(), 65534, 65534), 0);
	beside_start_as(&peer, d, 65534);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("open@v1");
	cr_expect_null(strstr(output, "closed@v1"), "%s", output);
	cr_expect_not(beside_says(&peer, "is root"), "%s", beside_log(&peer));
	beside_stop(&peer);
	DROP(d, "open@v1", "closed@v1");
}

PEER_TEST(root_is_told_that_no_rule_holds)
{
	NEEDS_ROOT();
	beside_start(&peer, d);
	cr_expect(beside_says(&peer, "gpuwm-peer is root, for whom no rule of gpuwmd's counts"), "%s",
		  beside_log(&peer));
	beside_stop(&peer);
}

/* Whoever retires a version waits for a take and a short time more, not for ever. */
PEER_TEST(a_version_is_held_while_it_is_taken_and_a_moment_more)
{
	char source[64];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	cr_expect_eq(status_of(d, "leases"), 0, "nobody takes it");
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m", peer.port);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait");
	CTL_IS(0, "ps");
	SAYS("gpuwm-peer");
	cr_expect_eq(beside_stop(&peer), 0);
	cr_expect(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "copy@v1", "m@v1");
}

PEER_TEST(a_lease_that_is_revoked_is_given_up)
{
	char source[64], uid[16];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m", peer.port);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait");
	snprintf(uid, sizeof(uid), "%u", geteuid());
	CTL_IS(0, "kick", "--uid", uid);
	cr_expect(EVENTUALLY(SOON_MS, beside_says(&peer, "m@v1 is served no longer")), "%s", beside_log(&peer));
	CTL_IS(0, "load", source, "again@v1", "--device", d->device, "--wait");
	beside_stop(&peer);
	DROP(d, "again@v1", "copy@v1", "m@v1");
}

/* ---- keys ------------------------------------------------------------------- */

PEER_TEST(does_not_start_without_keys)
{
	beside_spawn(&peer, d, "listen = 127.0.0.1:0\n", geteuid());
	cr_expect_eq(beside_ended(&peer), 1);
	cr_expect(beside_says(&peer, "there are no keys"), "%s", beside_log(&peer));
	cr_expect(beside_says(&peer, "set certificate, key and authority, or secret"), "%s", beside_log(&peer));
}

PEER_TEST(does_not_start_without_an_address)
{
	char settings[128];

	snprintf(settings, sizeof(settings), "secret = %s\n", peers_secret());
	beside_spawn(&peer, d, settings, geteuid());
	cr_expect_eq(beside_ended(&peer), 1);
	cr_expect(beside_says(&peer, "this node serves nothing"), "%s", beside_log(&peer));
}

PEER_TEST(takes_new_keys_at_sighup_and_keeps_the_old_ones_if_they_are_wrong)
{
	beside_start(&peer, d);
	peers_secret_write("short");
	kill(peer.pid, SIGHUP);
	cr_expect(EVENTUALLY(SOON_MS, beside_says(&peer, "the old keys stay")), "%s", beside_log(&peer));
	peers_secret_write("second-second-second-second-second");
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("secret");
	cr_expect(EVENTUALLY(SOON_MS, beside_says(&peer, "all nodes need the same secret")), "%s",
		  beside_log(&peer));
	kill(peer.pid, SIGHUP);
	cr_expect(EVENTUALLY(SOON_MS, beside_says(&peer, "were read again")), "%s", beside_log(&peer));
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("no versions on other nodes");
	cr_expect_null(strstr(output, "secret"), "%s", output);
	beside_stop(&peer);
}

PEER_TEST(tells_who_can_not_be_asked)
{
	beside_start(&peer, d);
	beside_stop(&peer);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("no other node answered\nfailed: 127.0.0.1");
	SAYS("Connection refused");
	chmod(peers_secret(), 0644);
	cr_expect_eq(ASK("table"), 1);
	SAYS("others may read");
}

/* ---- certificates ---- */

static const char make_certificates[] =
	"cd %s && e='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes' && "
	"openssl req -x509 $e -subj /CN=a -keyout a.key -out a.pem 2>&1 && "
	"for n in one two; do openssl req $e -subj /CN=$n -keyout $n.key -out $n.csr 2>&1 && "
	"printf \"subjectAltName=DNS:$n.example,IP:127.0.0.1\\n\" >$n.ext && "
	"openssl x509 -req -in $n.csr -CA a.pem -CAkey a.key -days 2 -extfile $n.ext -out $n.pem 2>&1 || exit 1; done";

static void certificates_make(const struct gpuwmd *d)
{
	char command[2048];
	FILE *shell;

	snprintf(command, sizeof(command), make_certificates, d->dir);
	shell = popen(command, "re");
	cr_assert(shell);
	while (fgets(output, sizeof(output), shell))
		;
	cr_assert_eq(pclose(shell), 0, "%s", output);
}

/* The section with the files of a node, and more lines. */
static const char *files_of(const struct gpuwmd *d, const char *node, const char *more)
{
	static char text[1024];

	snprintf(text, sizeof(text), "certificate = %s/%s.pem\nkey = %s/%s.key\nauthority = %s/a.pem\n%s",
		 d->dir, node, d->dir, node, d->dir, more);
	return text;
}

PEER_TEST(certificates_tell_who_may_take)
{
	certificates_make(d);
	beside_spawn(&peer, d, files_of(d, "one", "listen = 127.0.0.1:0\nnames = two.example\n"), geteuid());
	beside_wait(&peer);
	text_write(peer.asking, 0644, "[peers]\n%speer = 127.0.0.1:%u\n", files_of(d, "two", ""), peer.port);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("no versions on other nodes");
	cr_expect_null(strstr(output, "127.0.0.1"), "%s", output);
	text_write(peer.asking, 0644, "[peers]\n%speer = 127.0.0.1:%u\n", files_of(d, "one", ""), peer.port);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("has none of the names that may take");
	text_write(peer.asking, 0644, "[peers]\n%speer = localhost:%u\n", files_of(d, "two", ""), peer.port);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("hostname mismatch");
	cr_expect_eq(beside_stop(&peer), 0, "%s", beside_log(&peer));
}

/* ---- strangers and the end ---------------------------------------------------- */

/* A connection from an address of this machine's own network that says nothing. */
static int connect_from(unsigned host)
{
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + host)};
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((in_port_t)peer.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* More than the places for those who have not proved who they are, from many addresses and from one. */
PEER_TEST(strangers_do_not_keep_nodes_out)
{
	int fds[120];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	for (unsigned i = 0; i < 120; i++)
		fds[i] = connect_from(i < 80 ? 10 + i : 9);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("m@v1");
	cr_expect(EVENTUALLY(SOON_MS, beside_says(&peer, "connections were refused or cut")), "%s",
		  beside_log(&peer));
	for (unsigned i = 0; i < 120; i++)
		close(fds[i]);
	cr_expect_eq(beside_stop(&peer), 0);
	DROP(d, "m@v1");
}

/* As Kubernetes looks whether the port is there. */
PEER_TEST(a_probe_of_the_port_makes_no_line)
{
	int fd;

	beside_start(&peer, d);
	for (int i = 0; i < 3; i++)
		close(connect_from(1));
	fd = connect_from(1);
	cr_assert_eq(write(fd, "GET / HTTP/1.1\r\n\r\n", 18), 18);
	cr_expect(EVENTUALLY(SOON_MS, beside_says(&peer, "does not speak TLS")), "%s", beside_log(&peer));
	cr_expect_not(beside_says(&peer, "was cut") || beside_says(&peer, "without a word"), "%s",
		      beside_log(&peer));
	close(fd);
	beside_stop(&peer);
}

/* A user of a node that takes keeps more connections open than one address may have, and says nothing. */
PEER_TEST(silent_connections_do_not_keep_a_load_from_the_same_address_out)
{
	int fds[40];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	for (unsigned i = 0; i < 40; i++)
		fds[i] = connect_from(1);
	CTL_IS(0, "load", peer.source, "copy@v1", "--device", d->device, "--wait");
	worker_reads(d, "copy@v1", 1);
	for (unsigned i = 0; i < 40; i++)
		close(fds[i]);
	cr_expect_eq(beside_stop(&peer), 0);
	DROP(d, "copy@v1", "m@v1");
}

PEER_TEST(ends_at_once_whoever_is_connected)
{
	int64_t begin_ms;
	int fd;

	beside_start(&peer, d);
	fd = connect_from(10);
	begin_ms = clock_ms();
	cr_expect_eq(beside_stop(&peer), 0, "%s", beside_log(&peer));
	cr_expect_lt(clock_ms() - begin_ms, 4000);
	close(fd);
}

/* ---- taking ------------------------------------------------------------------ */

#define REFUSES(...) cr_assert_neq(CTL(__VA_ARGS__), 0, "%s", output)

GPUWMD_TEST(peers, nothing_is_taken_without_keys)
{
	REFUSES("load", "peer://127.0.0.1/m@v1", "m@v1", "--device", d->device);
	SAYS("it has no keys for them");
	SAYS("[peers]");
}

/* The text behind this key of what gpuwmctl printed. */
static const char *text_of(const char *key, char ret[65])
{
	const char *at = strstr(output, key);

	cr_assert(at, "%s is not in %s", key, output);
	snprintf(ret, 65, "%s", at + strlen(key) + 3);
	return ret;
}

PEER_TEST(only_the_fingerprint_that_is_expected_is_taken)
{
	static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
	char source[64], fingerprint[65];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m@v1", peer.port);
	REFUSES("load", source, "copy@v1", "--device", d->device, "--wait", "--expect", zeros);
	SAYS("expected was 0000");
	SAYS("nothing was taken");
	snprintf(fingerprint, sizeof(fingerprint), "%s", strstr(output, "the fingerprint ") + 16);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait", "--expect", fingerprint);
	worker_reads(d, "copy@v1", 1);
	cr_expect_eq(beside_stop(&peer), 0);
	DROP(d, "copy@v1", "m@v1");
}

PEER_TEST(a_copy_has_the_content_of_what_it_was_taken_from)
{
	char source[64], there[65], here[65];

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	beside_start(&peer, d);
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m@v1", peer.port);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait");
	CTL_IS(0, "-o", "json", "show", "m@v1");
	text_of("\"content\"", there);
	CTL_IS(0, "-o", "json", "show", "copy@v1");
	text_of("\"content\"", here);
	cr_expect_eq(memcmp(there, here, 32), 0, "%s, %s", there, here);
	CTL_IS(0, "verify", "copy@v1", "--wait");
	SAYS("intact");
	CTL_IS(0, "-o", "json", "ls", "copy");
	SAYS(source);
	/* Nothing says that the peer has it for ever. */
	REFUSES("verify", "copy@v1", "--source");
	SAYS("copy@v1 has no source: no files are known");
	REFUSES("demote", "copy@v1", "--to", "files");
	SAYS("gpuwmctl save copy@v1 FOLDER");
	cr_expect_eq(beside_stop(&peer), 0);
	DROP(d, "copy@v1", "m@v1");
}

PEER_TEST(what_a_copy_can_not_have_is_refused)
{
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--wait", "--key", "a=b");
	SAYS("can't get another key");
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--wait", "--segment-bytes", "2M");
	SAYS("has the segments that it has there");
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--ranks", "2", "--cut", "llama");
	SAYS("is not cut: `ranks` is for files");
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--only", "scalar");
	SAYS("`only` is for files");
	REFUSES("load", "peer://127.0.0.1:1/m@v1", "copy@v1", "--device", d->device, "--wait");
	SAYS("Connection refused");
	REFUSES("load", "peer://:1", "copy@v1", "--device", d->device);
	SAYS("peer://HOST[:PORT]/MODEL@TAG");
	REFUSES("load", "m@v1", "copy@v1", "--from", "peers", "--device", d->device, "--wait");
	SAYS("no peer is known");
	REFUSES("load", "m@v1", "copy@v1", "--from", "files");
	SAYS("--from takes peers");
	REFUSES("load", peer.source, "copy@v1", "--expect", "abc");
	SAYS("64 hexadecimal digits");
	REFUSES("load", checkpoint_write(d, "v2", SMALL(2)), "copy@v1", "--device", d->device, "--expect",
		"00ff7f80a5000000000000000000000000000000000000000000000000000abc");
	SAYS("only versions of a peer have a fingerprint");
	cr_expect_eq(beside_stop(&peer), 0);
	DROP(d, "m@v1");
}

/* An attach would promote it, but other nodes don't decide what lies in this node's memory. */
PEER_TEST(a_demoted_version_is_refused_and_stays_where_it_is)
{
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	CTL_IS(0, "demote", "m@v1", "--to", "files", "--wait");
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--wait");
	SAYS("m@v1 lies on files there, and only versions on their devices are served");
	CTL_IS(0, "ls", "m");
	SAYS("ready, on files ");
	cr_expect_eq(beside_stop(&peer), 0);
	DROP(d, "m@v1");
}

PEER_TEST(a_plan_says_what_a_copy_takes)
{
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	CTL_IS(0, "load", peer.source, "copy@v1", "--device", d->device, "--dry-run");
	SAYS("FITS");
	SAYS("yes");
	cr_expect_eq(beside_stop(&peer), 0);
	DROP(d, "m@v1");
}
