// SPDX-License-Identifier: GPL-2.0-or-later
/* The undo log; transact/log.h describes it. */
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>

#include "transact/log.h"

static unsigned int memory = 1024;
module_param_named(transact_memory, memory, uint, 0444);
MODULE_PARM_DESC(transact_memory, "KiB for the undo logs of transactions under way, of which one takes 256 at most");

static_assert(sizeof(struct guardrail_log_page) == PAGE_SIZE);

/* Protects the free pages and their counts. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(pool_lock);
static struct guardrail_log_page *free_pages_of_pool;
static unsigned long n_pages, n_used, most_used, n_refused;
static DEFINE_MUTEX(prepare_mutex);

int guardrail_log_prepare(void)
{
	unsigned long flags;
	int err = 0;

	mutex_lock(&prepare_mutex);
	while (n_pages < memory / (PAGE_SIZE / 1024)) {
		struct guardrail_log_page *page = (void *)__get_free_page(GFP_KERNEL);

		if (!page) {
			err = -ENOMEM;
			break;
		}
		raw_spin_lock_irqsave(&pool_lock, flags);
		page->before = free_pages_of_pool;
		free_pages_of_pool = page;
		n_pages++;
		raw_spin_unlock_irqrestore(&pool_lock, flags);
	}
	mutex_unlock(&prepare_mutex);
	return err;
}

void guardrail_log_exit(void)
{
	while (free_pages_of_pool) {
		struct guardrail_log_page *page = free_pages_of_pool;

		free_pages_of_pool = page->before;
		free_page((unsigned long)page);
	}
}

static struct guardrail_log_page *take(void)
{
	struct guardrail_log_page *page;
	unsigned long flags;

	raw_spin_lock_irqsave(&pool_lock, flags);
	page = free_pages_of_pool;
	if (page) {
		free_pages_of_pool = page->before;
		most_used = max(most_used, ++n_used);
	} else {
		n_refused++;
	}
	raw_spin_unlock_irqrestore(&pool_lock, flags);
	return page;
}

void *guardrail_log_new(struct guardrail_log *log, size_t bytes)
{
	struct guardrail_log_page *page = take();

	if (!page)
		return NULL;
	page->before = NULL;
	page->used = ALIGN(bytes, 8);
	*log = (struct guardrail_log){ .last = page, .pages = 1, .begins = page->used };
	return page->room;
}

void guardrail_log_show(struct seq_file *seq)
{
	seq_printf(seq, "memory: %lu KiB, %lu in use, %lu at most; %lu times there was none left\n", n_pages * PAGE_SIZE / 1024,
		   READ_ONCE(n_used) * PAGE_SIZE / 1024, READ_ONCE(most_used) * PAGE_SIZE / 1024, READ_ONCE(n_refused));
}

void guardrail_log_free(struct guardrail_log *log)
{
	struct guardrail_log_page *last = log->last, *first = last;
	unsigned int pages = log->pages;
	unsigned long flags;

	while (first->before)
		first = first->before;
	raw_spin_lock_irqsave(&pool_lock, flags);
	first->before = free_pages_of_pool;
	free_pages_of_pool = last;
	n_used -= pages;
	raw_spin_unlock_irqrestore(&pool_lock, flags);
}

static bool add_page(struct guardrail_log *log)
{
	struct guardrail_log_page *page = log->pages < GUARDRAIL_LOG_PAGES ? take() : NULL;

	if (!page)
		return false;
	page->before = log->last;
	page->used = 0;
	log->last = page;
	log->pages++;
	return true;
}

/* The room that the payload of an entry takes. */
static unsigned long payload_of(const struct guardrail_mark *mark)
{
	return guardrail_log_half(mark) << (mark->kind == GUARDRAIL_LOGGED_BYTES);
}

void *guardrail_log_add(struct guardrail_log *log, const struct guardrail_mark *mark)
{
	unsigned long payload = payload_of(mark), all = payload + sizeof(*mark);
	struct guardrail_log_page *page = log->last;
	void *at;

	if (page->used + all > sizeof(page->room)) {
		if (all > sizeof(page->room) || !add_page(log))
			return NULL;
		page = log->last;
	}
	at = page->room + page->used;
	memcpy(at + payload, mark, sizeof(*mark));
	page->used += all;
	return at;
}

void guardrail_log_each(const struct guardrail_log *log, bool (*each)(struct guardrail_mark *mark, void *payload, void *data),
			void *data)
{
	struct guardrail_log_page *page;

	for (page = log->last; page; page = page->before) {
		unsigned long at = page->used, begin = page->before ? 0 : log->begins;

		while (at > begin) {
			struct guardrail_mark *mark = (void *)(page->room + at - sizeof(*mark));

			at -= sizeof(*mark) + payload_of(mark);
			if (!each(mark, page->room + at, data))
				return;
		}
	}
}
