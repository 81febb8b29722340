// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Processor faults in guarded modules. The kernel notifies of a fault before it ends the thread,
 * and continues where the registers point: that serves to end the entry. Faults in kernel functions
 * that a module called with a bad pointer are handled the same way, if the function is known to
 * hold nothing. Other faults in the kernel are left alone, since it may hold locks.
 */
#include <linux/kallsyms.h>
#include <linux/kdebug.h>
#include <linux/ptrace.h>
#include <linux/string.h>
#include <asm/trapnr.h>
#include <asm/unwind.h>

#include "domain/code.h"
#include "domain/entry.h"
#include "domain/policy.h"
#include "domain/unwind.h"
#include "report/report.h"
#include "watch/fault.h"

/* Bytes below the stack pointer of the module's code that stay untouched. */
#define ROOM 256

/* The deepest stack of calls in such a function. */
#define MAX_DEPTH 12

/*
 * Functions that take no lock and change nothing but their arguments' memory. The names have no
 * leading underscores and no suffixes of assembly.
 */
static const char *const harmless[] = {
	"memcpy", "memmove", "memset", "memset16", "memset32", "memset64", "memcmp", "bcmp", "memchr", "memchr_inv", "memscan", "memcpy_toio",
	"memcpy_fromio", "memset_io", "iowrite8_rep", "iowrite16_rep", "iowrite32_rep", "ioread8_rep", "ioread16_rep", "ioread32_rep",
	"ioread8", "ioread16", "ioread32", "ioread16be", "ioread32be", "iowrite8", "iowrite16", "iowrite32", "iowrite16be", "iowrite32be",
	"strlen", "strnlen", "strcmp", "strncmp", "strcasecmp", "strncasecmp", "strcpy", "strncpy", "strlcpy", "strscpy", "sized_strscpy",
	"strscpy_pad", "stpcpy", "strcat", "strncat", "strlcat", "strchr", "strchrnul", "strnchr", "strrchr", "strstr", "strnstr", "strsep", "strspn",
	"strcspn", "strpbrk", "strim", "strreplace", "skip_spaces", "sysfs_streq", "match_string", "sysfs_match_string",
	"kstrtobool", "kstrtoull", "kstrtoll", "kstrtoul", "kstrtol", "kstrtouint", "kstrtoint", "kstrtou16", "kstrtos16", "kstrtou8", "kstrtos8",
	"simple_strtoull", "simple_strntoull", "simple_strtoul", "simple_strtoll", "simple_strtol", "get_option", "get_options", "memparse", "sscanf", "vsscanf",
	"sprintf", "snprintf", "scnprintf", "vsprintf", "vsnprintf", "vscnprintf", "sysfs_emit", "sysfs_emit_at", "hex2bin", "bin2hex", "hex_dump_to_buffer",
	"utf8_to_utf32", "utf32_to_utf8", "utf8s_to_utf16s", "utf16s_to_utf8s", "match_token", "full_name_hash", "hashlen_string", "crc32_le",
	"crc32c", "find_first_bit", "find_next_bit", "find_first_zero_bit", "find_next_zero_bit", "find_last_bit", "bitmap_weight",
	"sg_next", "sg_last", "sg_nents", "sg_init_table", "sg_init_one", "time64_to_tm", "list_add_valid", "list_add_valid_or_report",
	"list_del_entry_valid", "list_del_entry_valid_or_report", "brelse",
};

static bool is_harmless(unsigned long addr)
{
	static const char *const variants[] = { "_erms", "_orig", "_rep_good" };
	char name[KSYM_SYMBOL_LEN], *start = name;
	int i;

	sprint_symbol_no_offset(name, addr);
	while (*start == '_')
		start++;
	/* Performed in place of a function that is listed. */
	if (str_has_prefix(start, "guardrail_custom_"))
		start += strlen("guardrail_custom_");
	for (i = 0; i < ARRAY_SIZE(variants); i++) {
		size_t n = strlen(start), tail = strlen(variants[i]);

		if (n > tail && !strcmp(start + n - tail, variants[i]))
			start[n - tail] = 0;
	}
	for (i = 0; i < ARRAY_SIZE(harmless); i++)
		if (!strcmp(start, harmless[i]))
			return true;
	return false;
}

/*
 * Finds where a guarded module called the kernel function that faulted, if that function holds
 * nothing; else 0.
 */
static unsigned long caller_of(struct pt_regs *regs)
{
	unsigned long called = regs->ip;
	struct unwind_state state;
	int i;

	/* It begins with the caller of what faulted. */
	unwind_start(&state, current, regs, NULL);
	for (i = 0; i < MAX_DEPTH && !unwind_done(&state) && !unwind_error(&state); i++, unwind_next_frame(&state)) {
		unsigned long ip = unwind_get_return_address(&state);

		if (!ip)
			return 0;
		if (guardrail_is_guarded(ip))
			return is_harmless(called) ? ip : 0;
		called = ip;
	}
	return 0;
}

/* A thread whose entry is to end continues here. */
static noinline void go_on(unsigned long ip, unsigned long domain, const char *what)
{
	guardrail_faulted(domain, what, ip);
	/* The entry could be ended when the fault was found, and only the policy may have changed since. */
	BUG();
}

/*
 * Finds the entry that this code runs for, and the address in the module. Returns NULL where no
 * entry is to be ended.
 */
static struct guardrail_record *entry_at(struct pt_regs *regs, unsigned long *ip)
{
	if (!regs || user_mode(regs) || !guardrail_ends_entries())
		return NULL;
	*ip = guardrail_is_guarded(regs->ip) ? regs->ip : 0;
	if (!*ip && guardrail_innermost())
		*ip = caller_of(regs);
	return *ip ? guardrail_innermost() : NULL;
}

bool guardrail_divert(struct pt_regs *regs, const struct guardrail_record *record, const char *what, unsigned long ip)
{
	if (!guardrail_can_end(record, regs->sp))
		return false;
	regs->di = ip;
	regs->si = record->entry->domain;
	regs->dx = (unsigned long)what;
	regs->sp = ((regs->sp - ROOM) & ~15UL) - 8;
	regs->ip = (unsigned long)go_on;
	regs->flags &= ~(X86_EFLAGS_DF | X86_EFLAGS_AC);
	return true;
}

static int on_fault(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *args = data;
	const struct guardrail_record *record;
	unsigned long ip;
	const char *what;

	if (event != DIE_TRAP && event != DIE_GPF && event != DIE_OOPS)
		return NOTIFY_DONE;
	record = entry_at(args->regs, &ip);
	if (!record)
		return NOTIFY_DONE;
	what = event == DIE_OOPS ? "access to a bad address" :
	       event == DIE_GPF ? "access to an address that is not canonical" :
	       args->trapnr == X86_TRAP_DE ? "division by zero" : "instruction that traps";
	return guardrail_divert(args->regs, record, what, ip) ? NOTIFY_STOP : NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = on_fault };

int __init guardrail_fault_init(void)
{
	return register_die_notifier(&notifier);
}

void guardrail_fault_exit(void)
{
	unregister_die_notifier(&notifier);
}
