// SPDX-License-Identifier: GPL-2.0-or-later
/* Packets: when a domain has a right to the memory of those that it is to send, and of those that it fills. */
#include <linux/skbuff.h>

#include "test.h"

/* More than there are places for packets to send. */
#define MANY 300

CUSTOM(skb_send);
CUSTOM(skb_new);
CUSTOM(skb_gone);

/* With the begin of a packet, and as nearly all rows have it. */
static const struct guardrail_field fields[] = { { 0, 16 }, { offsetof(struct sk_buff, len), 8 } };
static const struct guardrail_field usual[] = { { offsetof(struct sk_buff, len), 8 } };
static struct guardrail_action object = {
	.kind = GUARDRAIL_ACTION_CUSTOM, .domain = ONE, .function = "test", .type = GUARDRAIL_TYPE_SKB, .from = GUARDRAIL_ANY_STATE,
	.pointer = { .kind = GUARDRAIL_VALUE_WORD }, .fields = fields, .n_fields = ARRAY_SIZE(fields),
};

static struct guardrail_call call_with(struct sk_buff *skb)
{
	return (struct guardrail_call){ .args = { (unsigned long)skb } };
}

/* What the thunk of ndo_start_xmit does before the function. */
static bool send(struct sk_buff *skb)
{
	struct guardrail_call call = call_with(skb);

	return !guardrail_do_create_object(&object, &call) && !guardrail_custom_skb_send(&object, &call);
}

/* What a thunk does before a function that takes the packet. */
static bool gone(struct sk_buff *skb)
{
	struct guardrail_call call = call_with(skb);
	unsigned long before = guardrail_violations(ONE);

	guardrail_custom_skb_gone(&object, &call);
	return guardrail_violations(ONE) == before;
}

static bool may(const void *p, unsigned long n)
{
	return test_store((unsigned long)p, n, ONE);
}

/* The driver may write headers, as long as the packet is its own. */
static void sent(void)
{
	struct sk_buff *skb = alloc_skb(512, GFP_KERNEL), *other = alloc_skb(512, GFP_KERNEL), *clone;
	const struct guardrail_entry entry = { .domain = ONE, .function = "test" };
	struct guardrail_record record = {};

	if (!EXPECT(skb && other))
		return;
	skb_put_zero(skb, 100);
	EXPECT(!may(skb->head + 8, 8) && send(skb));
	EXPECT(may(skb->head + 8, 8) && may(skb_shinfo(skb), 8) && !may(other->head, 8));
	EXPECT(!may(skb_end_pointer(skb) + sizeof(struct skb_shared_info), 1));
	EXPECT(gone(skb) && !may(skb->head + 8, 8) && !may(skb_shinfo(skb), 8) && !gone(skb));

	/* Within the entry; that of another packet; one that the driver does not write. */
	record.call = call_with(skb);
	EXPECT(send(skb) && send(other) && !guardrail_enter(&entry, &record));
	EXPECT(may(skb->data, 8) && may(other->data, 8));
	guardrail_leave(&record);
	EXPECT(gone(other) && gone(skb) && !may(skb->data, 8) && !may(other->data, 8));
	EXPECT(send(skb) && gone(skb) && !may(skb->data, 8));

	/* The packet ends in another way than by a call. */
	EXPECT(send(skb) && guardrail_destroy_skb(ONE, (unsigned long)skb) && !may(skb->data, 8));

	/* Data that another packet shares. */
	clone = skb_clone(skb, GFP_KERNEL);
	EXPECT(clone && send(clone) && may(clone->data, 8) && may(skb_shinfo(clone), 8));
	EXPECT(!may(skb_tail_pointer(clone) + 8, 8) && gone(clone) && !may(clone->data, 8));
	kfree_skb(clone);
	kfree_skb(other);
	kfree_skb(skb);
	test_result("packets to send", true);
}

/* Each has the same rights, whether there is a place for it or not, and none is left. */
static void many(void)
{
	static struct sk_buff *skbs[MANY];
	bool sent = true, may_all = true, none = true;
	int i;

	object.fields = usual;
	object.n_fields = ARRAY_SIZE(usual);
	for (i = 0; i < MANY; i++) {
		skbs[i] = alloc_skb(512, GFP_KERNEL);
		if (!EXPECT(skbs[i]))
			return;
		sent &= send(skbs[i]);
	}
	for (i = 0; i < MANY; i += 2)
		may_all &= may(skbs[i]->head + 64, 8) && may(skb_shinfo(skbs[i]), 2);
	for (i = 0; i < MANY; i++)
		sent &= gone(skbs[i]);
	for (i = 0; i < MANY; i++) {
		none &= !guardrail_check_write(ONE, (unsigned long)skbs[i]->head + 64, 8);
		kfree_skb(skbs[i]);
	}
	EXPECT(sent && may_all && none);
	test_result("many packets to send", true);
}

static bool may_copy(const void *p, unsigned long n)
{
	const struct guardrail_action action = {
		.domain = ONE, .function = "test", .from = GUARDRAIL_ANY_STATE,
		.pointer = { .kind = GUARDRAIL_VALUE_WORD }, .size = { .kind = GUARDRAIL_VALUE_WORD, .word = 1 },
	};
	struct guardrail_call call = { .args = { (unsigned long)p, n } };
	unsigned long before = guardrail_violations(ONE);

	return !guardrail_do_require_write(&action, &call) && guardrail_violations(ONE) == before;
}

/* A short packet is copied to the begin of a small buffer. */
static void filled(void)
{
	struct sk_buff *skb = alloc_skb(192, GFP_KERNEL);
	struct guardrail_call call = call_with(skb);
	unsigned long size;
	u8 *head;

	if (!EXPECT(skb))
		return;
	head = skb->head;
	size = skb_end_offset(skb) + sizeof(struct skb_shared_info);
	EXPECT(!guardrail_do_create_object(&object, &call) && !guardrail_custom_skb_new(&object, &call));
	EXPECT(may_copy(head + 66, 60) && may_copy(head, 1) && may_copy(head, size) && may_copy(head + size - 1, 1));
	EXPECT(gone(skb) && !may_copy(head + 66, 60));
	/* Ranges that begin before it, or end behind it. */
	EXPECT(!guardrail_do_create_object(&object, &call) && !guardrail_custom_skb_new(&object, &call));
	EXPECT(!may_copy(head - 1, 60));
	EXPECT(gone(skb) && !guardrail_do_create_object(&object, &call) && !guardrail_custom_skb_new(&object, &call));
	EXPECT(!may_copy(head + 66, size - 65));
	EXPECT(gone(skb) && !guardrail_do_create_object(&object, &call) && !guardrail_custom_skb_new(&object, &call));
	EXPECT(!may_copy(head + 66, ~0UL) && may(head + 70, 4) && may(head + size - 8, 8) && !may(head + size, 1));
	EXPECT(gone(skb) && !may(head + 70, 4) && !may(head + size - 8, 8));
	kfree_skb(skb);
	test_result("packets to fill", true);
}

void test_packets(void)
{
	sent();
	many();
	filled();
	guardrail_revoke_all(ONE);
}
