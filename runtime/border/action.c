// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Actions: at each call between a guarded module and the kernel, rights pass from one to the other.
 * The module must hold the rights that its requests need. Thunks in the module call these functions
 * with their call registers (guardrail_abi.h).
 */
#include <linux/err.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "border/action.h"
#include "border/check.h"
#include "border/quota.h"
#include "border/reach.h"
#include "border/target.h"
#include "border/transact.h"
#include "domain/entry.h"
#include "domain/imports.h"
#include "domain/interrupts.h"
#include "domain/ops.h"
#include "report/report.h"
#include "rights/buffer.h"
#include "rights/fields.h"
#include "rights/kinds.h"
#include "rights/object.h"
#include "rights/ranges.h"
#include "rights/skb.h"
#include "transact/device.h"
#include "transact/transaction.h"

static_assert(offsetof(struct guardrail_call, stack) == 8 * GUARDRAIL_WORD_STACK);
static_assert(offsetof(struct guardrail_record, call) == 128);

/* Reads an unsigned number of @n bytes; false where nothing can be read. */
static bool load(unsigned long addr, unsigned int n, unsigned long *result)
{
	unsigned long word = 0, failed = 1;

	/* The kernel must not read user memory here. */
	if (!is_kernel_range(addr, n))
		return false;
#define LOAD(insn)							\
	asm volatile("1:	" insn "\n"				\
		     "	xorl	%k1, %k1\n"				\
		     "2:\n"						\
		     _ASM_EXTABLE(1b, 2b)				\
		     : "+r" (word), "+r" (failed) : "r" (addr) : "cc", "memory")
	switch (n) {
	case 1:
		LOAD("movzbl	(%2), %k0");
		break;
	case 2:
		LOAD("movzwl	(%2), %k0");
		break;
	case 4:
		LOAD("movl	(%2), %k0");
		break;
	case 8:
		LOAD("movq	(%2), %0");
		break;
	}
#undef LOAD
	*result = word;
	return !failed;
}

static unsigned long low(unsigned long value, unsigned int n)
{
	return n < 8 ? value & ((1UL << (8 * n)) - 1) : value;
}

struct guardrail_outcome guardrail_terms(const struct guardrail_value *value, const struct guardrail_call *call)
{
	unsigned long stack[GUARDRAIL_MAX_DEPTH + 1] = { 0 };
	unsigned int depth = 0, i;

	if (value->kind != GUARDRAIL_VALUE_TERMS)
		return (struct guardrail_outcome){ 0 };
	for (i = 0; i < value->n_terms; i++) {
		const struct guardrail_term *term = &value->terms[i];
		/*
		 * The rewriter makes no terms that need too little or too much of the stack. This stays in the array
		 * all the same.
		 */
		unsigned long *top = &stack[depth ? depth - 1 : 0], *under = &stack[depth > 1 ? depth - 2 : 0];

		switch (term->op) {
		case GUARDRAIL_TERM_CONST:
		case GUARDRAIL_TERM_WORD:
			if (depth == GUARDRAIL_MAX_DEPTH)
				return (struct guardrail_outcome){ 0 };
			stack[depth++] = term->op == GUARDRAIL_TERM_CONST ? term->operand : word_of(call, term->n);
			continue;
		case GUARDRAIL_TERM_LOAD:
			if (!load(*top + term->operand, term->n, top))
				return (struct guardrail_outcome){ 0 };
			continue;
		case GUARDRAIL_TERM_LOW:
			*top = low(*top, term->n);
			continue;
		case GUARDRAIL_TERM_ADD:
			*under += *top;
			break;
		case GUARDRAIL_TERM_MUL:
			*under *= *top;
			break;
		case GUARDRAIL_TERM_SHL:
			*under = *top < 64 ? *under << *top : 0;
			break;
		default:
			return (struct guardrail_outcome){ 0 };
		}
		depth = depth > 1 ? depth - 1 : depth;
	}
	return (struct guardrail_outcome){ .value = stack[0], .known = true };
}

bool guardrail_value(const struct guardrail_value *value, const struct guardrail_call *call, unsigned long *result)
{
	return value_of(value, call, result);
}
EXPORT_SYMBOL_GPL(guardrail_value);

bool guardrail_is_when(const struct guardrail_action *action, const struct guardrail_call *call)
{
	u8 when = action->when & ~GUARDRAIL_OF_ENTRY;

	/* Then the arguments are the module's choice, and bring it no rights. */
	if (action->when & GUARDRAIL_OF_ENTRY && guardrail_called_itself(container_of(call, struct guardrail_record, call)))
		return false;
	switch (when) {
	case GUARDRAIL_ALWAYS:
		return true;
	case GUARDRAIL_RESULT_ZERO:
		return !(int)call->result;
	case GUARDRAIL_RESULT_NOT_NEGATIVE:
		return (int)call->result >= 0;
	case GUARDRAIL_RESULT_TRUE:
		return (u8)call->result;
	case GUARDRAIL_NONZERO:
		return word_of(call, action->when_word);
	}
	return false;
}

bool guardrail_applies(const struct guardrail_action *action, const struct guardrail_call *call)
{
	return applies(action, call);
}
EXPORT_SYMBOL_GPL(guardrail_applies);

/* Names the argument that an action is about. */
static void name_value(const struct guardrail_value *value, char *text, size_t size)
{
	bool behind = value->kind == GUARDRAIL_VALUE_TERMS;
	int word = -1;

	if (value->kind == GUARDRAIL_VALUE_WORD || value->kind == GUARDRAIL_VALUE_HALF)
		word = value->word;
	else if (behind && value->n_terms && value->terms[0].op == GUARDRAIL_TERM_WORD)
		word = value->terms[0].n;
	text[0] = 0;
	if (word == GUARDRAIL_WORD_RESULT)
		scnprintf(text, size, ", %sresult", behind ? "by its " : "");
	else if (word >= GUARDRAIL_WORD_STACK)
		scnprintf(text, size, ", %sargument %d", behind ? "by its " : "", word - GUARDRAIL_WORD_STACK + 7);
	else if (word >= 0 && word < GUARDRAIL_WORD_RESULT)
		scnprintf(text, size, ", %sargument %d", behind ? "by its " : "", word + 1);
}

void guardrail_refuse(const struct guardrail_action *action, const struct guardrail_call *call, const char *what,
		      unsigned long addr, const char *holds, const char *needs)
{
	char text[112], argument[32];
	struct guardrail_violation violation = {
		.what = text, .addr = addr, .ip = call->caller, .domain = action->domain, .holds = holds, .needs = needs,
	};

	name_value(&action->pointer, argument, sizeof(argument));
	scnprintf(text, sizeof(text), "%s%s: %s", action->function, argument, what);
	guardrail_report(&violation);
}
EXPORT_SYMBOL_GPL(guardrail_refuse);

/* Below where the call's arguments lie on the stack is the thunk's own frame, with what it has to do after the call. */
static bool may_write_stack(const struct guardrail_call *call, unsigned long p, unsigned long n)
{
	return p >= (unsigned long)call->stack && guardrail_may_write_stack(p, n);
}

bool guardrail_may_write(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p, unsigned long n)
{
	u32 domain = action->domain;

	return !n || may_write_stack(call, p, n) ||
	       (is_kernel_range(p, n) && (guardrail_first_denied(domain, p, n) == p + n || guardrail_domain_ops->may_store(domain, p, n)));
}

bool guardrail_require_write(const struct guardrail_action *action, const struct guardrail_call *call,
			     unsigned long p, unsigned long n)
{
	unsigned long first = p;
	char what[48];

	if (!n || may_write_stack(call, p, n))
		return true;
	if (is_kernel_range(p, n)) {
		first = guardrail_first_denied(action->domain, p, n);
		if (first == p + n || guardrail_domain_ops->may_store(action->domain, p, n))
			return true;
	}
	if (first == p)
		scnprintf(what, sizeof(what), "write of %lu bytes at", n);
	else
		scnprintf(what, sizeof(what), "write of %lu bytes, at byte %lu:", n, first - p);
	guardrail_refuse(action, call, what, first, guardrail_held_at(first, action->domain), "write");
	return false;
}
EXPORT_SYMBOL_GPL(guardrail_require_write);

/*
 * Logs, at a limited rate, that rights could not change. A missing right appears later as a
 * violation.
 */
static noinline int given(const struct guardrail_action *action, int err)
{
	if (err)
		pr_warn_ratelimited("%s: rights of domain %u could not be changed (error %d)\n", action->function,
				    action->domain, err);
	return err == -ENOMEM ? err : 0;
}

int guardrail_do_grant(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p, n;

	if (!range_of(action, call, &p, &n))
		return 0;
	return given(action, guardrail_grant(action->domain, p, n));
}
EXPORT_SYMBOL_GPL(guardrail_do_grant);

int guardrail_do_revoke(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p, n;

	if (range_of(action, call, &p, &n))
		given(action, guardrail_revoke(action->domain, p, n));
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_revoke);

/*
 * Most functions accept NULL for a result that the caller does not want, but those that copy and
 * fill memory write to it.
 */
static bool writes_to_null(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long *n)
{
	const char *name = action->function;
	unsigned long p;

	while (*name == '_')
		name++;
	return (str_has_prefix(name, "mem") || str_has_prefix(name, "str")) && applies(action, call) &&
	       value_of(&action->pointer, call, &p) && !p && value_of(&action->size, call, n) && *n;
}

/* True where the tags alone show that the domain may write whole slots, which is nearly all that actions require. */
static __always_inline bool all_writable(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long tag = tag_of(p), last = tag_of(p + n - 1);
	u64 writable = EIGHT(WRITABLE(domain));

	if (!is_kernel_range(p, n) || (tag ^ last) & PAGE_MASK || tag_peek(tag) != WRITABLE(domain))
		return false;
	if (last - tag < 7) {
		while (++tag <= last)
			if (READ_ONCE(*(u8 *)tag) != WRITABLE(domain))
				return false;
		return true;
	}
	for (; tag + 7 < last; tag += 8)
		if (READ_ONCE(*(u64 *)tag) != writable)
			return false;
	return READ_ONCE(*(u64 *)(last - 7)) == writable;
}

static noinline int require_write(const struct guardrail_action *action, const struct guardrail_call *call)
{
	unsigned long p, n;

	if (range_of(action, call, &p, &n)) {
		guardrail_require_write(action, call, p, n);
		/* The kernel writes it for the driver. */
		if (is_transacting())
			guardrail_transact_store(p, n, 0);
	} else if (writes_to_null(action, call, &n))
		guardrail_require_write(action, call, 0, n);
	return 0;
}

int guardrail_do_require_write(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p, n;

	stop_dead(action, call);
	if (likely(!is_transacting() && range_of(action, call, &p, &n) &&
		   (all_writable(action->domain, p, n) || buffer_has(action->domain, p, n))))
		return 0;
	return require_write(action, call);
}
EXPORT_SYMBOL_GPL(guardrail_do_require_write);

int guardrail_do_own(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p, n;
	int err;

	if (!range_of(action, call, &p, &n))
		return 0;
	err = guardrail_own(action->domain, p, n, action->type);
	if (err == -EEXIST) {
		/* The allocation that was there was freed in a way that no action shows. */
		guardrail_forget_owner(action->domain, p);
		err = guardrail_own(action->domain, p, n, action->type);
	}
	guardrail_check_quota(action, call, p, n);
	guardrail_device_comes(action->domain, p, n, action->type);
	return given(action, err);
}
EXPORT_SYMBOL_GPL(guardrail_do_own);

/* Memory that is freed must have no object in use. An object in its first state is not in use. */
static void require_no_objects(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p,
			       unsigned long n)
{
	unsigned long end = p + n, object = guardrail_find_irq(action->domain, p, n);

	if (object)
		guardrail_refuse(action, call, "memory in which an object is in use, at", object, "argument of an interrupt's handler", "no object");
	while (p < end) {
		u32 type, state;

		object = guardrail_find_object(action->domain, p, end - p);
		if (!object)
			return;
		if (guardrail_object_any(action->domain, object, &type, &state) && state &&
		    (type != GUARDRAIL_TYPE_RCU_HEAD || !guardrail_rcu_is_over(object))) {
			char holds[48];

			scnprintf(holds, sizeof(holds), "object of type %u in state %u", type, state);
			guardrail_refuse(action, call, "memory in which an object is in use, at", object, holds, "no object");
		}
		p = object + 1;
	}
}

int guardrail_do_disown(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p, n = 0;

	stop_dead(action, call);
	if (!pointer_of(action, call, &p))
		return 0;
	/* An allocation of size 0 has no memory. */
	if (ZERO_OR_NULL_PTR((void *)p))
		return 0;
	if (!guardrail_check_owner(action->domain, p, action->type, &n)) {
		guardrail_refuse(action, call, "release of memory at", p, guardrail_held_at(p, action->domain), "owner");
		return 0;
	}
	require_no_objects(action, call, p, n);
	if (guardrail_disown(action->domain, p, action->type)) {
		/* Another thread of the module released it at the same moment. */
		guardrail_refuse(action, call, "release of memory at", p, guardrail_held_at(p, action->domain), "owner");
		return 0;
	}
	guardrail_device_goes(action->domain, p);
	given(action, guardrail_revoke(action->domain, p, n));
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_disown);

int guardrail_do_grant_fields(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;

	if (!pointer_of(action, call, &p))
		return 0;
	return given(action, guardrail_fields_change(action->domain, p, action->fields, action->n_fields, GUARDRAIL_WRITE));
}
EXPORT_SYMBOL_GPL(guardrail_do_grant_fields);

int guardrail_do_revoke_fields(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;

	if (pointer_of(action, call, &p))
		given(action, guardrail_fields_change(action->domain, p, action->fields, action->n_fields, GUARDRAIL_READ));
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_revoke_fields);

static noinline int object(const struct guardrail_action *action, const struct guardrail_call *call)
{
	unsigned long p, n;
	int err;

	if (is_transacting() && pointer_of(action, call, &p))
		guardrail_note_created(action, p);
	if (action->type == GUARDRAIL_TYPE_SKB) {
		if (!pointer_of(action, call, &p))
			return 0;
		return given(action, guardrail_skb_begins(action->domain, p, action->fields, action->n_fields));
	}
	if (!range_of(action, call, &p, &n))
		return 0;
	/* An object that exists already starts anew. */
	err = guardrail_renew_object(action->domain, p, n, action->type);
	if (!err && action->n_fields)
		err = guardrail_fields_change(action->domain, p, action->fields, action->n_fields, GUARDRAIL_WRITE);
	return given(action, err);
}

int guardrail_do_create_object(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;

	if (likely(!is_transacting() && action->type == GUARDRAIL_TYPE_SKB && action->n_fields && usual_pointer(action, call, &p) &&
		   skb_exchange(action->domain, p, action->fields, true)))
		return 0;
	return object(action, call);
}
EXPORT_SYMBOL_GPL(guardrail_do_create_object);

/* Names what a domain holds at an address where it should have an object. */
static void describe_object(const struct guardrail_action *action, unsigned long p, char *text, size_t size)
{
	u32 type, state;

	if (guardrail_object_any(action->domain, p, &type, &state))
		scnprintf(text, size, "object of type %u in state %u", type, state);
	else
		strscpy(text, guardrail_held_at(p, action->domain), size);
}

void guardrail_refuse_object(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p, u32 type,
			     u32 state)
{
	char holds[48], needs[48];

	describe_object(action, p, holds, sizeof(holds));
	if (state == GUARDRAIL_ANY_STATE)
		scnprintf(needs, sizeof(needs), "object of type %u", type);
	else
		scnprintf(needs, sizeof(needs), "object of type %u in state %u", type, state);
	guardrail_refuse(action, call, "use of", p, holds, needs);
}

static noinline int require_object(const struct guardrail_action *action, const struct guardrail_call *call)
{
	unsigned long p;
	int state;

	stop_dead(action, call);
	if (!pointer_of(action, call, &p))
		return 0;
	state = guardrail_object_state(action->domain, p, action->type);
	if (state < 0 || (action->from != GUARDRAIL_ANY_STATE && state != action->from))
		guardrail_refuse_object(action, call, p, action->type, action->from);
	return 0;
}

int guardrail_do_require_object(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;

	if (likely(action->type == GUARDRAIL_TYPE_SKB && action->from == GUARDRAIL_ANY_STATE && usual_pointer(action, call, &p) &&
		   is_usual_skb(action->domain, p) && !READ_ONCE(guardrail_dead_domains)))
		return 0;
	if (action->type == GUARDRAIL_TYPE_NAPI && action->from == GUARDRAIL_ANY_STATE && is_reached(action, call, REACHED_NAPI))
		return 0;
	return require_object(action, call);
}
EXPORT_SYMBOL_GPL(guardrail_do_require_object);

int guardrail_do_move_object(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;
	int err;

	if (!pointer_of(action, call, &p))
		return 0;
	if (is_transacting())
		guardrail_note_moved(action, p);
	if (action->from == GUARDRAIL_ANY_STATE)
		err = guardrail_put_object(action->domain, p, action->type, action->to);
	else
		err = guardrail_move_object(action->domain, p, action->type, action->from, action->to);
	if (err)
		guardrail_refuse_object(action, call, p, action->type, action->from);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_move_object);

int guardrail_do_forget_object(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;
	int err;

	if (!pointer_of(action, call, &p))
		return 0;
	err = guardrail_destroy_object(action->domain, p, action->type);
	if (err != -ENOENT)
		given(action, err);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_forget_object);

/* An object must exist in the state; it ends. */
int guardrail_do_destroy_object(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;
	int err, state;

	stop_dead(action, call);
	if (!pointer_of(action, call, &p))
		return 0;
	/* Check this before the object ends: if the call is not made, it stays an object. */
	state = action->from == GUARDRAIL_ANY_STATE ? -ENOENT : guardrail_object_state(action->domain, p, action->type);
	if (state >= 0 && state != action->from)
		guardrail_refuse_object(action, call, p, action->type, action->from);
	err = guardrail_destroy_object(action->domain, p, action->type);
	if (err == -ENOENT)
		guardrail_refuse_object(action, call, p, action->type, action->from);
	else
		given(action, err);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_destroy_object);

int guardrail_do_require_call(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;

	stop_dead(action, call);
	if (pointer_of(action, call, &p))
		guardrail_require_call(action, call, "function at", p, action->type);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_require_call);

int guardrail_do_require_calls(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p, function;
	u32 i;

	stop_dead(action, call);
	if (!pointer_of(action, call, &p))
		return 0;
	for (i = 0; i < action->n_fields; i++)
		if (load(p + action->fields[i].offset, 8, &function) && function)
			guardrail_require_call(action, call, "structure with a function at", function, action->fields[i].size);
	/* What was looked at stays as it is. On the heap drivers zero such structures when they free them. */
	if (!guardrail_is_variable(action->domain, p))
		return 0;
	for (i = 0; i < action->n_fields; i++)
		given(action, guardrail_revoke(action->domain, p + action->fields[i].offset, sizeof(function)));
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_require_calls);

int guardrail_do_exit(const struct guardrail_action *action, struct guardrail_call *call)
{
	if (!guardrail_applies(action, call))
		return 0;
	guardrail_transact_abandon();
	guardrail_forget_task();
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_exit);
