/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Switches between the stack of a thread and that of a domain. */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/ibt.h>
#include <asm/nospec-branch.h>

/*
 * void active_switch(void **save, void *to): pushes what a function must preserve, and takes the same from the other stack.
 * It returns there. Returns need no landing pad, and with a return thunk they are what the kernel makes of all returns.
 */
SYM_FUNC_START(active_switch)
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rsp, (%rdi)
	movq	%rsi, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	RET
SYM_FUNC_END(active_switch)
STACK_FRAME_NON_STANDARD active_switch

/* Where a new stack begins: r12 is the domain. active_main() does not return. */
SYM_FUNC_START(active_entry)
	ENDBR
	movq	%r12, %rdi
	xorl	%ebp, %ebp
	call	active_main
	ud2
SYM_FUNC_END(active_entry)
STACK_FRAME_NON_STANDARD active_entry
