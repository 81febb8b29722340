// SPDX-License-Identifier: GPL-2.0-or-later
/* Requests to devices that transactions have made; transact/requests.h describes them. */
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "transact/requests.h"

static const struct guardrail_requests *requests;

void __init guardrail_requests_register(const struct guardrail_requests *functions)
{
	requests = functions;
}

bool guardrail_requests_add(struct guardrail_transaction *tx, unsigned long request)
{
	const struct guardrail_mark mark = { .p = request, .kind = GUARDRAIL_LOGGED_REQUEST };

	if (!guardrail_log_add(&tx->log, &mark)) {
		guardrail_transact_irrevocable(tx, "its log has no room left", NULL);
		return false;
	}
	tx->asked = true;
	return true;
}

/* Requests are ended where the code may sleep. */
static bool may_sleep(void)
{
	return preemptible() && !rcu_preempt_depth();
}

static bool judge(struct guardrail_mark *mark, void *payload, void *data)
{
	if (mark->kind != GUARDRAIL_LOGGED_REQUEST || !requests->is_under_way(mark->p))
		return true;
	guardrail_transact_irrevocable(data, "whose request is still under way", requests->by);
	return false;
}

void guardrail_requests_judge(struct guardrail_transaction *tx)
{
	if (tx->asked && !may_sleep())
		guardrail_log_each(&tx->log, judge, tx);
}

static bool end(struct guardrail_mark *mark, void *payload, void *data)
{
	if (mark->kind == GUARDRAIL_LOGGED_REQUEST && requests->is_under_way(mark->p))
		requests->end(mark->p);
	return true;
}

void guardrail_requests_end(struct guardrail_transaction *tx)
{
	if (tx->asked && may_sleep())
		guardrail_log_each(&tx->log, end, NULL);
}

static bool drop(struct guardrail_mark *mark, void *payload, void *data)
{
	const struct guardrail_transaction *tx = data;

	if (mark->kind == GUARDRAIL_LOGGED_REQUEST)
		requests->drop(tx->domain, mark->p);
	return true;
}

void guardrail_requests_drop(struct guardrail_transaction *tx)
{
	if (tx->asked)
		guardrail_log_each(&tx->log, drop, tx);
}
