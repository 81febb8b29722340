// SPDX-License-Identifier: GPL-2.0-or-later
/* Processor faults in entries: in code of the module, and in kernel functions that it called. */
#include <linux/completion.h>
#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/mutex.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/sort.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <net/net_namespace.h>
#include <net/rtnetlink.h>

#include "test.h"

/* Not canonical, a user's, and the kernel's without memory behind it. */
#define NOWHERE (1UL << 62)
#define USERS 8UL
#define HOLE 0xffffff1000000000UL

static volatile int nothing;
static volatile unsigned long bad_address;

static noinline void divides(void)
{
	nothing = 100 / nothing;
}

static noinline void reads(void)
{
	nothing = *(volatile int *)bad_address;
	nothing = 0;
}

static noinline void locks(void)
{
	mutex_lock((struct mutex *)bad_address);
	nothing = 0;
}

static noinline void names(void)
{
	nothing = !dev_driver_string((struct device *)bad_address);
}

static noinline void duplicates(void)
{
	kfree(kstrdup((char *)bad_address, GFP_KERNEL));
	nothing = 0;
}

/* With interrupts off, and with a lock that spins: it lies in the same object. */
static noinline void completes(void)
{
	struct completion done = COMPLETION_INITIALIZER_ONSTACK(done);

	done.wait.task_list.next = (struct list_head *)bad_address;
	complete(&done);
	nothing = 0;
}

static int compare(const void *a, const void *b)
{
	reads();
	return 0;
}

/* By way of a kernel function, in a function of its own again. */
static noinline void sorts(void)
{
	u32 numbers[] = { 2, 1 };

	sort(numbers, ARRAY_SIZE(numbers), sizeof(numbers[0]), compare, NULL);
	nothing = 0;
}

/* On its way to sleep. */
static noinline void prepares(void)
{
	set_current_state(TASK_UNINTERRUPTIBLE);
	reads();
}

/* With a semaphore that is a variable of the kernel; if it stayed taken, the next one would wait for ever. */
static noinline void unregisters(void)
{
	unregister_pernet_subsys((struct pernet_operations *)bad_address);
	nothing = 0;
}

/* The same with mutexes, one of which a function takes that is called. */
static noinline void unlinks(void)
{
	rtnl_link_unregister((struct rtnl_link_ops *)bad_address);
	nothing = 0;
}

static raw_spinlock_t taken;

/* Waits in the kernel for what is never released. */
static noinline void waits(void)
{
	raw_spin_lock(&taken);
	nothing = 0;
}

/* No address with code. */
static noinline void jumps(void)
{
	((void (*)(void))bad_address)();
	nothing = 0;
}

static bool each_ends(void)
{
	static void (*const functions[])(void) = {
		reads, locks, names, duplicates, completes, sorts, prepares, unregisters, unlinks, jumps,
	};
	static const unsigned long addresses[] = { NOWHERE, USERS, HOLE };
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(functions); i++)
		for (j = 0; j < ARRAY_SIZE(addresses); j++) {
			bad_address = addresses[j];
			if (!EXPECT(test_ends(functions[i])) || !EXPECT(READ_ONCE(current->__state) == TASK_RUNNING)) {
				pr_info("# by %ps at %lx\n", functions[i], bad_address);
				return false;
			}
		}
	return true;
}

static bool wait_ends(void)
{
	bool well;

	raw_spin_lock_init(&taken);
	raw_spin_lock(&taken);
	well = test_ends(waits);
	raw_spin_unlock(&taken);
	return well;
}

void test_faults(void)
{
	static const struct guardrail_module module = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "faults_test",
	};

	EXPECT(!guardrail_module_enter(&module));
	if (EXPECT(test_set_parameter("policy", "fail"))) {
		EXPECT(test_ends(divides));
		EXPECT(each_ends());
		if (EXPECT(rtnl_trylock()))
			rtnl_unlock();
		EXPECT(test_set_parameter("policy", "log"));
	}
	test_result("faults in entries", true);
	if (EXPECT(test_set_parameter("policy", "fail") && test_set_parameter("watchdog", "1"))) {
		EXPECT(wait_ends());
		EXPECT(test_set_parameter("watchdog", "0") && test_set_parameter("policy", "log"));
	}
	guardrail_module_leave(&module);
	test_result("waits in the kernel without an end", true);
}
