/* SPDX-License-Identifier: Apache-2.0
 *
 * See hello.h. The connection is kept until the host closes it (at most 10 s), so that no byte is lost to an
 * early end.
 */
#include "guest/hello.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* after sys/socket.h, whose types it uses */
#include <linux/vm_sockets.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "guest/info.h"

#define HELLO_PORT 1
#define HELLO_TRIES 600 /* 100 ms apart */
#define OOM_TRIES 50

static int hello_try(const struct buf *frame)
{
	CLEANUP_FD int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_vm host = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = HELLO_PORT };
	struct timeval limit = { .tv_sec = 10 };
	char byte;
	int r;

	if (fd < 0 || connect(fd, (struct sockaddr *) &host, sizeof(host)) < 0)
		return -errno;
	r = fd_write_all(fd, buf_peek(frame), buf_size(frame));
	if (r < 0)
		return r;
	(void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)); /* without it we wait longer */
	(void) !read(fd, &byte, 1); /* the end of the connection, however it comes */
	return 0;
}

/* 0: the host took it. */
static int hello_run(const struct guest_hello *hello, int tries)
{
	static const struct timespec pause = { .tv_nsec = 100000000 };
	struct buf frame = BUF_NULL(65536);
	int r = hello_encode(&frame, hello);

	for (int i = 0; r == 0 && i < tries; i++) {
		r = hello_try(&frame);
		if (r == 0)
			return 0;
		if (i == 0)
			log_warn("the host does not take the hello yet", "errno", strerrorname_np(-r));
		(void) nanosleep(&pause, NULL);
		r = 0;
	}
	log_error("the host never took the hello");
	return 1;
}

static pid_t hello_fork(const struct guest_hello *hello, int tries)
{
	pid_t pid = fork();

	if (pid < 0) {
		log_error("cannot fork for the hello", "errno", strerrorname_np(errno));
	} else if (pid == 0) {
		/* ends the process: the child that was forked for this */
		_exit(hello_run(hello, tries));
	}
	return pid;
}

void hello_send(const struct err *failure)
{
	struct guest_hello hello;

	info_hello(&hello, failure);
	(void) hello_fork(&hello, HELLO_TRIES);
}

pid_t hello_tell_oom(uint64_t kills)
{
	struct guest_hello hello;

	info_hello(&hello, NULL);
	hello.oom_kills = kills;
	return hello_fork(&hello, OOM_TRIES);
}
