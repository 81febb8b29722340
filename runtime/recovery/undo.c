// SPDX-License-Identifier: GPL-2.0-or-later
/* Undoes registrations; recovery/undo.h describes it. */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kref.h>
#include <linux/kthread.h>
#include <linux/slab.h>

#include "base/symbols.h"
#include "domain/registrations.h"
#include "recovery/undo.h"

/* How long one may take. */
#define UNDO_MS 10000

typedef void (*inverse_t)(unsigned long, unsigned long, unsigned long, unsigned long);

/**
 * struct undoing - A registration that is being undone.
 * @users: The thread that does it, and the one that waits.
 * @done: It is undone.
 * @inverse: The function.
 * @made: The registration.
 */
struct undoing {
	struct kref users;
	struct completion done;
	inverse_t inverse;
	struct guardrail_registration *made;
};

static void release(struct kref *users)
{
	struct undoing *undoing = container_of(users, struct undoing, users);

	kfree(undoing->made);
	kfree(undoing);
}

static int run(void *data)
{
	struct undoing *undoing = data;
	const unsigned long *args = undoing->made->args;

	undoing->inverse(args[0], args[1], args[2], args[3]);
	complete(&undoing->done);
	kref_put(&undoing->users, release);
	module_put_and_kthread_exit(0);
	return 0;
}

/* Undoes a registration, and frees its note. False where that does not end. */
static bool undo(struct guardrail_registration *made)
{
	struct undoing *undoing = kzalloc(sizeof(*undoing), GFP_KERNEL | __GFP_NOFAIL);
	struct task_struct *thread;
	bool is = true;

	kref_init(&undoing->users);
	init_completion(&undoing->done);
	undoing->made = made;
	undoing->inverse = (inverse_t)guardrail_find_symbol(made->inverse);
	if (!undoing->inverse) {
		pr_warn("domain %u: what %s has registered stays, since the kernel has no %s\n", made->domain, made->function, made->inverse);
		goto out;
	}
	__module_get(THIS_MODULE);
	kref_get(&undoing->users);
	thread = kthread_run(run, undoing, "guardrail_undo");
	if (IS_ERR(thread)) {
		pr_warn("domain %u: what %s has registered stays, since there is no memory for a thread\n", made->domain, made->function);
		kref_put(&undoing->users, release);
		module_put(THIS_MODULE);
		goto out;
	}
	is = wait_for_completion_timeout(&undoing->done, msecs_to_jiffies(UNDO_MS));
	if (is)
		pr_info("domain %u: %s has undone what %s registered\n", made->domain, made->inverse, made->function);
	else
		pr_err("domain %u: %s does not end in %u s, which would undo what %s registered\n", made->domain, made->inverse, UNDO_MS / 1000,
		       made->function);
out:
	kref_put(&undoing->users, release);
	return is;
}

bool guardrail_undo(u32 domain)
{
	struct guardrail_registration *made;

	while ((made = guardrail_registration_take(domain)))
		if (!undo(made))
			return false;
	return true;
}
