/* SPDX-License-Identifier: Apache-2.0
 *
 * The serial port: what a driver finds there, and where its output goes. Cases R100 R110.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/suite.h"
#include "loop.h"
#include "serial.h"

static struct loop loop;
static struct serial serial;
static int irq_fd;

static void set_up(void)
{
	ck_assert_int_eq(loop_init(&loop), 0);
	irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	serial.loop = NULL;
}

static void tear_down(void)
{
	serial_deinit(&serial);
	(void) fd_close(irq_fd);
	loop_deinit(&loop);
}

static uint8_t in(uint64_t offset)
{
	uint8_t byte;

	serial_read(&serial, offset, &byte, 1);
	return byte;
}

static void out(uint64_t offset, uint8_t byte)
{
	serial_write(&serial, offset, &byte, 1);
}

static bool interrupted(void)
{
	uint64_t n;

	return read(irq_fd, &n, sizeof(n)) == sizeof(n);
}

/* What Linux's driver does to find out what it has. */
START_TEST(serial_probe)
{
	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, -1), 0);
	out(7, 0xa5);
	ck_assert_uint_eq(in(7), 0xa5);
	ck_assert_uint_eq(in(6), 0xb0); /* carrier, data set ready, clear to send: somebody listens */
	for (unsigned int i = 0; i < 16; i++) { /* loopback: RTS CTS, DTR DSR, OUT1 RI, OUT2 DCD */
		out(4, (uint8_t) (0x10 | i));
		ck_assert_uint_eq(in(6), (i & 2u ? 0x10u : 0) | (i & 1u ? 0x20u : 0) | (i & 4u ? 0x40u : 0) | (i & 8u ? 0x80u : 0));
	}
	out(0, 'x');
	ck_assert_uint_eq(serial_stats(&serial).bytes, 0);
	out(4, 0);
	out(2, 1);
	ck_assert_uint_eq(in(2) & 0xc0, 0xc0); /* 16550A */
	out(2, 0xc6); /* of that register only the switch of the queues is kept */
	ck_assert_uint_eq(in(2) & 0xc0, 0);
	out(2, 0xc7);
	ck_assert_uint_eq(in(2) & 0xc0, 0xc0);
	out(3, 0x80);
	out(0, 0x34);
	out(1, 0x12);
	ck_assert_uint_eq(in(0), 0x34);
	ck_assert_uint_eq(in(1), 0x12);
	out(3, 3);
	ck_assert_uint_eq(in(0), 0);
	/* bits that a 16550A does not have read as zero: by them newer chips are told apart */
	out(1, 0xfd);
	ck_assert_uint_eq(in(1), 0x0d);
	out(1, 0);
	out(4, 0xff);
	ck_assert_uint_eq(in(4), 0x1f);
	out(4, 0);
	ck_assert_uint_eq(in(5), 0x60);
	/* the test for a lost interrupt: switched off and on again it must be there again */
	ck_assert(!interrupted());
	out(1, 2);
	ck_assert(interrupted());
	ck_assert_uint_eq(in(2) & 0x0f, 2);
	ck_assert_uint_eq(in(2) & 0x0f, 1);
	out(1, 0);
	out(1, 2);
	ck_assert(interrupted());
	ck_assert_uint_eq(in(2) & 0x0f, 2);
	out(0, 'x'); /* and each byte brings one, as it is gone at once */
	ck_assert(interrupted());
	ck_assert_uint_eq(in(2) & 0x0f, 2);
}
END_TEST

START_TEST(serial_widths)
{
	uint8_t bytes[4] = { 1, 2, 3, 4 };

	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, -1), 0);
	for (uint64_t offset = 0; offset < 8; offset++) {
		serial_write(&serial, offset, bytes, 4);
		serial_read(&serial, offset, bytes, 2);
	}
	ck_assert_uint_eq(serial_stats(&serial).bytes, 0);
}
END_TEST

/* No two of the first 16 MiB that are 64 KiB apart are alike: what is lost shows. */
static uint8_t byte_at(uint64_t i)
{
	return (uint8_t) (i * 31 ^ i >> 8 ^ (i >> 16) * 7);
}

static void print(uint64_t from, uint64_t n)
{
	for (uint64_t i = from; i < from + n; i++)
		out(0, byte_at(i));
}

static void check_text(const uint8_t *text, uint64_t from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (text[i] != byte_at(from + i)) /* check writes a message per assertion */
			ck_abort_msg("byte %llu is 0x%x", (unsigned long long) i, text[i]);
}

/* One turn that also sees the pause between two looks end. */
static void turn(void)
{
	ck_assert_int_eq(loop_step(&loop, 6 * USEC_PER_MSEC), 0);
}

/* An interrupt that was on its way when the VM was kept comes in the one that is made of it, and no other. */
START_TEST(serial_restored)
{
	struct serial_state state = { .ier = 2, .lcr = 3, .mcr = 8, .scr = 0x5a, .thr_pending = _i == 1 }, back;

	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, -1), 0);
	serial_load(&serial, &state);
	ck_assert(interrupted() == (_i == 1));
	serial_save(&serial, &back);
	ck_assert_mem_eq(&back, &state, sizeof(back));
}
END_TEST

START_TEST(serial_pipe)
{
	static uint8_t text[300000];
	int pipes[2];
	size_t got = 0;

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, pipes[1]), 0);
	print(0, sizeof(text));
	for (int i = 0; i < 300 && got < sizeof(text); i++) {
		ssize_t n;

		turn();
		n = read(pipes[0], text + got, MIN(sizeof(text) - got, 5000u));
		got += n > 0 ? (size_t) n : 0;
	}
	ck_assert_uint_eq(got, sizeof(text));
	check_text(text, 0, got);
	ck_assert_uint_eq(serial_stats(&serial).dropped, 0);
	(void) fd_close(pipes[0]);
}
END_TEST

/* R110: 3 MiB while nobody reads: what is lost is the oldest, and it is counted. */
START_TEST(serial_overflow)
{
	const uint64_t total = 3 << 20;
	static uint8_t text[2 << 20];
	uint64_t got = 0, first;
	int pipes[2];

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, pipes[1]), 0);
	print(0, 100000);
	turn(); /* fills the pipe */
	print(100000, total - 100000);
	for (int i = 0; i < 300; i++) {
		ssize_t n;

		turn();
		n = read(pipes[0], text + got, sizeof(text) - got);
		got += n > 0 ? (uint64_t) n : 0;
	}
	ck_assert_uint_eq(got + serial_stats(&serial).dropped, total);
	ck_assert_uint_ge(got, SERIAL_RING);
	first = got - SERIAL_RING;
	check_text(text, 0, first);                                      /* what the pipe had */
	check_text(text + first, total - SERIAL_RING, SERIAL_RING); /* and the newest */
	(void) fd_close(pipes[0]);
}
END_TEST

START_TEST(serial_no_reader)
{
	int pipes[2];
	char taken[10];

	/* of a pipe epoll says ERR, of a socket HUP */
	ck_assert_int_eq(_i ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipes) : pipe2(pipes, O_CLOEXEC), 0);
	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, pipes[1]), 0);
	print(0, 10);
	turn();
	ck_assert_int_eq(read(pipes[0], taken, sizeof(taken)), sizeof(taken)); /* or a socket's end is an error as well */
	(void) fd_close(pipes[0]);
	for (int i = 0; i < 5; i++) {
		print(10, 1000);
		turn();
	}
	ck_assert_uint_gt(serial_stats(&serial).dropped, 0);
	ck_assert_uint_eq(serial_stats(&serial).bytes, 5010);
	/* and the loop has nothing to do now: no event that comes again and again */
	for (int i = 0; i < 5; i++)
		turn();
	ck_assert_int_eq(poll(&(struct pollfd) { .fd = loop.epoll_fd, .events = POLLIN }, 1, 0), 0);
}
END_TEST

/* Once its reader has gone the console is nobody: not the descriptor that has its number afterwards, and what is still to be
 * sent is thrown away to the last byte. */
START_TEST(serial_closed)
{
	int pipes[2], others[2];
	char byte;

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, pipes[1]), 0);
	(void) fd_close(pipes[0]);
	print(0, 100000); /* the first part of it fails, which closes */
	for (int i = 0; i < 5; i++)
		turn();
	ck_assert_int_eq(pipe2(others, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert(others[0] == pipes[1] || others[1] == pipes[1]);
	print(0, 500000); /* more than one turn of the loop takes */
	for (int i = 0; i < 20; i++)
		turn();
	ck_assert_uint_eq(serial_stats(&serial).dropped, 600000);
	ck_assert_int_lt((int) read(others[0], &byte, 1), 0);
	ck_assert_int_eq(poll(&(struct pollfd) { .fd = loop.epoll_fd, .events = POLLIN }, 1, 0), 0);
	(void) fd_close(others[0]);
	(void) fd_close(others[1]);
}
END_TEST

/* A VM without a console: errno says nothing, for nothing was called. */
START_TEST(serial_none)
{
	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, -1), 0);
	print(0, 5000);
	errno = EAGAIN;
	turn();
	ck_assert_uint_eq(serial_stats(&serial).dropped, 5000);
}
END_TEST

START_TEST(serial_special_files)
{
	static const char *const files[] = { "/dev/null", "/dev/full" };

	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, open(files[_i], O_WRONLY | O_CLOEXEC)), 0);
	print(0, 500000);
	for (int i = 0; i < 20; i++)
		turn();
	ck_assert_uint_eq(serial_stats(&serial).dropped, _i == 0 ? 0 : 500000);
	ck_assert_int_eq(poll(&(struct pollfd) { .fd = loop.epoll_fd, .events = POLLIN }, 1, 0), 0);
}
END_TEST

/* A file has a bound, and holds the end of the output whatever came before. */
START_TEST(serial_file)
{
	const uint64_t total = 9 << 20, part = 400000;
	int fd = memfd_create("console", MFD_CLOEXEC), copy = dup(fd);
	static uint8_t text[16 << 20];
	ssize_t n;

	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, fd), 0);
	for (uint64_t at = 0; at < total; at += part) {
		print(at, MIN(part, total - at));
		for (int i = 0; i < 3; i++)
			turn();
		ck_assert_int_le(lseek(copy, 0, SEEK_END), SERIAL_FILE_MAX + 65536);
	}
	n = pread(copy, text, sizeof(text), 0);
	ck_assert_int_gt((int) n, (int) SERIAL_KEEP);
	ck_assert_int_eq(strncmp((char *) text, "\n[croft: earlier", 16), 0);
	n -= 38; /* the mark */
	check_text(text + 38, total - (uint64_t) n, (uint64_t) n);
	ck_assert_uint_eq(serial_stats(&serial).dropped, 0);
	(void) fd_close(copy);
}
END_TEST

/* A restored VM's console goes on in the file of before: that counts towards the bound. */
START_TEST(serial_file_goes_on)
{
	int fd = memfd_create("console", MFD_CLOEXEC), copy = dup(fd);
	char text[64];

	ck_assert_int_eq(ftruncate(fd, SERIAL_FILE_MAX - 999), 0);
	ck_assert_int_eq(lseek(fd, 0, SEEK_END), SERIAL_FILE_MAX - 999);
	ck_assert_int_eq(serial_init(&serial, &loop, irq_fd, fd), 0);
	print(0, 999);
	turn();
	ck_assert_int_eq(lseek(copy, 0, SEEK_END), SERIAL_FILE_MAX);
	print(999, 1);
	for (int i = 0; i < 3; i++)
		turn();
	ck_assert_int_eq(lseek(copy, 0, SEEK_END), 37 + 1000);
	ck_assert_uint_ge(serial.file_size, 1000); /* what was kept counts towards the bound again */
	ck_assert_int_eq(pread(copy, text, sizeof(text), 0), sizeof(text));
	ck_assert_int_eq(strncmp(text, "\n[croft: earlier", 16), 0);
	(void) fd_close(copy);
}
END_TEST
static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-serial");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, serial_probe);
	tcase_add_test(tcase, serial_widths);
	tcase_add_loop_test(tcase, serial_restored, 0, 2);
	tcase_add_test(tcase, serial_pipe);
	tcase_add_test(tcase, serial_overflow);
	tcase_add_loop_test(tcase, serial_no_reader, 0, 2);
	tcase_add_test(tcase, serial_closed);
	tcase_add_test(tcase, serial_none);
	tcase_add_loop_test(tcase, serial_special_files, 0, 2);
	tcase_add_test(tcase, serial_file);
	tcase_add_test(tcase, serial_file_goes_on);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	(void) signal(SIGPIPE, SIG_IGN);
	return suite_run(make_suite());
}
