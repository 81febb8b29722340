// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Admission of certified modules: the digests of files, lists of them, and a thread that has read no module. All other
 * tests that load a module show that this one, which says that it is guarded, is admitted by its digest.
 */
#include <linux/workqueue.h>

#include "test.h"
/* It needs nothing of the runtime, and the runtime exports nothing of it. */
#include "domain/digests.c"

static struct guardrail_digests table = { .lock = __RAW_SPIN_LOCK_UNLOCKED(table.lock) };
static u8 one[SHA256_DIGEST_SIZE], two[SHA256_DIGEST_SIZE], found[SHA256_DIGEST_SIZE];

static const void *reader(unsigned long n)
{
	return (const void *)(n + 1);
}

static bool has(unsigned long n, const u8 *sha256)
{
	return guardrail_digests_find(&table, reader(n), found) && !memcmp(found, sha256, sizeof(found));
}

static void replaces(void)
{
	EXPECT(!has(0, one));
	guardrail_digests_note(&table, reader(0), one);
	guardrail_digests_note(&table, reader(1), two);
	EXPECT(has(0, one) && has(1, two) && has(1, two));
	guardrail_digests_note(&table, reader(0), two);
	EXPECT(has(0, two));
	guardrail_digests_note(&table, reader(0), NULL);
	guardrail_digests_note(&table, reader(2), NULL);
	EXPECT(!guardrail_digests_find(&table, reader(0), found) && has(1, two));
	EXPECT(!guardrail_digests_find(&table, reader(2), found));
	guardrail_digests_note(&table, reader(1), NULL);
	test_result("a thread has the digest of what it read last", true);
}

static void forgets(void)
{
	unsigned long n;

	for (n = 0; n < GUARDRAIL_DIGESTS; n++)
		guardrail_digests_note(&table, reader(n), one);
	/* The first reads again, so the second is the oldest. */
	guardrail_digests_note(&table, reader(0), two);
	guardrail_digests_note(&table, reader(GUARDRAIL_DIGESTS), two);
	EXPECT(has(0, two) && has(GUARDRAIL_DIGESTS, two));
	EXPECT(!guardrail_digests_find(&table, reader(1), found));
	for (n = 2; n < GUARDRAIL_DIGESTS; n++)
		EXPECT(has(n, one));
	/* A free row comes before the oldest. */
	guardrail_digests_note(&table, reader(5), NULL);
	guardrail_digests_note(&table, reader(1), one);
	EXPECT(has(1, one) && has(2, one));
	for (n = 0; n <= GUARDRAIL_DIGESTS; n++)
		guardrail_digests_note(&table, reader(n), NULL);
	test_result("the oldest of too many digests is forgotten", true);
}

#define ONES "1111111111111111111111111111111111111111111111111111111111111111"
#define AS "aAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaAaA"

static bool lists(const char *text, const u8 *sha256)
{
	return guardrail_is_listed(text, strlen(text), sha256);
}

static void lists_digests(void)
{
	EXPECT(lists(ONES "\n", one) && lists(ONES, one) && lists(ONES "\r\n", one));
	EXPECT(!lists(ONES "\n", two) && lists(AS "\n", two));
	EXPECT(lists("# two kernels\n\n" AS "\n" ONES "  x.ko\n", one));
	EXPECT(!lists("", one) && !lists("\n\n", one) && !lists(" " ONES "\n", one));
	/* Too many digits, too few, and a letter that is no digit. */
	EXPECT(!lists(ONES "1\n", one) && !lists(&ONES[1], one));
	EXPECT(!lists("g" ONES, one) && !guardrail_is_listed(ONES, strlen(ONES) - 1, one));
	test_result("a digest is found in a list", true);
}

static void knows_files(void)
{
	static const char guarded[] = "\177ELF and a g, guardrail guardrail=checks";
	static const char plain[] = "guardrail=checks";

	EXPECT(guardrail_is_guarded_file(guarded, sizeof(guarded)));
	EXPECT(!guardrail_is_guarded_file(plain, sizeof(plain)));
	EXPECT(!guardrail_is_guarded_file(guarded, 0) && !guardrail_is_guarded_file(guarded, 3));
	/* The field ends with the file, or the file ends within the field. */
	EXPECT(guardrail_is_guarded_file(guarded, sizeof(guarded) - sizeof("checks")));
	EXPECT(!guardrail_is_guarded_file(guarded, sizeof(guarded) - sizeof("=checks")));
	test_result("a file is known as a guarded module", true);
}

static void leaves_signatures_out(void)
{
	static const char marker[] = MODULE_SIGNATURE_MARKER;
	struct module_signature info = { .sig_len = cpu_to_be32(5) };
	char file[100] = "module" "12345";
	size_t size = 6 + 5;

	memcpy(file + size, &info, sizeof(info));
	memcpy(file + size + sizeof(info), marker, sizeof(marker) - 1);
	size += sizeof(info) + sizeof(marker) - 1;
	EXPECT(guardrail_unsigned_size(file, size) == 6);
	EXPECT(guardrail_unsigned_size(file, size - 1) == size - 1);
	EXPECT(guardrail_unsigned_size(file, 0) == 0);
	/* No signature is longer than the file. */
	info.sig_len = cpu_to_be32(12);
	memcpy(file + 6 + 5, &info, sizeof(info));
	EXPECT(guardrail_unsigned_size(file, size) == size);
	test_result("a signature is no part of what was certified", true);
}

static const struct guardrail_module module = {
	.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "admission_test",
};

struct entering {
	struct work_struct work;
	int err;
};

static void enter(struct work_struct *work)
{
	struct entering *entering = container_of(work, struct entering, work);

	entering->err = guardrail_module_enter(&module);
	if (!entering->err)
		guardrail_module_leave(&module);
}

static void refuses(void)
{
	struct entering entering;

	EXPECT(!guardrail_module_enter(&module));
	guardrail_module_leave(&module);
	/* A worker has read no file. */
	INIT_WORK_ONSTACK(&entering.work, enter);
	schedule_work(&entering.work);
	flush_work(&entering.work);
	destroy_work_on_stack(&entering.work);
	EXPECT(entering.err == -EKEYREJECTED);
	test_result("a module whose file was not seen is refused", true);
}

void test_admission(void)
{
	memset(one, 0x11, sizeof(one));
	memset(two, 0xaa, sizeof(two));
	replaces();
	forgets();
	lists_digests();
	knows_files();
	leaves_signatures_out();
	refuses();
}
