// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The recovery of a domain. Under the policy "recover", a violation refuses all further entries and
 * queues work. When no thread is inside any more, the work takes everything from the domain, loads
 * its modules anew, and restores the settings of its devices.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kmod.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/static_call.h>
#include <linux/umh.h>
#include <linux/workqueue.h>

#include "base/symbols.h"
#include "domain/entry.h"
#include "domain/module.h"
#include "domain/sleepers.h"
#include "recovery/class.h"
#include "recovery/device.h"
#include "recovery/recover.h"
#include "recovery/restart.h"
#include "recovery/teardown.h"
#include "rights/tag.h"

/*
 * How long to wait until threads have left, and until a module is loaded or unloaded. The others
 * are the waits until the loader runs once more, and until the kernel has forgotten a module.
 */
#define LEAVE_MS 10000
#define LOAD_MS 30000
#define AGAIN_MS 2000
#define GONE_MS 1000

/**
 * struct recovery - The recovery of a domain.
 * @work: Does it; holds a reference to this module while it is queued.
 * @why: Why the domain was killed.
 * @killed: When that was.
 * @first: Jiffies of the first recovery in a row.
 * @in_a_row: How many there were in the row.
 */
struct recovery {
	struct work_struct work;
	char why[160];
	ktime_t killed;
	unsigned long first;
	unsigned int in_a_row;
};

static struct recovery recoveries[GUARDRAIL_DOMAINS];
/* The domains whose recovery is under way, a bit each. */
static unsigned long recovering;
static struct workqueue_struct *queue;
DEFINE_STATIC_CALL_NULL(guardrail_known_module, find_module);
/*
 * Held while something is taken from a domain, and while the pointers to its modules are used: one
 * domain at a time. A module of a dead domain is unloaded under it. Taken in process context. The
 * mutexes of the classes nest inside.
 */
static DEFINE_MUTEX(teardown_lock);

static char loader[128] = "/sbin/modprobe";
module_param_string(loader, loader, sizeof(loader), 0644);
MODULE_PARM_DESC(loader, "the program that loads a module after a violation (loader NAME) and unloads it (loader -r NAME)");

static unsigned int most_in_a_minute = 5;
module_param_named(recoveries, most_in_a_minute, uint, 0644);
MODULE_PARM_DESC(recoveries, "how often in a minute a domain recovers; one that is killed more often stays dead");

void guardrail_recover(u32 domain, const char *why)
{
	struct recovery *recovery;
	char names[64];

	if (!is_domain(domain) || guardrail_is_dead(domain))
		return;
	if (guardrail_outlives(domain))
		guardrail_restarts_begin(domain);
	if (test_and_set_bit(domain, &guardrail_dead_domains))
		return;
	recovery = &recoveries[domain];
	recovery->killed = ktime_get();
	strscpy(recovery->why, why, sizeof(recovery->why));
	guardrail_domain_name(domain, names, sizeof(names));
	pr_err("domain %u (%s) is killed: %s\n", domain, names, why);
	if (!try_module_get(THIS_MODULE))
		return;
	if (!queue_work(queue, &recovery->work))
		module_put(THIS_MODULE);
}

/* Waits until no thread is in the domain. */
static bool wait_outside(u32 domain)
{
	const struct guardrail_recovery_class *class;
	unsigned long end = jiffies + msecs_to_jiffies(LEAVE_MS);

	while (guardrail_inside_domain(domain)) {
		if (time_after(jiffies, end))
			return false;
		for_each_class_with(class, settle)
			class->settle(domain);
		msleep(10);
		guardrail_sleepers_wake(domain);
	}
	return true;
}

static void print_released(u32 domain, const struct guardrail_released *released)
{
	pr_info("domain %u is cleared: released %u timers, %u works, %u network devices, %u character devices, %u PCI devices, %u interrupts, %u frames, %u mappings, %u allocations\n",
		domain, released->timers, released->works, released->netdevs, released->miscdevices, released->devices, released->irqs,
		released->packets, released->mappings, released->allocations);
	if (released->left)
		pr_warn("domain %u: %u allocations cannot be released and are lost\n", domain, released->left);
}

static bool anything(const struct guardrail_released *released)
{
	return released->timers || released->works || released->netdevs || released->miscdevices || released->devices || released->irqs ||
	       released->packets || released->mappings || released->allocations || released->left;
}

/*
 * Takes objects that stay from the modules. Returns 1 where the modules must be kept in memory, else 0; or an error,
 * with the reason in @failed.
 */
static int park(u32 domain, const struct guardrail_modules *modules, bool fails, const char **failed)
{
	const struct guardrail_recovery_class *class;
	int kept = 0, result;

	lockdep_assert_held(&teardown_lock);
	for_each_class_with(class, park) {
		result = class->park(domain, modules, fails);
		if (result < 0) {
			*failed = class->cannot_park;
			return result;
		}
		kept |= result;
	}
	return kept;
}

void guardrail_clear_dead(u32 domain, bool *gone)
{
	struct guardrail_modules *modules = kzalloc(sizeof(*modules), GFP_KERNEL);
	struct guardrail_released released;
	struct guardrail_late late;
	const char *failed;

	mutex_lock(&teardown_lock);
	if (modules && wait_outside(domain)) {
		guardrail_modules_of(domain, modules);
		park(domain, modules, true, &failed);
		if (!guardrail_teardown(domain, modules, !test_bit(domain, &recovering), &released, &late))
			pr_err("the kernel continues to use what domain %u has registered: what it holds is not released\n", domain);
		guardrail_release_late(&late);
		if (anything(&released))
			print_released(domain, &released);
	} else {
		pr_err("threads are still in domain %u after %u s: what it holds is not released\n", domain, LEAVE_MS / 1000);
	}
	WRITE_ONCE(*gone, true);
	mutex_unlock(&teardown_lock);
	kfree(modules);
}

/*
 * Runs the loader until a module is loaded or unloaded. The kernel may still know a module that was
 * just unloaded, and then refuses one of its name. So the loader may run more than once.
 */
static int load(u32 domain, char *name, bool up)
{
	char *argv[] = { loader, up ? name : "-r", up ? NULL : name, NULL };
	static char *envp[] = { "HOME=/", "PATH=/sbin:/bin:/usr/sbin:/usr/bin", NULL };
	unsigned long end = jiffies + msecs_to_jiffies(LOAD_MS), again = jiffies;

	while (guardrail_module_is_there(domain, name) != up) {
		if (time_after(jiffies, end)) {
			pr_err("%s has not %sloaded %s in %u s\n", loader, up ? "" : "un", name, LOAD_MS / 1000);
			return -ETIMEDOUT;
		}
		if (time_after_eq(jiffies, again)) {
			int err = call_usermodehelper(loader, argv, envp, UMH_WAIT_EXEC);

			if (err) {
				pr_err("%s cannot be run (error %d), which is to %sload %s\n", loader, err, up ? "" : "un", name);
				return err;
			}
			again = jiffies + msecs_to_jiffies(AGAIN_MS);
		}
		msleep(10);
	}
	return 0;
}

/* A module that was unloaded uses other modules until the kernel has forgotten it. */
static void wait_gone(const char *name)
{
	unsigned long end = jiffies + msecs_to_jiffies(GONE_MS);
	bool there = true;

	while (there && time_before(jiffies, end)) {
		preempt_disable();
		rcu_read_lock();
		there = static_call(guardrail_known_module)(name);
		rcu_read_unlock();
		preempt_enable();
		if (there)
			msleep(5);
	}
}

/* After the teardown nothing calls the modules, so they can be unloaded and loaded anew. */
static int reload(u32 domain, struct guardrail_modules *modules)
{
	unsigned long find = guardrail_find_symbol("find_module");
	int err = 0, i;

	if (find)
		static_call_update(guardrail_known_module, (typeof(&find_module))find);
	for (i = 0; i < modules->n && !err; i++) {
		err = load(domain, modules->name[i], false);
		if (!err && find)
			wait_gone(modules->name[i]);
	}
	for (i = modules->n - 1; i >= 0 && !err; i--)
		err = load(domain, modules->name[i], true);
	return err;
}

/*
 * Does all work that needs the old modules. Returns NULL, or why the recovery fails; then no memory
 * was released. @err gets an error where the modules could not be kept.
 */
static const char *take_down(u32 domain, struct guardrail_modules *modules, bool too_often, struct guardrail_late *late, int *err)
{
	struct guardrail_released released;
	const char *failed = NULL;
	int parked;

	lockdep_assert_held(&teardown_lock);
	guardrail_modules_of(domain, modules);
	/* Its init function was ended, or it was unloaded meanwhile. */
	if (!modules->n)
		return "it has no module any more";
	too_often |= guardrail_outlives(domain) && !guardrail_can_keep(modules->n);
	parked = park(domain, modules, too_often, &failed);
	if (too_often)
		return "it was killed too often";
	if (parked < 0)
		return failed;
	if (!guardrail_teardown(domain, modules, false, &released, late)) {
		guardrail_release_late(late);
		return "the kernel continues to use what it has registered";
	}
	*err = parked ? guardrail_keep_modules(domain) : 0;
	print_released(domain, &released);
	return NULL;
}

/* Returns NULL, or why the recovery fails. */
static const char *recover(u32 domain, struct guardrail_modules *modules, bool too_often)
{
	const struct guardrail_recovery_class *class;
	struct guardrail_late late;
	const char *failed;
	int err = 0;

	/* Modules stay as long as the lock is held. */
	mutex_lock(&teardown_lock);
	guardrail_modules_of(domain, modules);
	guardrail_silence(domain, modules);
	mutex_unlock(&teardown_lock);
	if (!modules->n)
		return "it has no module any more";
	if (!wait_outside(domain))
		return "threads are still inside";
	for_each_class_with(class, save)
		class->save(domain);
	mutex_lock(&teardown_lock);
	failed = take_down(domain, modules, too_often, &late, &err);
	mutex_unlock(&teardown_lock);
	if (failed)
		return failed;
	err = err ?: reload(domain, modules);
	guardrail_release_late(&late);
	if (err)
		return "its modules could not be loaded anew";
	for_each_class_with(class, restore)
		if (class->restore(domain))
			return class->not_restored;
	return NULL;
}

/* A domain that is killed again and again does not improve. */
static bool too_often(struct recovery *recovery)
{
	if (!recovery->in_a_row || time_after(jiffies, recovery->first + 60 * HZ)) {
		recovery->first = jiffies;
		recovery->in_a_row = 0;
	}
	return ++recovery->in_a_row > READ_ONCE(most_in_a_minute);
}

/* The recovery is over, with success where @failed is NULL. */
static void conclude(u32 domain, const struct recovery *recovery, const char *failed)
{
	const struct guardrail_recovery_class *class;
	/* Its modules were killed again while they were loaded: another try follows. */
	bool again = work_pending(&recovery->work);

	if (failed && !again) {
		for_each_class_with(class, fail)
			class->fail(domain);
	}
	if (failed)
		pr_err("recovery of domain %u failed: %s\n", domain, failed);
	else
		pr_info("recovery of domain %u is done, %lld ms after it was killed\n", domain,
			ktime_ms_delta(ktime_get(), recovery->killed));
	if (!work_pending(&recovery->work)) {
		clear_bit(domain, &recovering);
		guardrail_restarts_end(domain, !failed);
	}
	for_each_class_with(class, forget)
		class->forget(domain);
}

static void work(struct work_struct *work)
{
	struct recovery *recovery = container_of(work, struct recovery, work);
	u32 domain = recovery - recoveries;
	struct guardrail_modules *modules = kzalloc(sizeof(*modules), GFP_KERNEL);
	const char *failed = "no memory";
	unsigned int no_io;

	/* Its modules were killed while they were loaded, and have been loaded since. */
	if (!guardrail_is_dead(domain)) {
		kfree(modules);
		module_put(THIS_MODULE);
		return;
	}
	/* Memory that has to be written to a disk first may wait for this recovery. */
	no_io = memalloc_noio_save();
	set_bit(domain, &recovering);
	pr_info("recovery of domain %u begins\n", domain);
	if (modules)
		failed = recover(domain, modules, too_often(recovery));
	conclude(domain, recovery, failed);
	kfree(modules);
	memalloc_noio_restore(no_io);
	module_put(THIS_MODULE);
}

int __init guardrail_recover_init(void)
{
	u32 domain;

	for (domain = 0; domain < ARRAY_SIZE(recoveries); domain++)
		INIT_WORK(&recoveries[domain].work, work);
	queue = alloc_workqueue("guardrail", WQ_UNBOUND, 1);
	if (!queue)
		return -ENOMEM;
	guardrail_device_init();
	return 0;
}

void guardrail_recover_exit(void)
{
	const struct guardrail_recovery_class *class;

	guardrail_device_exit();
	destroy_workqueue(queue);
	for_each_class_with(class, exit)
		class->exit();
}
