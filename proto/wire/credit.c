/* SPDX-License-Identifier: Apache-2.0
 *
 * See credit.h. Pure arithmetic: no clock, no I/O.
 */
#include "wire/credit.h"

#include "base/util.h"

#define CREDIT_MAX (UINT64_C(1) << 40)

uint32_t credit_out_take(struct credit_out *out, uint64_t want)
{
	uint64_t n = MIN(MIN(want, out->left), (uint64_t) CREDIT_FRAME_MAX);

	out->left -= n;
	return (uint32_t) n;
}

bool credit_out_grant(struct credit_out *out, uint64_t bytes)
{
	if (bytes > CREDIT_MAX || out->left > CREDIT_MAX - bytes)
		return false;
	out->left += bytes;
	return true;
}

void credit_in_init(struct credit_in *in, uint32_t window)
{
	in->window = window;
	in->granted = window;
	in->consumed = 0;
}

bool credit_in_receive(struct credit_in *in, uint64_t bytes)
{
	if (bytes > in->granted)
		return false;
	in->granted -= bytes;
	return true;
}

uint32_t credit_in_consume(struct credit_in *in, uint64_t bytes)
{
	uint32_t grant;

	in->consumed += bytes;
	if (in->consumed == 0 || in->consumed < in->window / 2)
		return 0;
	grant = (uint32_t) MIN(in->consumed, (uint64_t) UINT32_MAX);
	in->consumed -= grant;
	in->granted += grant;
	return grant;
}
