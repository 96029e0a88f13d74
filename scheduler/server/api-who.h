/* SPDX-License-Identifier: Apache-2.0
 *
 * What the handlers of customers, tenants, keys and pools share. Nobody else includes this.
 */
#pragma once

#include "server/api.h"

/* INVALID_ARGUMENT naming the member; -EINVAL. */
int who_invalid(const char *field, const char *why, struct err *reterr);
/* `name`, valid, and with a customer's operator beginning with the customer's name and a dash. */
int who_read_name(const struct api_request *req, const json_t *body, const char **ret,
	struct err *reterr);
/* `customer`, by default the key's own: it exists, is not revoked and is reached. */
int who_read_customer(const struct api_request *req, const json_t *body, const char **ret,
	struct err *reterr);
int who_taken(const char *what, struct err *reterr); /* CONFLICT */
const char *who_state(int64_t revoked_us);
void who_on_no_content(struct api_request *req, const struct fleet_reply *reply);
/* Commits `ops` (also none: then when everything before is durable) and answers with the object. */
void who_commit_and_show(struct api_request *req, struct ops *ops, int status, const char *name,
	json_t *(*view)(const struct api_request *req, const char *name));
