/* SPDX-License-Identifier: Apache-2.0
 *
 * See serial.h.
 */
#include "serial.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define IER_THRI 0x02
#define IIR_NONE 0x01
#define IIR_THRI 0x02
#define IIR_FIFO 0xc0
#define LCR_DLAB 0x80
#define LSR_THRE 0x20
#define LSR_TEMT 0x40
#define MCR_LOOP 0x10
#define MSR_IDLE 0xb0 /* carrier, data set ready, clear to send */
#define CHUNK 65536u
#define PAUSE_USEC (5 * USEC_PER_MSEC)

static void raise_irq(struct serial *serial)
{
	uint64_t one = 1;

	/* fails only when 2^64 - 2 interrupts wait: one is pending anyway */
	(void) !write(serial->irq_fd, &one, sizeof(one));
}

/* In loopback the modem's outputs are its inputs: RTS CTS, DTR DSR, OUT1 RI, OUT2 DCD. */
static uint8_t modem_status(const struct serial *serial)
{
	uint8_t mcr = serial->mcr;

	if (!(mcr & MCR_LOOP))
		return MSR_IDLE;
	return (uint8_t) ((mcr & 0x02) << 3 | (mcr & 0x01) << 5 | (mcr & 0x04) << 4 | (mcr & 0x08) << 4);
}

static uint8_t read_iir(struct serial *serial)
{
	uint8_t fifo = serial->fifo ? IIR_FIFO : 0;

	if (!serial->thr_pending || !(serial->ier & IER_THRI))
		return fifo | IIR_NONE;
	serial->thr_pending = false; /* reading it is the acknowledgement */
	return fifo | IIR_THRI;
}

void serial_read(void *data, uint64_t offset, uint8_t *bytes, uint32_t len)
{
	struct serial *serial = data;
	bool dlab;

	memset(bytes, 0xff, len);
	if (len != 1)
		return;
	(void) pthread_mutex_lock(&serial->lock);
	dlab = serial->lcr & LCR_DLAB;
	switch (offset) {
	case 0:
		bytes[0] = dlab ? serial->dll : 0; /* nothing is ever received */
		break;
	case 1:
		bytes[0] = dlab ? serial->dlm : serial->ier;
		break;
	case 2:
		bytes[0] = read_iir(serial);
		break;
	case 3:
		bytes[0] = serial->lcr;
		break;
	case 4:
		bytes[0] = serial->mcr;
		break;
	case 5:
		bytes[0] = LSR_THRE | LSR_TEMT; /* the ring always takes one more */
		break;
	case 6:
		bytes[0] = modem_status(serial);
		break;
	default:
		bytes[0] = serial->scr;
		break;
	}
	(void) pthread_mutex_unlock(&serial->lock);
}

static void put_byte(struct serial *serial, uint8_t byte)
{
	uint64_t one = 1;

	if (serial->head - serial->tail == SERIAL_RING) {
		serial->tail++;
		serial->dropped++;
	}
	serial->ring[serial->head++ % SERIAL_RING] = byte;
	if (!serial->is_awake)
		(void) !write(serial->wake_fd, &one, sizeof(one)); /* cannot fail: the loop reads it */
	serial->is_awake = true;
}

static void transmit(struct serial *serial, uint8_t byte)
{
	if (serial->mcr & MCR_LOOP)
		return;
	put_byte(serial, byte);
	if (serial->ier & IER_THRI) {
		serial->thr_pending = true;
		raise_irq(serial);
	}
}

static void write_ier(struct serial *serial, uint8_t value)
{
	bool enabled = (value & IER_THRI) && !(serial->ier & IER_THRI);

	serial->ier = value & 0x0f;
	if (enabled) { /* the transmitter is empty, so switching its interrupt on raises it */
		serial->thr_pending = true;
		raise_irq(serial);
	}
}

void serial_write(void *data, uint64_t offset, const uint8_t *bytes, uint32_t len)
{
	struct serial *serial = data;
	bool dlab;

	if (len != 1)
		return;
	(void) pthread_mutex_lock(&serial->lock);
	dlab = serial->lcr & LCR_DLAB;
	switch (offset) {
	case 0:
		if (dlab)
			serial->dll = bytes[0];
		else
			transmit(serial, bytes[0]);
		break;
	case 1:
		if (dlab)
			serial->dlm = bytes[0];
		else
			write_ier(serial, bytes[0]);
		break;
	case 2:
		serial->fifo = bytes[0] & 1;
		break;
	case 3:
		serial->lcr = bytes[0];
		break;
	case 4:
		serial->mcr = bytes[0] & 0x1f;
		break;
	case 7:
		serial->scr = bytes[0];
		break;
	default: /* line and modem status are read-only */
		break;
	}
	(void) pthread_mutex_unlock(&serial->lock);
}

/* Copies up to CHUNK bytes from the front without taking them; *ret_from says where they began. */
static size_t peek(struct serial *serial, uint8_t *buf, uint64_t *ret_from)
{
	size_t n;

	(void) pthread_mutex_lock(&serial->lock);
	*ret_from = serial->tail;
	n = (size_t) MIN(serial->head - serial->tail, (uint64_t) CHUNK);
	for (size_t i = 0; i < n; i++)
		buf[i] = serial->ring[(serial->tail + i) % SERIAL_RING];
	(void) pthread_mutex_unlock(&serial->lock);
	return n;
}

/* The guest may have pushed the tail on since the bytes were copied. */
static void take(struct serial *serial, uint64_t from, size_t n, bool lost)
{
	(void) pthread_mutex_lock(&serial->lock);
	if (from + n > serial->tail) {
		if (lost)
			serial->dropped += from + n - serial->tail;
		serial->tail = from + n;
	}
	(void) pthread_mutex_unlock(&serial->lock);
}

/* The file would grow over its bound: it begins anew with the end of what was sent. The ring still holds
 * those bytes; one that the guest overwrites meanwhile is a wrong byte in a console, no more. */
static void restart_file(struct serial *serial, uint64_t sent)
{
	static const char mark[] = "\n[croft: earlier output was dropped]\n";
	uint64_t keep = MIN(sent, SERIAL_KEEP);
	CLEANUP_FREE uint8_t *old = malloc(keep + 1);

	if (ftruncate(serial->console_fd, 0) < 0 || lseek(serial->console_fd, 0, SEEK_SET) < 0)
		return;
	serial->file_size = 0;
	if (!old)
		return;
	(void) pthread_mutex_lock(&serial->lock);
	for (uint64_t i = 0; i < keep; i++)
		old[i] = serial->ring[(sent - keep + i) % SERIAL_RING];
	(void) pthread_mutex_unlock(&serial->lock);
	/* on a full disk these are lost like the rest */
	(void) fd_write_all(serial->console_fd, mark, sizeof(mark) - 1);
	(void) fd_write_all(serial->console_fd, old, keep);
	serial->file_size = keep;
}

/* True when there is nothing left to send. */
static bool flush(struct serial *serial)
{
	uint8_t buf[CHUNK];
	uint64_t from;

	for (int turn = 0; turn < 4; turn++) { /* then others of the loop have their turn */
		size_t n = peek(serial, buf, &from);
		ssize_t done = -1;

		if (n == 0)
			return true;
		if (serial->is_file && serial->file_size + n > SERIAL_FILE_MAX)
			restart_file(serial, from);
		if (serial->console_fd >= 0)
			done = write(serial->console_fd, buf, n);
		if (done < 0 && serial->console_fd >= 0 && (errno == EAGAIN || errno == EINTR))
			return false;
		/* nobody reads, or the disk is full: the guest is not to notice */
		take(serial, from, done < 0 ? n : (size_t) done, done < 0);
		serial->file_size += done < 0 ? 0 : (uint64_t) done;
	}
	return false;
}

static void on_pause_over(void *data);

/* Sends, and sees to it that we come back: when there is room, in a moment, or when the guest writes again. */
static void pump(struct serial *serial)
{
	bool done = flush(serial);
	uint64_t one = 1;

	loop_watch(serial->loop, &serial->out, done ? 0 : EPOLLOUT);
	if (done)
		loop_timer_arm(serial->loop, &serial->pause, PAUSE_USEC, on_pause_over, serial);
	else if (serial->out.fd < 0) /* always ready, epoll refuses it: the wake descriptor does */
		(void) !write(serial->wake_fd, &one, sizeof(one));
}

static void on_pause_over(void *data)
{
	struct serial *serial = data;
	bool is_empty;

	(void) pthread_mutex_lock(&serial->lock);
	is_empty = serial->head == serial->tail;
	serial->is_awake = !is_empty;
	(void) pthread_mutex_unlock(&serial->lock);
	if (!is_empty)
		pump(serial);
}

static void on_writable(void *data, uint32_t events)
{
	struct serial *serial = data;

	if (events & (EPOLLERR | EPOLLHUP)) { /* the reader has gone, and we would be told so for ever */
		loop_remove(serial->loop, &serial->out);
		serial->console_fd = fd_close(serial->console_fd);
	}
	pump(serial);
}

static void on_wake(void *data, uint32_t events)
{
	struct serial *serial = data;
	uint64_t count;

	(void) events;
	(void) !read(serial->wake_fd, &count, sizeof(count)); /* only clears it */
	pump(serial);
}

static int open_console(struct serial *serial, int console_fd)
{
	struct stat st;
	int r;

	if (fstat(console_fd, &st) < 0)
		return -errno;
	r = fd_set_nonblock(console_fd);
	if (r < 0)
		return r;
	serial->is_file = S_ISREG(st.st_mode);
	serial->file_size = (uint64_t) st.st_size; /* of a VM that was restored: what it wrote before it slept */
	r = loop_add(serial->loop, &serial->out, console_fd, 0, on_writable, serial);
	return r == -EPERM ? 0 : r; /* a file or /dev/null: always ready */
}

int serial_init(struct serial *serial, struct loop *loop, int irq_fd, int console_fd)
{
	int r;

	*serial = (struct serial) SERIAL_NULL;
	serial->irq_fd = irq_fd;
	serial->loop = loop;
	serial->ring = malloc(SERIAL_RING);
	serial->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = pthread_mutex_init(&serial->lock, NULL);
	if (!serial->ring || serial->wake_fd < 0 || r != 0)
		return -ENOMEM;
	r = loop_add(loop, &serial->wake, serial->wake_fd, EPOLLIN, on_wake, serial);
	if (r == 0 && console_fd >= 0)
		r = open_console(serial, console_fd);
	if (r < 0)
		return r;
	serial->console_fd = console_fd;
	return 0;
}

void serial_deinit(struct serial *serial)
{
	if (!serial->loop)
		return;
	if (serial->ring && serial->console_fd >= 0)
		(void) flush(serial);
	loop_timer_disarm(serial->loop, &serial->pause);
	loop_remove(serial->loop, &serial->wake);
	loop_remove(serial->loop, &serial->out);
	(void) fd_close(serial->console_fd);
	(void) fd_close(serial->wake_fd);
	(void) pthread_mutex_destroy(&serial->lock);
	free(serial->ring);
	*serial = (struct serial) SERIAL_NULL;
}

void serial_save(struct serial *serial, struct serial_state *ret)
{
	(void) pthread_mutex_lock(&serial->lock);
	*ret = (struct serial_state) { .ier = serial->ier, .lcr = serial->lcr, .mcr = serial->mcr, .scr = serial->scr,
		.dll = serial->dll, .dlm = serial->dlm, .fifo = serial->fifo, .thr_pending = serial->thr_pending };
	(void) pthread_mutex_unlock(&serial->lock);
}

void serial_load(struct serial *serial, const struct serial_state *state)
{
	(void) pthread_mutex_lock(&serial->lock);
	serial->ier = state->ier;
	serial->lcr = state->lcr;
	serial->mcr = state->mcr;
	serial->scr = state->scr;
	serial->dll = state->dll;
	serial->dlm = state->dlm;
	serial->fifo = state->fifo;
	serial->thr_pending = state->thr_pending;
	(void) pthread_mutex_unlock(&serial->lock);
	if (state->thr_pending) /* its edge stayed with the old machine */
		raise_irq(serial);
}

struct serial_stats serial_stats(struct serial *serial)
{
	struct serial_stats stats;

	(void) pthread_mutex_lock(&serial->lock);
	stats = (struct serial_stats) { .bytes = serial->head, .dropped = serial->dropped };
	(void) pthread_mutex_unlock(&serial->lock);
	return stats;
}
