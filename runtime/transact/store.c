// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Logging a store that is about to happen. An atomic operation may change what others change at the same time, so the
 * difference is logged where the instruction states it, and else what was there.
 */
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>

#include "base/address.h"
#include "domain/entry.h"
#include "domain/inject.h"
#include "transact/device.h"
#include "transact/transaction.h"

/* Finds what an instruction with a lock prefix adds to memory; 0 where it does not state that. */
static long added(unsigned long ip, unsigned long n)
{
	u8 code[16], rex = 0, *op = code, modrm;
	long number;

	if ((n != 4 && n != 8) || copy_from_kernel_nofault(code, (void *)ip, sizeof(code)) || *op++ != 0xf0)
		return 0;
	if ((*op & 0xf0) == 0x40)
		rex = *op++;
	modrm = op[1];
	if (op[0] == 0xff)
		return (modrm >> 3 & 7) == 0 ? 1 : (modrm >> 3 & 7) == 1 ? -1 : 0;
	if ((op[0] != 0x81 && op[0] != 0x83) || ((modrm >> 3 & 7) != 0 && (modrm >> 3 & 7) != 5))
		return 0;
	/* The number stands behind the operand: a byte for its registers, and its displacement. */
	/* Without a base, a displacement of 4 bytes follows the byte for registers. */
	if ((modrm & 0xc7) == 4 && (op[2] & 7) == 5)
		op += 4;
	op += 2 + ((modrm & 7) == 4 && modrm >> 6 != 3) + (modrm >> 6 == 1 ? 1 : modrm >> 6 == 2 || (modrm & 0xc7) == 5 ? 4 : 0);
	if (op + 4 > code + sizeof(code))
		return 0;
	number = code[1 + !!rex] == 0x83 ? (s8)*op : *(s32 *)op;
	return (modrm >> 3 & 7) == 5 ? -number : number;
}

static void log_bytes(struct guardrail_transaction *tx, unsigned long p, unsigned long n)
{
	while (n) {
		struct guardrail_mark mark = { .p = p, .bytes = min_t(unsigned long, n, GUARDRAIL_LOG_BYTES), .kind = GUARDRAIL_LOGGED_BYTES };

		guardrail_transact_note(tx, &mark, (void *)p);
		p += mark.bytes;
		n -= mark.bytes;
	}
}

void guardrail_transact_store(unsigned long addr, unsigned long n, unsigned long ip)
{
	struct guardrail_transaction *tx = guardrail_transaction();
	struct guardrail_mark mark = { .p = addr, .bytes = sizeof(long), .kind = GUARDRAIL_LOGGED_ADDED };
	enum guardrail_seen seen;
	long difference;

	if (!tx || tx->irrevocable || addr < KERNEL_HALF || !n || in_nmi())
		return;
	/* The entry's own part of the stack is gone when it has ended. */
	if (addr >= current_stack_pointer && addr < (unsigned long)tx->record)
		return;
	seen = guardrail_device_sees(tx->domain, addr);
	if (seen)
		tx->touched = true;
	if (seen == GUARDRAIL_SEEN_REGISTERS)
		return;
	if (!object_is_on_stack((void *)addr))
		tx->plain[addr / PAGE_SIZE % GUARDRAIL_PLAIN] = addr / PAGE_SIZE;
	tx->stores++;
	guardrail_injected_store(tx->domain, ip);
	difference = added(ip, n);
	if (!difference) {
		log_bytes(tx, addr, n);
		return;
	}
	/* Such words are aligned. The lowest bit of the address is free to say how wide this one is. */
	mark.p |= n == 8;
	guardrail_transact_note(tx, &mark, &difference);
}

void guardrail_transact_note(struct guardrail_transaction *tx, const struct guardrail_mark *mark, const void *payload)
{
	void *room = guardrail_log_add(&tx->log, mark);

	if (room)
		memcpy(room, payload, mark->bytes);
	else
		guardrail_transact_irrevocable(tx, "its log has no room left", NULL);
}

static bool see(struct guardrail_mark *mark, void *payload, void *data)
{
	struct guardrail_transaction *tx = data;

	/* What was stored before this was seen at the last lock. */
	if (mark->seen)
		return false;
	/* Another thread may have freed what lies there. */
	if (mark->kind == GUARDRAIL_LOGGED_BYTES && copy_from_kernel_nofault(payload + guardrail_log_half(mark), (void *)mark->p, mark->bytes))
		return true;
	mark->seen = tx->released;
	return true;
}

void guardrail_transact_released(void)
{
	struct guardrail_transaction *tx = guardrail_transaction();

	if (!tx || tx->irrevocable)
		return;
	if (tx->released < U16_MAX)
		tx->released++;
	guardrail_log_each(&tx->log, see, tx);
}

void guardrail_transact_owned(u32 domain, unsigned long p, unsigned long size, u32 kind)
{
	const struct guardrail_mark mark = { .p = p, .bytes = sizeof(struct guardrail_logged_owned), .kind = GUARDRAIL_LOGGED_OWNED };
	const struct guardrail_logged_owned owned = { .kind = kind, .size = size };
	struct guardrail_transaction *tx = guardrail_transaction();

	if (!tx || tx->irrevocable || tx->domain != domain)
		return;
	guardrail_transact_note(tx, &mark, &owned);
	tx->calls++;
}

void guardrail_transact_irrevocable(struct guardrail_transaction *tx, const char *what, const char *why)
{
	if (tx->irrevocable)
		return;
	this_cpu_write(guardrail_quick, NULL);
	tx->irrevocable = what;
	tx->why = why;
}

bool guardrail_transact_defer(struct guardrail_transaction *tx, const struct guardrail_deferred *call)
{
	const struct guardrail_mark mark = { .p = call->p, .bytes = sizeof(*call), .kind = GUARDRAIL_LOGGED_DEFERRED };
	struct guardrail_deferred *deferred = guardrail_log_add(&tx->log, &mark);

	if (!deferred)
		return false;
	*deferred = *call;
	deferred->next = NULL;
	if (tx->last)
		tx->last->next = deferred;
	else
		tx->first = deferred;
	tx->last = deferred;
	return true;
}
