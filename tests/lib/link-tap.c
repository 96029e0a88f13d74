/* SPDX-License-Identifier: Apache-2.0
 *
 * A library to be loaded before libzmq (LD_PRELOAD): whatever a program sends over ZeroMQ is also appended, before it is encrypted, to
 * the file that CROFT_LINK_TAP names: a length of four bytes, the most significant first, and the bytes.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

__attribute__((visibility("default"))) int zmq_send(void *socket, const void *data, size_t size, int flags);

int zmq_send(void *socket, const void *data, size_t size, int flags)
{
	static int (*real)(void *, const void *, size_t, int);
	const char *path = getenv("CROFT_LINK_TAP");
	int fd;

	if (!real) {
		void *found = dlsym(RTLD_NEXT, "zmq_send");

		if (!found)
			abort();
		memcpy(&real, &found, sizeof(real)); /* C has no conversion between them */
	}
	fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd >= 0) {
		uint8_t head[4] = { (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size };
		struct iovec parts[] = { { head, sizeof(head) }, { (void *)(uintptr_t)data, size } };

		if (writev(fd, parts, 2) != (ssize_t)(sizeof(head) + size))
			abort(); /* a test that sees only a part would pass */
		(void)close(fd);
	}
	return real(socket, data, size, flags);
}
