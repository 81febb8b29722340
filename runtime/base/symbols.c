// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * When this module is loaded, a kprobe yields the address of kallsyms_lookup_name(), which finds the other symbols.
 *
 * The functions are called through static calls, that is directly: with indirect branch tracking, the processor
 * refuses a call by pointer to a function whose address the kernel itself never takes.
 */
#include <linux/kprobes.h>
#include <linux/rcupdate.h>
#include <linux/static_call.h>
#include <linux/vmalloc.h>

#include "base/address.h"
#include "base/symbols.h"

struct mm_struct *guardrail_init_mm;
unsigned long guardrail_kernel_half __ro_after_init;

/* Prototypes only: the static calls take their types from these. */
unsigned long guardrail_t_lookup(const char *name);
struct vm_struct *guardrail_t_get_vm_area(unsigned long size, unsigned long flags);
void guardrail_t_flush(unsigned long start, unsigned long end);
int guardrail_t_stack_info(unsigned long *stack, struct task_struct *task, struct stack_info *info,
			   unsigned long *visit_mask);
struct module *guardrail_t_module(unsigned long addr);
int guardrail_t_is_text(unsigned long addr);
int guardrail_t_symbol(unsigned long addr, unsigned long *size, unsigned long *offset);

DEFINE_STATIC_CALL_NULL(guardrail_lookup, guardrail_t_lookup);
DEFINE_STATIC_CALL_NULL(guardrail_get_area, guardrail_t_get_vm_area);
DEFINE_STATIC_CALL_NULL(guardrail_flush, guardrail_t_flush);
DEFINE_STATIC_CALL_NULL(guardrail_stack_info, guardrail_t_stack_info);
DEFINE_STATIC_CALL_NULL(guardrail_module, guardrail_t_module);
DEFINE_STATIC_CALL_NULL(guardrail_is_text, guardrail_t_is_text);
DEFINE_STATIC_CALL_NULL(guardrail_symbol, guardrail_t_symbol);

struct vm_struct *guardrail_get_vm_area(unsigned long size, unsigned long flags)
{
	return static_call(guardrail_get_area)(size, flags);
}

void guardrail_flush_tlb(unsigned long start, unsigned long end)
{
	static_call(guardrail_flush)(start, end);
}

static bool is_kernels_stack(unsigned long addr, struct stack_info *info)
{
	unsigned long mask = 0;

	return !static_call(guardrail_stack_info)((unsigned long *)addr, current, info, &mask);
}

bool guardrail_own_stack_of(unsigned long addr, unsigned long on, struct stack_info *info)
{
	unsigned long *begin = (unsigned long *)round_down(on, THREAD_SIZE);

	if ((addr ^ on) >= THREAD_SIZE || !is_vmalloc_addr((void *)on) || is_kernels_stack(on, info))
		return false;
	*info = (struct stack_info){ .type = STACK_TYPE_TASK, .begin = begin, .end = begin + THREAD_SIZE / sizeof(*begin) };
	return true;
}

bool guardrail_stack_of(unsigned long addr, struct stack_info *info)
{
	return is_kernels_stack(addr, info) || guardrail_own_stack_of(addr, current_stack_pointer, info);
}

struct module *guardrail_module_at(unsigned long addr)
{
	struct module *module;

	preempt_disable();
	rcu_read_lock();
	module = static_call(guardrail_module)(addr);
	rcu_read_unlock();
	preempt_enable();
	return module;
}

bool guardrail_is_code(unsigned long addr)
{
	return static_call(guardrail_is_text)(addr);
}

bool guardrail_is_function(unsigned long addr)
{
	unsigned long size, offset;

	return guardrail_is_code(addr) && static_call(guardrail_symbol)(addr, &size, &offset) && !offset;
}

bool guardrail_symbol_range(unsigned long addr, unsigned long *start, unsigned long *end)
{
	unsigned long size, offset;

	if (!static_call(guardrail_symbol)(addr, &size, &offset) || offset >= size)
		return false;
	*start = addr - offset;
	/* Behind the code of a module, older kernels take the end of the code for that of the last symbol. */
	*end = size > MODULES_LEN ? addr + 1 : *start + size;
	return true;
}

unsigned long guardrail_find_symbol(const char *name)
{
	return static_call(guardrail_lookup)(name);
}

static unsigned long find(const char *name)
{
	unsigned long addr = guardrail_find_symbol(name);

	if (!addr)
		pr_err("this kernel has no symbol '%s', which the rights table needs; it is built without CONFIG_KALLSYMS_ALL, or too new\n",
		       name);
	return addr;
}

static int __init find_lookup(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	int err = register_kprobe(&probe);

	if (err) {
		pr_err("a kprobe on kallsyms_lookup_name cannot be set (error %d), which finds the functions for the rights table; the kernel is built without kprobes, or locked down\n",
		       err);
		return err == -ENOENT ? -ENODEV : err;
	}
	/* The probe lies behind the mark for indirect branches, if any; a direct call may enter there. */
	static_call_update(guardrail_lookup, (typeof(&guardrail_t_lookup))probe.addr);
	unregister_kprobe(&probe);
	return 0;
}

int __init guardrail_symbols_find(void)
{
	unsigned long area, flush, stack, module, text, symbol;
	int err = find_lookup();

	if (err)
		return err;
	guardrail_kernel_half = ~((1UL << __VIRTUAL_MASK_SHIFT) - 1);
	guardrail_init_mm = (struct mm_struct *)find("init_mm");
	area = find("get_vm_area");
	flush = find("flush_tlb_kernel_range");
	stack = find("get_stack_info");
	module = find("__module_address");
	text = find("kernel_text_address");
	symbol = find("kallsyms_lookup_size_offset");
	if (!guardrail_init_mm || !area || !flush || !stack || !module || !text || !symbol)
		return -ENODEV;
	static_call_update(guardrail_get_area, (typeof(&guardrail_t_get_vm_area))area);
	static_call_update(guardrail_flush, (typeof(&guardrail_t_flush))flush);
	static_call_update(guardrail_stack_info, (typeof(&guardrail_t_stack_info))stack);
	static_call_update(guardrail_module, (typeof(&guardrail_t_module))module);
	static_call_update(guardrail_is_text, (typeof(&guardrail_t_is_text))text);
	static_call_update(guardrail_symbol, (typeof(&guardrail_t_symbol))symbol);
	return 0;
}
