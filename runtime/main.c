// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * guardrail.ko: the runtime of guarded modules, loaded before them and unloaded after them. Only this file knows all
 * rooms: it starts and stops them, and connects lower rooms with the upper ones that they call.
 */
#include "base/region.h"
#include "base/symbols.h"
#include "classes/classes.h"
#include "debugfs.h"
#include "domain/admission.h"
#include "domain/entry.h"
#include "domain/frames.h"
#include "domain/ops.h"
#include "domain/stack.h"
#include "recovery/class.h"
#include "recovery/device.h"
#include "recovery/recover.h"
#include "report/report.h"
#include "rights/conflict.h"
#include "rights/mask.h"
#include "rights/object.h"
#include "rights/received.h"
#include "rights/table.h"
#include "transact/transaction.h"
#include "watch/fault.h"
#include "watch/watchdog.h"

void guardrail_usage(struct guardrail_usage *usage)
{
	u32 domain;

	guardrail_table_usage(usage);
	usage->conflicts = guardrail_conflict_count();
	usage->records = guardrail_object_count();
	usage->inside = guardrail_inside();
	usage->masks = 0;
	for (domain = 1; domain < GUARDRAIL_DOMAINS; domain++)
		usage->masks += guardrail_masks_given(domain);
}
EXPORT_SYMBOL_GPL(guardrail_usage);

static const struct guardrail_domain_ops domain_ops = {
	.recover = guardrail_recover,
	.clear_dead = guardrail_clear_dead,
	.entry_over = guardrail_entry_over,
	.lock_kept = guardrail_report_lock,
	.counts_kept = guardrail_report_counts,
	.may_store = guardrail_may_store,
	.thread_kept = guardrail_report_thread,
	.object_kept = guardrail_report_frame,
	.faulted = guardrail_faulted,
	.transact_begins = guardrail_transact_begins,
	.transact_ends = guardrail_transact_ends,
	.transact_undoes = guardrail_transact_undoes,
	.transact_undone = guardrail_transact_undone,
	.transact_module = guardrail_device_module,
};

/* Checks save flags by lahf and sahf. */
static int __init check_processor(void)
{
	if (boot_cpu_has(X86_FEATURE_LAHF_LM))
		return 0;
	pr_err("this processor has no lahf in 64-bit mode, which guarded modules need\n");
	return -ENODEV;
}

/* What holds rights, below all entries. */
static int __init rights_init(void)
{
	int err = guardrail_region_init() ?: guardrail_table_init();

	if (err)
		return err;
	guardrail_masks_init();
	err = guardrail_conflict_init();
	if (err)
		goto table;
	err = guardrail_object_init();
	if (err)
		goto conflict;
	return 0;
conflict:
	guardrail_conflict_exit();
table:
	guardrail_table_exit();
	return err;
}

static void rights_exit(void)
{
	guardrail_object_exit();
	guardrail_conflict_exit();
	guardrail_table_exit();
}

static int __init guardrail_init(void)
{
	int err;

	guardrail_domain_register(&domain_ops);
	guardrail_classes_register();
	err = check_processor() ?: guardrail_symbols_find() ?: rights_init();
	if (err)
		return err;
	err = guardrail_stack_init();
	if (err)
		goto rights;
	err = guardrail_entry_init();
	if (err)
		goto stack;
	err = guardrail_frames_init();
	if (err)
		goto entry;
	err = guardrail_recover_init();
	if (err)
		goto frames;
	err = guardrail_fault_init();
	if (err)
		goto recover;
	err = guardrail_watchdog_init();
	if (err)
		goto fault;
	err = guardrail_admission_init();
	if (err)
		goto watchdog;
	guardrail_debugfs_init();
	return 0;
watchdog:
	guardrail_watchdog_exit();
fault:
	guardrail_fault_exit();
recover:
	guardrail_recover_exit();
frames:
	guardrail_frames_exit();
entry:
	guardrail_entry_exit();
stack:
	guardrail_stack_exit();
rights:
	rights_exit();
	return err;
}

/* The modules that use this one are unloaded, so no code changes or checks a right any more. */
static void __exit guardrail_exit(void)
{
	guardrail_debugfs_exit();
	guardrail_admission_exit();
	guardrail_watchdog_exit();
	guardrail_fault_exit();
	guardrail_recover_exit();
	guardrail_frames_exit();
	guardrail_entry_exit();
	guardrail_stack_exit();
	rights_exit();
	guardrail_received_exit();
	guardrail_choose_exit();
	guardrail_log_exit();
	guardrail_report_exit();
}

module_init(guardrail_init);
module_exit(guardrail_exit);
MODULE_DESCRIPTION("Rights of guarded drivers to the kernel's memory");
MODULE_LICENSE("GPL");
MODULE_VERSION(__stringify(GUARDRAIL_ABI));
