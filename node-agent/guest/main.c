/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-guest, PID 1 of every sandbox: makes the root, tells the host, then serves guest.proto on vsock port
 * 1024. It never exits, because the kernel would panic; a step that fails is logged to the kernel's log and
 * the rest goes on, so that the host can ask what is wrong.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* after sys/socket.h, whose types it uses */
#include <linux/vm_sockets.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "guest/boot.h"
#include "guest/hello.h"
#include "guest/server.h"
#include "guest/sleep.h"

#define SERVICE_PORT 1024

static void pause_ms(long ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	(void) nanosleep(&time, NULL);
}

static void power_off(void)
{
	pause_ms(50);              /* the answer is on its way to the host */
	(void) kill(-1, SIGKILL);  /* everybody but us: nothing is written after the sync */
	sync();
	(void) reboot(RB_POWER_OFF);
	log_error("cannot power off", "errno", strerrorname_np(errno));
}

static int listen_vsock(void)
{
	struct sockaddr_vm any = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = SERVICE_PORT };
	CLEANUP_FD int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *) &any, sizeof(any)) < 0 || listen(fd, 128) < 0)
		return -errno;
	return TAKE_FD(fd);
}

static void watch_oom(struct server *server)
{
	int fd = oom_open_log(), r = fd < 0 ? fd : oom_watch(&server->oom, fd);

	if (r < 0)
		log_error("cannot watch for want of memory", "errno", strerrorname_np(-r));
}

static void listen_for_host(struct server *server)
{
	int fd = listen_vsock(), r = fd < 0 ? fd : server_listen(server, fd);

	if (r < 0)
		log_error("cannot listen on vsock", "errno", strerrorname_np(-r));
}

/* Where the loop cannot go on, that is tried again. */
static void serve(struct server *server)
{
	for (;;) {
		int r = server_turn(server, -1);

		if (r < 0) {
			log_error("the loop failed", "errno", strerrorname_np(-r));
			pause_ms(1000);
		}
	}
}

int main(void)
{
	static const struct server_host host = { .set_hostname = boot_set_hostname, .set_clock = boot_set_clock,
		.power_off = power_off, .set_network = net_configure, .freeze = sleep_freeze, .wake = sleep_wake,
		.thaw = sleep_thaw, .diff = boot_diff, .count_oom = oom_count, .tell_oom = hello_tell_oom };
	struct err failure = ERR_NULL;
	struct server server;
	int r, group_fd = -1;

	if (getpid() != 1) {
		(void) fputs("croft-guest is the first process of a sandbox and does nothing elsewhere\n", stderr);
		return 2;
	}
	boot_mark();
	boot_early();
	log_init("croft-guest", LOG_LEVEL_INFO);
	boot_protect();
	boot_modules();
	r = boot_root(&failure);
	if (r < 0)
		log_failure(LOG_LEVEL_ERROR, "the sandbox has no root", &failure, NULL);
	else {
		boot_identity();
		group_fd = sleep_init(boot_take_disk());
	}
	while ((r = server_init(&server, "/etc", &host)) < 0) {
		log_error("cannot make the service", "errno", strerrorname_np(-r));
		pause_ms(1000);
	}
	server.group_fd = group_fd;
	server.failure = err_is_set(&failure) ? &failure : NULL;
	listen_for_host(&server); /* before the hello: who hears it calls at once */
	hello_send(server.failure);
	watch_oom(&server);
	serve(&server);
}
