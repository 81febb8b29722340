/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Single slots: how the rights to some of their bytes change, also where a tag alone cannot express them. */
#ifndef GUARDRAIL_RIGHTS_CONFLICT_H
#define GUARDRAIL_RIGHTS_CONFLICT_H

#include "rights/tag.h"

/**
 * struct guardrail_slot_change - How one domain's rights to the bytes of a slot change.
 * @domain: Domain whose rights change.
 * @mask: Bytes that get @right, a bit each.
 * @right: GUARDRAIL_READ, _WRITE, or a mark for the first byte.
 * @keep_objects: Bytes at which an object begins stay its begin.
 * @many: Other slots will change in the same way, so this may use up all masks.
 */
struct guardrail_slot_change {
	u32 domain;
	u8 mask;
	u8 right;
	bool keep_objects;
	bool many;
};

/**
 * guardrail_conflict_init() - Set up the conflict table.
 *
 * Return: 0, or -ENOMEM.
 */
int __init guardrail_conflict_init(void);

/**
 * guardrail_conflict_exit() - Free the conflict table.
 */
void guardrail_conflict_exit(void);

/**
 * guardrail_slot_change() - Change the rights to some bytes of a slot.
 * @tag: Address of the slot's tag, which has memory.
 * @change: What changes.
 *
 * Context: Any but NMI.
 * Return: 0, or -ENOMEM; then nothing has changed.
 */
int guardrail_slot_change(unsigned long tag, const struct guardrail_slot_change *change);

/**
 * guardrail_slot_holds() - Test a domain's right to some bytes of a slot.
 * @tag: Address of the slot's tag.
 * @domain: Domain to test.
 * @mask: Bytes, a bit each.
 * @right: Right that it needs.
 *
 * Context: Any but NMI.
 * Return: True where the domain holds the right to all of the bytes.
 */
bool guardrail_slot_holds(unsigned long tag, u32 domain, u8 mask, u8 right);

/**
 * guardrail_slot_rights() - Read a domain's rights to the bytes of a slot.
 * @tag: Address of the slot's tag.
 * @domain: Domain to read for.
 * @rights: Gets a GUARDRAIL_… right for each byte.
 *
 * Context: Any but NMI.
 */
void guardrail_slot_rights(unsigned long tag, u32 domain, u8 rights[GUARDRAIL_SLOT]);

/**
 * guardrail_conflict_forget() - Revoke what a domain holds in the conflict table.
 * @domain: Domain that loses all.
 *
 * Context: Any but NMI.
 */
void guardrail_conflict_forget(u32 domain);

/**
 * guardrail_conflict_count() - Count the slots in the conflict table.
 *
 * Return: Their number.
 */
unsigned long guardrail_conflict_count(void);

#endif /* GUARDRAIL_RIGHTS_CONFLICT_H */
