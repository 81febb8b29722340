// SPDX-License-Identifier: GPL-2.0-or-later
/* Digests of modules by the threads that read them; domain/digests.h describes it. */
#include <linux/ctype.h>
#include <linux/elf.h>
#include <linux/kernel.h>
#include <linux/module_signature.h>
#include <linux/string.h>

#include "domain/digests.h"

/* How newer kernels name it. */
#ifndef MODULE_SIGNATURE_MARKER
#define MODULE_SIGNATURE_MARKER MODULE_SIG_STRING
#endif

/* Digits of a digest in hex. */
#define DIGITS (2 * SHA256_DIGEST_SIZE)

/* The row of a thread, or else the one to give it: a free one, or the oldest. The lock is held. */
static struct guardrail_digest *row_of(struct guardrail_digests *digests, const void *reader)
{
	struct guardrail_digest *row, *oldest = digests->row;

	for (row = digests->row; row < digests->row + GUARDRAIL_DIGESTS; row++) {
		if (row->reader == reader)
			return row;
		if (oldest->reader && (!row->reader || row->number < oldest->number))
			oldest = row;
	}
	return oldest;
}

void guardrail_digests_note(struct guardrail_digests *digests, const void *reader, const u8 *sha256)
{
	struct guardrail_digest *row;
	unsigned long flags;

	raw_spin_lock_irqsave(&digests->lock, flags);
	row = row_of(digests, reader);
	if (sha256) {
		row->reader = reader;
		row->number = digests->noted++;
		memcpy(row->sha256, sha256, SHA256_DIGEST_SIZE);
	} else if (row->reader == reader) {
		row->reader = NULL;
	}
	raw_spin_unlock_irqrestore(&digests->lock, flags);
}

bool guardrail_digests_find(struct guardrail_digests *digests, const void *reader, u8 *sha256)
{
	const struct guardrail_digest *row;
	unsigned long flags;
	bool found;

	raw_spin_lock_irqsave(&digests->lock, flags);
	row = row_of(digests, reader);
	found = row->reader == reader;
	if (found)
		memcpy(sha256, row->sha256, SHA256_DIGEST_SIZE);
	raw_spin_unlock_irqrestore(&digests->lock, flags);
	return found;
}

bool guardrail_is_listed(const char *text, size_t size, const u8 *sha256)
{
	const char *line = text, *end = text + size;
	char wanted[DIGITS + 1];

	scnprintf(wanted, sizeof(wanted), "%*phN", SHA256_DIGEST_SIZE, sha256);
	while (end - line >= DIGITS) {
		const char *behind = line + DIGITS, *next;

		if ((behind == end || isspace(*behind)) && !strncasecmp(line, wanted, DIGITS))
			return true;
		next = memchr(line, '\n', end - line);
		if (!next)
			break;
		line = next + 1;
	}
	return false;
}

bool guardrail_is_guarded_file(const char *file, size_t size)
{
	/* The field of .modinfo that crates/rewrite adds; crates/abi has its name. */
	static const char field[] = "guardrail=";
	const char *at = file, *end = file + size;

	if (size < SELFMAG || memcmp(file, ELFMAG, SELFMAG))
		return false;
	while ((at = memchr(at, field[0], end - at))) {
		if (end - at < sizeof(field) - 1)
			return false;
		if (!memcmp(at, field, sizeof(field) - 1))
			return true;
		at++;
	}
	return false;
}

size_t guardrail_unsigned_size(const char *file, size_t size)
{
	static const char marker[] = MODULE_SIGNATURE_MARKER;
	struct module_signature info;
	size_t rest = size;

	if (rest < sizeof(marker) - 1 + sizeof(info))
		return size;
	rest -= sizeof(marker) - 1;
	if (memcmp(file + rest, marker, sizeof(marker) - 1))
		return size;
	rest -= sizeof(info);
	memcpy(&info, file + rest, sizeof(info));
	return be32_to_cpu(info.sig_len) <= rest ? rest - be32_to_cpu(info.sig_len) : size;
}
