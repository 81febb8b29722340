/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What files of modules hashed to when they were read, and what may be loaded. Nothing here knows the rest of the
 * runtime, so that guardrail_test.ko includes it as well.
 */
#ifndef GUARDRAIL_DOMAIN_DIGESTS_H
#define GUARDRAIL_DOMAIN_DIGESTS_H

#include <linux/spinlock.h>
#include <linux/types.h>
#include <crypto/sha2.h>

/* The most threads that load guarded modules at the same time; of more, the first are forgotten. */
#define GUARDRAIL_DIGESTS 64

/**
 * struct guardrail_digest - The digest of the module that a thread has read last.
 * @reader: The thread, never followed; NULL where the row is free.
 * @number: How many digests were noted before, which says which is the oldest.
 * @sha256: The digest.
 */
struct guardrail_digest {
	const void *reader;
	u64 number;
	u8 sha256[SHA256_DIGEST_SIZE];
};

/**
 * struct guardrail_digests - A table of digests.
 * @lock: Protects all else. Taken in kprobes, with interrupts off; nothing nests inside.
 * @noted: How many digests were ever noted.
 * @row: The digests, in no order.
 */
struct guardrail_digests {
	raw_spinlock_t lock;
	u64 noted;
	struct guardrail_digest row[GUARDRAIL_DIGESTS];
};

/**
 * guardrail_digests_note() - Note what a thread has read, in place of what it read before.
 * @digests: The table.
 * @reader: The thread.
 * @sha256: The digest; NULL where what was read is no guarded module.
 *
 * Context: Any but NMI.
 */
void guardrail_digests_note(struct guardrail_digests *digests, const void *reader, const u8 *sha256);

/**
 * guardrail_digests_find() - Find what a thread has read.
 * @digests: The table.
 * @reader: The thread.
 * @sha256: Gets the digest.
 *
 * Context: Any but NMI.
 * Return: False where nothing is noted, or it was the oldest of too many.
 */
bool guardrail_digests_find(struct guardrail_digests *digests, const void *reader, u8 *sha256);

/**
 * guardrail_is_listed() - Test for a digest in the text of a file.
 * @text: Lines that begin with a digest in hex, as sha256sum prints them; need not end with 0.
 * @size: Size of @text in bytes.
 * @sha256: The digest.
 *
 * Return: True where a line has it.
 */
bool guardrail_is_listed(const char *text, size_t size, const u8 *sha256);

/**
 * guardrail_is_guarded_file() - Test whether a file may be a guarded module.
 * @file: The file as a whole.
 * @size: Its size in bytes.
 *
 * Return: True for each guarded module, and for others that have the same bytes somewhere.
 */
bool guardrail_is_guarded_file(const char *file, size_t size);

/**
 * guardrail_unsigned_size() - The size of a module's file without the signature behind it.
 * @file: The file as a whole.
 * @size: Its size in bytes.
 *
 * A signature is made after the module was certified, and is no part of what is loaded.
 *
 * Return: The size in bytes, which is @size where there is no signature.
 */
size_t guardrail_unsigned_size(const char *file, size_t size);

#endif /* GUARDRAIL_DOMAIN_DIGESTS_H */
