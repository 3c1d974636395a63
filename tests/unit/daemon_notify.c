/* What a service manager is told. */
#include "daemon/base/notify.h"
#include "tests/support/daemon/storing.h"
#include "tests/support/any/own_folder.h"

StoringTest(notify, the_watchdog_is_fed_by_the_loop, "10")
{
	setenv("WATCHDOG_USEC", "30000", 1);
	notify_ready(server->notify);
	TURN_UNTIL(manager_heard(&manager, "WATCHDOG=1"));
	cr_expect(manager_heard(&manager, "READY=1\nSTATUS=0 versions of 0 B, 0 leases, 0 clients"), "%s",
		  manager.heard);
	unsetenv("WATCHDOG_USEC");
}

StoringTest(notify, the_line_follows_what_there_is, "100")
{
	notify_ready(server->notify);
	stored("v1");
	TURN_UNTIL(manager_heard(&manager, "STATUS=1 version of 4.0 KiB"));
}

static void on_later(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

/* A service manager that hangs: the loop goes on, and READY=1 is told when it reads again. */
Test(notify, the_loop_waits_for_no_service_manager, .timeout = 120)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char text[1024] = "";
	bool fed = false; /* the watchdog, which is due before `later` */
	uv_timer_t later;
	int sock;

	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/deaf", own_folder());
	unlink(address.sun_path);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	server_open();
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	while (sendto(sock, "x", 1, 0, (struct sockaddr *)&address, sizeof(address)) == 1)
		;
	setenv("WATCHDOG_USEC", "3000", 1);
	notify_ready(server->notify);
	notify_extend(1);
	notify_stopping();
	uv_timer_init(&server->loop, &later);
	later.data = &fed;
	uv_timer_start(&later, on_later, 5, 0);
	TURN_UNTIL(fed);
	uv_close((uv_handle_t *)&later, NULL);
	TURN_UNTIL(recv(sock, text, sizeof(text) - 1, 0) > 0 && strstr(text, "READY=1\nSTATUS=0 versions"));
	unsetenv("WATCHDOG_USEC");
	unsetenv("NOTIFY_SOCKET");
	unlink(address.sun_path);
	server_close();
	close(sock);
}
