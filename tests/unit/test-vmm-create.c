/* SPDX-License-Identifier: Apache-2.0
 *
 * The first steps of a VM against a KVM of our own behind ioctl(): one that is none, too old, held by another hypervisor, or
 * whose KVM_CREATE_VM is interrupted. And how a TAP has to be open. Cases R121 R122.
 */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/kvm.h>
#include <net/if.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/suite.h"
#include "vm.h"

static struct {
	int version;
	int lacks;                       /* a capability */
	unsigned int interruptions;      /* of KVM_CREATE_VM */
	int create_errno;                /* once they are over; 0: it works */
	unsigned int n_creates;
} kvm;

static short tap_flags;

static int fail_with(int err_no)
{
	errno = err_no;
	return -1;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	unsigned long argument;
	va_list args;

	va_start(args, request);
	argument = va_arg(args, unsigned long);
	va_end(args);
	switch (request) {
	case TUNGETIFF:
		((struct ifreq *) argument)->ifr_flags = tap_flags;
		return 0;
	case KVM_GET_API_VERSION:
		return fd < 0 ? fail_with(EBADF) : kvm.version;
	case KVM_CHECK_EXTENSION:
		return (int) argument != kvm.lacks;
	case KVM_CREATE_VM:
		if (kvm.n_creates++ < kvm.interruptions)
			return fail_with(EINTR);
		return kvm.create_errno ? fail_with(kvm.create_errno) : open("/dev/null", O_RDWR | O_CLOEXEC);
	default:
		return fail_with(EPERM); /* the step behind it: there is a VM then */
	}
}

/* What becomes of a VM on the KVM that was set. */
static struct err build(int kvm_fd)
{
	static const struct vm_hooks hooks = { .event = NULL };
	struct vm_config config;
	struct err err = ERR_NULL;
	struct vm *vm = NULL;
	struct loop loop;

	config_init(&config);
	config.kvm_fd = kvm_fd;
	config.vcpus = 1;
	config.memory_mib = 64;
	ck_assert_int_eq(loop_init(&loop), 0);
	ck_assert_int_lt(vm_build(&vm, &loop, &config, "", &hooks, NULL, &err), 0);
	loop_deinit(&loop);
	config_deinit(&config);
	return err;
}

static int some_kvm(void)
{
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static void set_up(void)
{
	memset(&kvm, 0, sizeof(kvm));
	kvm.version = KVM_API_VERSION;
	kvm.lacks = -1;
}

/* A signal while it waits for other CPUs: tried again, twenty times in all. */
START_TEST(create_is_interrupted)
{
	struct err err;

	kvm.interruptions = (unsigned int) _i;
	err = build(some_kvm());
	ck_assert_int_eq((int) kvm.n_creates, MIN(_i + 1, 20));
	if (_i < 20) {
		ck_assert_int_eq((int) err.code, FAIL_VMM_START_FAILED);
		ck_assert_int_eq(err.err_no, EPERM);
		return;
	}
	ck_assert_int_eq((int) err.code, FAIL_KVM_UNAVAILABLE);
	ck_assert_int_eq(err.err_no, EINTR);
}
END_TEST

static const struct {
	int err_no;
	const char *says;
} creates[] = { { EBUSY, "another hypervisor" }, { ENODEV, "ENODEV" }, { ENOMEM, "ENOMEM" }, { EACCES, "EACCES" } };

START_TEST(create_fails)
{
	struct err err;

	kvm.create_errno = creates[_i].err_no;
	err = build(some_kvm());
	ck_assert_uint_eq(kvm.n_creates, 1);
	ck_assert_int_eq((int) err.code, FAIL_KVM_UNAVAILABLE);
	ck_assert_int_eq(err.err_no, creates[_i].err_no);
	ck_assert_msg(strstr(err.msg, creates[_i].says), "%s", err.msg);
}
END_TEST

static const struct {
	int cap;
	const char *name;
} caps[] = { { KVM_CAP_USER_MEMORY, "USER_MEMORY" }, { KVM_CAP_IRQFD, "IRQFD" }, { KVM_CAP_IOEVENTFD, "IOEVENTFD" },
	{ KVM_CAP_IMMEDIATE_EXIT, "IMMEDIATE_EXIT" }, { KVM_CAP_EXT_CPUID, "EXT_CPUID" }, { KVM_CAP_IRQCHIP, "IRQCHIP" },
	{ KVM_CAP_X86_MSR_FILTER, "X86_MSR_FILTER" } };

START_TEST(what_a_kvm_lacks_is_named)
{
	struct err err;

	kvm.lacks = caps[_i].cap;
	err = build(some_kvm());
	ck_assert_int_eq((int) err.code, FAIL_KVM_TOO_OLD);
	ck_assert_msg(strstr(err.msg, caps[_i].name), "%s", err.msg);
	ck_assert_uint_eq(kvm.n_creates, 0);
}
END_TEST

START_TEST(what_is_no_kvm)
{
	struct err err = build(-1);

	ck_assert_int_eq((int) err.code, FAIL_KVM_UNAVAILABLE);
	ck_assert_int_eq(err.err_no, EBADF);
	kvm.version = KVM_API_VERSION + 1;
	err = build(some_kvm());
	ck_assert_int_eq((int) err.code, FAIL_KVM_TOO_OLD);
	ck_assert_uint_eq(kvm.n_creates, 0);
}
END_TEST

/* A TAP without each of the three ways in which it has to be open. */
START_TEST(how_a_tap_is_open)
{
	static const short all = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, lacks[] = { 0, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR };
	char cmdline[CMDLINE_SIZE];
	struct vm_config config;
	struct err err = ERR_NULL;
	int r;

	config_init(&config);
	config.vcpus = 1;
	config.memory_mib = 64;
	config.has_net = true;
	config.net.mac[0] = 2;
	tap_flags = (short) (all & ~lacks[_i]);
	r = config_check(&config, cmdline, &err);
	ck_assert_int_eq((int) err.code, _i == 0 ? FAIL_NONE : FAIL_NET_INVALID);
	ck_assert_int_eq(r, _i == 0 ? 0 : -EINVAL);
	config_deinit(&config);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-create");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_loop_test(tcase, create_is_interrupted, 0, 23);
	tcase_add_loop_test(tcase, create_fails, 0, ARRAY_LEN(creates));
	tcase_add_loop_test(tcase, what_a_kvm_lacks_is_named, 0, ARRAY_LEN(caps));
	tcase_add_test(tcase, what_is_no_kvm);
	tcase_add_loop_test(tcase, how_a_tap_is_open, 0, 4);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
