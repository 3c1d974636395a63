#include "places.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Who has an address of IPv6 has 2^64 of them. */
#define NETWORK_BYTES 8

/* One end of a connection. An address of IPv4 that is written as one of IPv6 counts as IPv4. */
struct end {
	sa_family_t family;
	in_port_t port; /* in the network's order, as the address */
	uint8_t address[16]; /* of IPv4: the first 4 bytes */
};

static struct end read_end(const struct sockaddr_storage *at)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)at;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)at;
	struct end end = {.family = AF_INET, .port = v4->sin_port};

	if (at->ss_family == AF_INET) {
		memcpy(end.address, &v4->sin_addr, 4);
	} else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(end.address, &v6->sin6_addr.s6_addr[12], 4);
	} else {
		end.family = AF_INET6;
		memcpy(end.address, &v6->sin6_addr, 16);
	}
	return end;
}

static bool is_loopback(const struct end *end)
{
	static const struct in6_addr one = IN6ADDR_LOOPBACK_INIT;

	return end->family == AF_INET ? end->address[0] == 127 : memcmp(end->address, &one, 16) == 0;
}

/* Asks the kernel who has the socket at the other end, which is one of this machine (sock_diag(7)). Returns false if the kernel does not
 * tell. */
static bool ask_uid(const struct end *other, const struct end *own, uid_t *ret)
{
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 request;
	} question = {
		.header = {.nlmsg_len = sizeof(question),
			   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			   .nlmsg_flags = NLM_F_REQUEST},
		.request = {.sdiag_family = (uint8_t)other->family,
			    .sdiag_protocol = IPPROTO_TCP,
			    .idiag_states = UINT32_MAX,
			    .id = {.idiag_sport = other->port,
				   .idiag_dport = own->port,
				   .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};
	struct {
		struct nlmsghdr header;
		struct inet_diag_msg told;
		char attributes[1024]; /* which nobody reads */
	} answer = {0};
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	ssize_t bytes = -1;

	memcpy(question.request.id.idiag_src, other->address, 16);
	memcpy(question.request.id.idiag_dst, own->address, 16);
	/* The kernel answers within send(2). */
	if (fd >= 0 && send(fd, &question, sizeof(question), 0) == (ssize_t)sizeof(question))
		bytes = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT);
	if (fd >= 0)
		close(fd);
	if (bytes < (ssize_t)(sizeof(answer.header) + sizeof(answer.told)) ||
	    answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return false;
	*ret = answer.told.idiag_uid;
	return true;
}

struct origin origin_of(int fd)
{
	struct sockaddr_storage there = {.ss_family = AF_INET}, here = {.ss_family = AF_INET};
	socklen_t there_bytes = sizeof(there), here_bytes = sizeof(here);
	struct origin origin = {0};
	struct end other, own;

	getpeername(fd, (struct sockaddr *)&there, &there_bytes);
	getsockname(fd, (struct sockaddr *)&here, &here_bytes);
	other = read_end(&there);
	own = read_end(&here);
	/* From this machine, whichever of its addresses was asked. */
	if (other.family == own.family &&
	    (is_loopback(&other) || memcmp(other.address, own.address, sizeof(own.address)) == 0))
		origin.has_uid = ask_uid(&other, &own, &origin.uid);
	origin.family = other.family;
	memcpy(origin.address, other.address, other.family == AF_INET6 ? NETWORK_BYTES : 4);
	return origin;
}

bool origin_same(const struct origin *a, const struct origin *b)
{
	if (a->has_uid || b->has_uid)
		return a->has_uid && b->has_uid && a->uid == b->uid;
	return a->family == b->family && memcmp(a->address, b->address, sizeof(a->address)) == 0;
}
