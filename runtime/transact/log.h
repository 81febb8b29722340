/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The undo log of a transaction: what its stores overwrote, and what its calls did. It lies in pages of a pool. */
#ifndef GUARDRAIL_TRANSACT_LOG_H
#define GUARDRAIL_TRANSACT_LOG_H

#include <linux/seq_file.h>

#include "base/kernel.h"

/* The most bytes of a payload. */
#define GUARDRAIL_LOG_BYTES 1024
/* The most pages of a log. */
#define GUARDRAIL_LOG_PAGES 64

/**
 * enum guardrail_logged - What an entry of a log says.
 * @GUARDRAIL_LOGGED_BYTES: A store; the payload is what it overwrote, and behind it room for what was there later.
 * @GUARDRAIL_LOGGED_SAVED: Memory of the kernel that a call writes; the payload is what was there.
 * @GUARDRAIL_LOGGED_PACKET: The same for a packet of the domain.
 * @GUARDRAIL_LOGGED_ADDED: An atomic addition; the payload is the difference, a long.
 * @GUARDRAIL_LOGGED_OWNED: A new allocation; the payload is a struct guardrail_logged_owned.
 * @GUARDRAIL_LOGGED_CREATED: A new object; the payload is its type, a u32.
 * @GUARDRAIL_LOGGED_MOVED: An object in another state; the payload is its type and its old state, both u32.
 * @GUARDRAIL_LOGGED_CALLED: A call that a function undoes; the payload is a struct guardrail_logged_call.
 * @GUARDRAIL_LOGGED_DEFERRED: A call for later; the payload is a struct guardrail_deferred.
 * @GUARDRAIL_LOGGED_REQUEST: A request that a device was asked for; without payload.
 */
enum guardrail_logged {
	GUARDRAIL_LOGGED_BYTES,
	GUARDRAIL_LOGGED_SAVED,
	GUARDRAIL_LOGGED_PACKET,
	GUARDRAIL_LOGGED_ADDED,
	GUARDRAIL_LOGGED_OWNED,
	GUARDRAIL_LOGGED_CREATED,
	GUARDRAIL_LOGGED_MOVED,
	GUARDRAIL_LOGGED_CALLED,
	GUARDRAIL_LOGGED_DEFERRED,
	GUARDRAIL_LOGGED_REQUEST,
};

/**
 * struct guardrail_mark - Stands behind the payload of an entry.
 * @p: Address that the entry is about.
 * @bytes: Bytes of the payload, which is rounded up to a multiple of 8.
 * @kind: What the entry says.
 * @is_changed: The entry is a store, and others have changed what is there.
 * @seen: The second half of a store's payload is what was there when so many locks had been released; 0 where it is nothing.
 */
struct guardrail_mark {
	unsigned long p;
	u32 bytes;
	u8 kind;
	bool is_changed;
	u16 seen;
};

/**
 * struct guardrail_log_page - A page of a log.
 * @before: The page before, or the next free one.
 * @used: Where the next entry begins, in bytes.
 * @room: Entries.
 */
struct guardrail_log_page {
	struct guardrail_log_page *before;
	unsigned long used;
	u8 room[PAGE_SIZE - 2 * sizeof(long)];
};

/**
 * struct guardrail_log - A log.
 * @last: The page that is filled.
 * @pages: How many pages it has.
 * @begins: Where it begins in its first page.
 */
struct guardrail_log {
	struct guardrail_log_page *last;
	unsigned int pages;
	unsigned int begins;
};

/**
 * guardrail_log_prepare() - Fill the pool of pages, unless it was filled before.
 *
 * Context: Process.
 * Return: 0, or -ENOMEM.
 */
int guardrail_log_prepare(void);

/**
 * guardrail_log_exit() - Free the pool.
 *
 * Context: Process. No log is in use.
 */
void guardrail_log_exit(void);

/**
 * guardrail_log_new() - Begin a log.
 * @log: The log.
 * @bytes: Bytes in its first page that are not the log's.
 *
 * Context: Any but NMI.
 * Return: These bytes, or NULL where the pool is empty.
 */
void *guardrail_log_new(struct guardrail_log *log, size_t bytes);

/**
 * guardrail_log_free() - Give back a log's pages, with the bytes that are not the log's.
 * @log: The log, which may lie in its own first page.
 *
 * Context: Any but NMI.
 */
void guardrail_log_free(struct guardrail_log *log);

/**
 * guardrail_log_add() - Add an entry.
 * @log: The log.
 * @mark: The entry; no more than 1 KiB of payload.
 *
 * Context: Any but NMI.
 * Return: The room for its payload, which stays in its place; NULL where the log or the pool has no room.
 */
void *guardrail_log_add(struct guardrail_log *log, const struct guardrail_mark *mark);

/**
 * guardrail_log_each() - Look at all entries, the latest first.
 * @log: The log.
 * @each: Called with each entry and its payload. Where it returns false, the others are left out.
 * @data: Passed to it.
 *
 * Context: That of @each.
 */
void guardrail_log_each(const struct guardrail_log *log, bool (*each)(struct guardrail_mark *mark, void *payload, void *data),
			void *data);

/* What the entry of a store of at most 8 bytes takes. */
#define GUARDRAIL_LOG_QUICK (2 * sizeof(u64) + sizeof(struct guardrail_mark))

/* Such an entry has its number of bytes in one word with zeros: it is a store, nobody has changed it, and nothing was seen. */
static_assert(!GUARDRAIL_LOGGED_BYTES && offsetof(struct guardrail_mark, bytes) == sizeof(u64) && sizeof(struct guardrail_mark) == 2 * sizeof(u64));

/**
 * guardrail_log_half() - Find the size of the first half of a store's payload, with the room up to the second.
 * @mark: The entry.
 *
 * Return: Number of bytes.
 */
static inline unsigned long guardrail_log_half(const struct guardrail_mark *mark)
{
	return ALIGN(mark->bytes, 8);
}

/**
 * guardrail_log_show() - Print how much of the pool is in use, and was at most.
 * @seq: Where to print.
 */
void guardrail_log_show(struct seq_file *seq);

#endif /* GUARDRAIL_TRANSACT_LOG_H */
