// SPDX-License-Identifier: GPL-2.0-or-later
/* guardrail_test.ko: exercises every primitive of guardrail.ko when it is loaded, and prints the results as TAP. */
#include <linux/fs.h>
#include "test.h"

static unsigned int number;
static unsigned int n_failed;
static bool met = true;

static bool cost;
module_param(cost, bool, 0444);
MODULE_PARM_DESC(cost, "measure what the primitives cost, instead of testing");

static bool quick;
module_param(quick, bool, 0444);
MODULE_PARM_DESC(quick, "leave out what waits for many seconds");

void test_result(const char *name, bool ok)
{
	number++;
	if (!ok || !met)
		n_failed++;
	pr_info("%sok %u %s\n", ok && met ? "" : "not ", number, name);
	met = true;
}

bool test_expect(bool is, const char *what, const char *file, int line)
{
	if (!is && READ_ONCE(met)) {
		pr_info("# not met: %s (%s:%d)\n", what, kbasename(file), line);
		WRITE_ONCE(met, false);
	}
	return is;
}

bool test_store(unsigned long addr, unsigned long size, u32 domain)
{
	unsigned long before = guardrail_violations(domain);

	if (inline_check(addr, GUARDRAIL_TAG(domain, GUARDRAIL_WRITE)) && addr % GUARDRAIL_SLOT + size <= GUARDRAIL_SLOT)
		return true;
	guardrail_write_slow(addr, size, domain, _THIS_IP_);
	return guardrail_violations(domain) == before;
}

bool test_set_parameter(const char *name, const char *value)
{
	char path[64];
	struct file *file;
	loff_t offset = 0;
	bool is;

	scnprintf(path, sizeof(path), "/sys/module/guardrail/parameters/%s", name);
	file = filp_open(path, O_WRONLY, 0);
	if (IS_ERR(file))
		return false;
	is = kernel_write(file, value, strlen(value), &offset) > 0;
	filp_close(file, NULL);
	return is;
}

static int __init test_init(void)
{
	if (cost) {
		test_cost();
		return 0;
	}
	pr_info("TAP version 14\n");
	test_rights();
	test_checks();
	test_life();
	test_admission();
	test_actions();
	test_entries();
	test_faults();
	test_text();
	test_counts();
	test_frames();
	if (!quick)
		test_stuck();
	test_races();
	test_reach();
	test_packets();
	test_sound();
	test_transact();
	pr_info("1..%u\n", number);
	pr_info("# %u failed\n", n_failed);
	return 0;
}

static void __exit test_exit(void)
{
}

module_init(test_init);
module_exit(test_exit);
/* The tests load guarded modules that lie in this one, so it needs admission as one. */
MODULE_INFO(guardrail, "tests");
MODULE_DESCRIPTION("Tests of guardrail.ko");
MODULE_LICENSE("GPL");
