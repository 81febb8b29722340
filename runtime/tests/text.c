// SPDX-License-Identifier: GPL-2.0-or-later
/* Functions that write as much as their arguments make it: text, bitmaps, what lies behind lists of pages. */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/string.h>

#include "test.h"

CUSTOM(sprintf);
CUSTOM(sysfs_emit);
CUSTOM(sysfs_emit_at);
CUSTOM(sscanf);
CUSTOM(strcpy);
CUSTOM(stpcpy);
CUSTOM(strcat);
CUSTOM(strncat);
CUSTOM(strlcat);
CUSTOM(strreplace);
CUSTOM(strim);
CUSTOM(strsep);
CUSTOM(unescape);
CUSTOM(bits);
CUSTOM(bits_between);
CUSTOM(bits_of_order);
CUSTOM(sg_filled);
CUSTOM(sg_copied);
CUSTOM(sg_cleared);

typedef int custom_fn(const struct guardrail_action *action, struct guardrail_call *call);

#define MOST_ARGS 14
/* An address in the kernel's half where nothing is. */
#define NOWHERE 0xffffff1000000000UL

static u8 *memory;
static unsigned long result;

/* Calls a function as a thunk does: six arguments in registers, the others on the stack. False where it is refused. */
static bool calls(custom_fn *custom, const unsigned long *args, unsigned int n)
{
	struct guardrail_action action = {
		.kind = GUARDRAIL_ACTION_CUSTOM, .domain = ONE, .function = "tested", .pointer.kind = GUARDRAIL_VALUE_WORD,
		.size.kind = GUARDRAIL_VALUE_WORD, .size.word = 4,
	};
	unsigned long before = guardrail_violations(ONE), words[GUARDRAIL_WORD_STACK + MOST_ARGS] = { 0 };
	struct guardrail_call *call = (struct guardrail_call *)words;

	memcpy(call->args, args, min(n, 6U) * sizeof(*args));
	if (n > 6)
		memcpy(call->stack, args + 6, (n - 6) * sizeof(*args));
	call->caller = _THIS_IP_;
	custom(&action, call);
	result = call->result;
	return guardrail_violations(ONE) == before;
}

#define CALLS(custom, ...)								\
({											\
	const unsigned long args_[] = { __VA_ARGS__ };					\
	calls(guardrail_custom_##custom, args_, ARRAY_SIZE(args_));			\
})
#define P(x) ((unsigned long)(x))

/* @n bytes at the begin of the memory may be written, and hold a text. */
static void begin(unsigned long n, const char *text)
{
	guardrail_revoke(ONE, P(memory), PAGE_SIZE);
	guardrail_grant(ONE, P(memory), n);
	memset(memory, 0x55, PAGE_SIZE);
	if (text)
		strcpy(memory, text);
}

static bool is(const char *text)
{
	return !strcmp(memory, text);
}

static void formats(void)
{
	begin(16, NULL);
	EXPECT(CALLS(sprintf, P(memory), P("%d %s"), 12, P("and text")) && is("12 and text") && result == 11);
	EXPECT(CALLS(sprintf, P(memory), P("%d%d%d%d%d%d%d%d%d%d"), 1, 2, 3, 4, 5, 6, 7, 8, 9, 0) && is("1234567890"));
	EXPECT(CALLS(sprintf, P(memory), P("%015d"), 1) && result == 15);
	EXPECT(!CALLS(sprintf, P(memory), P("%016d"), 1) && !CALLS(sprintf, NOWHERE, P("%d"), 1) && memory[17] == 0x55);
	begin(1024, NULL);
	EXPECT(CALLS(sprintf, P(memory), P("%0600d"), 1) && result == 600 && strlen(memory) == 600);
	begin(PAGE_SIZE, NULL);
	EXPECT(CALLS(sysfs_emit, P(memory), P("%s\n"), P("value")) && is("value\n") && result == 6);
	EXPECT(CALLS(sysfs_emit_at, P(memory), 6, P("%d\n"), 7) && is("value\n7\n") && result == 2);
	EXPECT(!CALLS(sysfs_emit, P(memory) + 8, P("%d"), 1) && !CALLS(sysfs_emit_at, P(memory), PAGE_SIZE, P("%d"), 1));
	EXPECT(!CALLS(sysfs_emit, P(memory + PAGE_SIZE), P("%d"), 1));
	test_result("texts that are formatted", true);
}

static void copies(void)
{
	begin(16, NULL);
	EXPECT(CALLS(strcpy, P(memory), P("fifteen letters")) && is("fifteen letters") && result == P(memory));
	EXPECT(!CALLS(strcpy, P(memory), P("sixteen letters.")) && memory[17] == 0x55);
	EXPECT(!CALLS(strcpy, P(memory), NOWHERE) && !CALLS(strcpy, P(memory), 8));
	EXPECT(CALLS(stpcpy, P(memory), P("text")) && is("text") && result == P(memory) + 4);
	EXPECT(CALLS(strcat, P(memory), P(" is more")) && is("text is more"));
	EXPECT(!CALLS(strcat, P(memory), P("long")) && !CALLS(strncat, P(memory), P("longer"), 5));
	begin(16, "text");
	EXPECT(CALLS(strncat, P(memory), P(" is more or less"), 8) && is("text is more"));
	EXPECT(CALLS(strlcat, P(memory), P(" or less"), 16) && is("text is more or") && result == 20);
	EXPECT(!CALLS(strlcat, P(memory), P("x"), 4));
	begin(16, "  text  ");
	EXPECT(CALLS(strim, P(memory)) && result == P(memory) + 2 && is("  text"));
	EXPECT(CALLS(strim, P(memory)) && is("  text"));
	EXPECT(CALLS(strreplace, P(memory), 't', 'b') && is("  bexb"));
	/* Nothing of this is the domain's, though the first needs no change. */
	begin(0, "text,more ");
	EXPECT(!CALLS(strreplace, P(memory), 't', 'b') && !CALLS(strim, P(memory)));
	test_result("texts that are copied and changed", true);
}

static void separates(void)
{
	char **at = (char **)(memory + 64);

	begin(72, "one,two;three");
	*at = memory;
	EXPECT(CALLS(strsep, P(at), P(",;")) && result == P(memory) && is("one") && *at == (char *)memory + 4);
	EXPECT(CALLS(strsep, P(at), P(",;")) && result == P(memory) + 4 && *at == (char *)memory + 8);
	EXPECT(CALLS(strsep, P(at), P(",;")) && result == P(memory) + 8 && !*at);
	EXPECT(CALLS(strsep, P(at), P(",;")) && !result);
	EXPECT(!CALLS(strsep, P(memory + 512), P(",")));
	strcpy(memory + 128, "not its own,");
	*at = memory + 128;
	EXPECT(!CALLS(strsep, P(at), P(",")));
	*at = (char *)NOWHERE;
	EXPECT(!CALLS(strsep, P(at), P(",")));
	begin(8, NULL);
	EXPECT(CALLS(unescape, P("seven\\n."), P(memory), 8, 0) && !CALLS(unescape, P("seven and more"), P(memory), 0, 0));
	test_result("texts that are taken apart", true);
}

static void scans(void)
{
	int *numbers = (int *)memory;

	begin(32, NULL);
	EXPECT(CALLS(sscanf, P("17 18"), P("%d %d"), P(memory), P(memory + 4)) && result == 2 && numbers[0] == 17 && numbers[1] == 18);
	EXPECT(numbers[2] == 0x55555555);
	EXPECT(CALLS(sscanf, P("1 2 3 4 5 6 7"), P("%hhd%hd%d%d%d%d%ld"), P(memory), P(memory + 2), P(memory + 4), P(memory + 8), P(memory + 12),
		     P(memory + 16), P(memory + 24)) && result == 7 && memory[24] == 7);
	EXPECT(CALLS(sscanf, P("some text"), P("%s %n"), P(memory), P(memory + 16)) && result == 1 && is("some") && memory[16] == 5);
	EXPECT(CALLS(sscanf, P("abc"), P("%2c%*d%%"), P(memory)) && memory[0] == 'a' && memory[1] == 'b');
	EXPECT(CALLS(sscanf, P("abc9"), P("%10[abc]%d"), P(memory), P(memory + 16)) && result == 2 && is("abc"));
	EXPECT(!CALLS(sscanf, P("17 18"), P("%d %d"), P(memory), P(memory + 32)) && !CALLS(sscanf, P("17"), P("%ld"), P(memory + 28)));
	EXPECT(!CALLS(sscanf, P("abcdefghijklmnopqrstuvwxyzabcdef"), P("%s"), P(memory)) && !CALLS(sscanf, NOWHERE, P("%d"), P(memory)));
	/* What is not stored may lie anywhere. */
	EXPECT(CALLS(sscanf, P("17 x"), P("%d %d%n"), P(memory), NOWHERE, NOWHERE) && result == 1);
	test_result("texts that are scanned", true);
}

static void bitmaps(void)
{
	begin(16, NULL);
	EXPECT(CALLS(bits, P(memory), 0, 0, 0, 128) && !CALLS(bits, P(memory), 0, 0, 0, 129));
	EXPECT(CALLS(bits_between, P(memory), 3, 125) && !CALLS(bits_between, P(memory), 3, 126) && CALLS(bits_between, P(memory), 200, 0));
	EXPECT(CALLS(bits_of_order, P(memory), 64, 6) && !CALLS(bits_of_order, P(memory), 128, 0));
	test_result("bitmaps", true);
}

static void lists(void)
{
	struct scatterlist *list = (struct scatterlist *)(memory + 1024);
	struct page *page = virt_to_page(memory);

	begin(64, NULL);
	sg_init_table(list, 2);
	sg_set_page(list, page, 32, 0);
	sg_set_page(list + 1, page, 32, 32);
	EXPECT(CALLS(sg_filled, P(list), 2, P("some text to copy to both of the pages"), 39) && result == 39 &&
	       is("some text to copy to both of the pages"));
	EXPECT(CALLS(sg_copied, P(list), 2, P("more"), 4, 30, false) && result == 4 && !memcmp(memory + 30, "more", 4));
	EXPECT(CALLS(sg_cleared, P(list), 2, 8, 0) && result == 8 && !memory[7] && memory[8]);
	sg_set_page(list + 1, page, 40, 32);
	EXPECT(!CALLS(sg_filled, P(list), 2, P(memory), 72) && !CALLS(sg_cleared, P(list), 2, 72, 0));
	list[0].page_link = NOWHERE & ~SG_PAGE_LINK_MASK;
	EXPECT(!CALLS(sg_filled, P(list), 2, P(memory), 8) && !CALLS(sg_filled, NOWHERE, 2, P(memory), 8));
	test_result("lists of pages", true);
}

void test_text(void)
{
	memory = (u8 *)get_zeroed_page(GFP_KERNEL);
	if (!EXPECT(memory))
		return;
	formats();
	copies();
	separates();
	scans();
	bitmaps();
	lists();
	guardrail_revoke(ONE, P(memory), PAGE_SIZE);
	free_page(P(memory));
}
