#include "pair.h"
#include "certificates.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static void *accept_one(void *user)
{
	struct accepting *accepting = user;
	int fd = accept4(accepting->fd, NULL, NULL, SOCK_CLOEXEC);

	accepting->result =
		link_accept(accepting->keys, fd, accepting->timeout_ms, &accepting->link, &accepting->error);
	return NULL;
}

void accepting_begin(struct accepting *accepting, struct peer_keys *keys, uint64_t timeout_ms)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(address);

	*accepting = (struct accepting){.keys = keys, .timeout_ms = timeout_ms};
	accepting->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(accepting->fd, (struct sockaddr *)&address, bytes), 0);
	cr_assert_eq(listen(accepting->fd, 8), 0);
	getsockname(accepting->fd, (struct sockaddr *)&address, &bytes);
	accepting->port = ntohs(address.sin_port);
	cr_assert_eq(pthread_create(&accepting->thread, NULL, accept_one, accepting), 0);
}

void accepting_wait(struct accepting *accepting)
{
	pthread_join(accepting->thread, NULL);
	accepting->thread = 0;
}

void accepting_end(struct accepting *accepting)
{
	if (accepting->thread)
		accepting_wait(accepting);
	link_close(accepting->link);
	close(accepting->fd);
}

int plain_connect(unsigned port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((in_port_t)port),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

int pair_connect(const struct accepting *accepting, struct peer_keys *keys, const char *name, struct link **ret,
		 struct error *error)
{
	return link_connect(keys, &(struct link_target){"127.0.0.1", accepting->port, name}, 5000, ret, error);
}

void pair_by_secret(struct accepting *accepting, struct peer_keys **ret_keys, struct link **ret)
{
	struct error error;

	certificates_begin();
	certificates_write("secret", "0123456789abcdef0123456789abcdef", 0600);
	*ret_keys = keys_of(settings_of_secret("secret"));
	accepting_begin(accepting, *ret_keys, 5000);
	cr_assert_eq(pair_connect(accepting, *ret_keys, NULL, ret, &error), 0, "%s", error.message);
	accepting_wait(accepting);
}
