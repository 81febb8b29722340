// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread whose entry was ended or refused waits on its way back to user space, where it holds no
 * locks or references any more. After the recovery the kernel restarts its call, as it does after a
 * signal.
 */
#include <linux/jiffies.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>
#include <linux/wait.h>
#include <asm/syscall.h>
#include <asm/unistd.h>

#include "base/limits.h"
#include "recovery/restart.h"

/* How long a thread waits for the end of a recovery, and how many threads do. */
#define WAIT_MS 60000
#define MOST 4096
/* A call of a thread fails if its entry was ended so often in this time. */
#define ENDS 2
#define AGAIN_MS 10000

/**
 * struct restart - A thread that restarts its system call on its way back to user space.
 * @work: Runs on that way.
 * @list: Place in restarts.
 * @task: The thread.
 * @domain: Domain whose recovery it waits for.
 * @ended: An entry of the call was ended.
 */
struct restart {
	struct callback_head work;
	struct list_head list;
	struct task_struct *task;
	u32 domain;
	bool ended;
};

static LIST_HEAD(restarts);
static unsigned int n_restarts;
/* Protects restarts, n_restarts, calls and next_call. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(lock);

/* Domains whose recovery is under way, and those in which it failed; a bit each. */
static unsigned long recovering, lost;
static DECLARE_WAIT_QUEUE_HEAD(over);

/**
 * struct call - A call that was restarted since its entry was ended.
 * @task: The thread; only compared.
 * @nr: Number of the call.
 * @args: Its first arguments.
 * @jiffies: When that was.
 */
static struct call {
	const struct task_struct *task;
	unsigned long nr, args[3], jiffies;
} calls[16];
static unsigned int next_call;

/* True where this call was ended again and again: it would be once more. */
static bool was_ended(const struct pt_regs *regs)
{
	const struct call call = {
		.task = current, .nr = regs->orig_ax, .args = { regs->di, regs->si, regs->dx }, .jiffies = jiffies,
	};
	unsigned long flags;
	int found = 0, i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < ARRAY_SIZE(calls); i++)
		found += calls[i].task == current && calls[i].nr == call.nr && !memcmp(calls[i].args, call.args, sizeof(call.args)) &&
			 time_before(jiffies, calls[i].jiffies + msecs_to_jiffies(AGAIN_MS));
	if (found < ENDS)
		calls[next_call++ % ARRAY_SIZE(calls)] = call;
	raw_spin_unlock_irqrestore(&lock, flags);
	return found >= ENDS;
}

/* The kernel does not see all errors of these calls: they may report success for data that was not written. */
static bool synchronizes(long nr)
{
	return nr == __NR_sync || nr == __NR_syncfs || nr == __NR_fsync || nr == __NR_fdatasync || nr == __NR_msync || nr == __NR_sync_file_range;
}

/* Called when the current thread holds nothing any more. */
static void wait_and_restart(u32 domain, bool ended)
{
	struct pt_regs *regs = task_pt_regs(current);
	long nr = syscall_get_nr(current, regs);

	if (current->flags & PF_EXITING)
		return;
	if (wait_event_killable_timeout(over, !test_bit(domain, &recovering), msecs_to_jiffies(WAIT_MS)) <= 0 || test_bit(domain, &lost))
		return;
	if (nr < 0 || !user_mode(regs) || (!syscall_get_error(current, regs) && !synchronizes(nr)))
		return;
	if (!ended || !was_ended(regs))
		regs->ax = -ERESTARTNOINTR;
}

static void make_again(struct callback_head *work)
{
	struct restart *restart = container_of(work, struct restart, work);
	unsigned long flags;

	raw_spin_lock_irqsave(&lock, flags);
	list_del(&restart->list);
	n_restarts--;
	raw_spin_unlock_irqrestore(&lock, flags);
	wait_and_restart(restart->domain, restart->ended);
	kfree(restart);
	module_put(THIS_MODULE);
}

void guardrail_restart(u32 domain, bool ended)
{
	struct restart *one, *restart;
	unsigned long flags;
	bool known = false, full;

	if (!test_bit(domain, &recovering) || !in_task() || current->flags & (PF_KTHREAD | PF_EXITING | PF_IO_WORKER))
		return;
	restart = kmalloc(sizeof(*restart), GFP_ATOMIC | __GFP_NOWARN);
	if (!restart)
		return;
	*restart = (struct restart){ .task = current, .domain = domain, .ended = ended };
	init_task_work(&restart->work, make_again);
	raw_spin_lock_irqsave(&lock, flags);
	list_for_each_entry(one, &restarts, list) {
		if (one->task != current)
			continue;
		one->ended |= ended;
		known = true;
	}
	full = !known && n_restarts == MOST;
	known |= full;
	if (!known) {
		list_add(&restart->list, &restarts);
		n_restarts++;
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	if (full)
		guardrail_limit_reached(GUARDRAIL_LIMIT_RESTARTS);
	if (known) {
		kfree(restart);
		return;
	}
	__module_get(THIS_MODULE);
	if (!task_work_add(current, &restart->work, TWA_SIGNAL))
		return;
	/* The thread is about to exit. */
	raw_spin_lock_irqsave(&lock, flags);
	list_del(&restart->list);
	n_restarts--;
	raw_spin_unlock_irqrestore(&lock, flags);
	kfree(restart);
	module_put(THIS_MODULE);
}

void guardrail_restart_dead(void)
{
	unsigned long domains = READ_ONCE(recovering);

	if (domains)
		guardrail_restart(__ffs(domains), false);
}

void guardrail_restarts_begin(u32 domain)
{
	clear_bit(domain, &lost);
	set_bit(domain, &recovering);
}

void guardrail_restarts_end(u32 domain, bool recovered)
{
	if (!recovered)
		set_bit(domain, &lost);
	clear_bit(domain, &recovering);
	wake_up_all(&over);
}
